"""Run servers and schedules, and clean up after killed runs.

Imports: databases, environment, models, processes, reporting, store.
"""
