"""Optimizers that several algorithms share, each with its certificate.

Imports: base, centering, engine, families, row_groups, targets, validation.
"""
