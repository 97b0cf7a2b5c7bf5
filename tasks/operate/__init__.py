"""What an operator needs: servers, schedules, and what a killed run leaves.

Imports: environment, evidence, models, store.
"""
