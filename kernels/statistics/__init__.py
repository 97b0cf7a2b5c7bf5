"""Alignment statistics: products of base kernels and target, per union of folds.

Imports: base, centering, engine, families, validation, weights.
"""
