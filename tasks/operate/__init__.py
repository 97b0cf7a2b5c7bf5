"""Run servers and schedules, and clean up after killed runs.

Imports: data, databases, environment, models, processes, reporting, store.
"""
