"""Alignment statistics: inner products of base kernels and target, for unions of folds.

Imports: base, centering, engine, families, validation, weights.
"""
