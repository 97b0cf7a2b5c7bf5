"""Optimizers that several algorithms share, each with its certificate; free of learners
and data sets.

Imports: base, centering, engine, families, row_groups, targets, validation.
"""
