"""The papers' protocol: folds to train on, one to choose the regularization, one to
test.

Imports: centering, engine, families, learned_kernel, predictors, registry, row_groups,
solvers, targets, validation, weights.
"""
