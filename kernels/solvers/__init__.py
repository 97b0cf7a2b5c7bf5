"""Solvers of optimization problems, with certificates of optimality.

Imports: base, centering, engine, families, row_groups, targets, validation.
"""
