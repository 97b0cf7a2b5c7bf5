"""Servers, schedules, and the clean-up after killed runs, for an operator.

Imports: databases, environment, models, reporting, store.
"""
