"""Identity of processes across restarts and hosts.

Imports: nothing of tasks.
"""
