"""Servers, schedules, and the clean-up after killed runs, for an operator.

Imports: environment, evidence, models, store.
"""
