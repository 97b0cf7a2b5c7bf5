"""Alignment statistics: products of base kernels with each other and with the target,
for every union of folds.

Imports: base, centering, engine, families, validation, weights.
"""
