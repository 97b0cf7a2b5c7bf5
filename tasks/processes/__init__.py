"""Identity and free memory of processes.

Imports: nothing of tasks.
"""
