"""Training, validation and test splits, metrics, and selection by validation errors.

Imports: centering, engine, families, learned_kernel, predictors, registry, row_groups,
solvers, targets, validation, weights.
"""
