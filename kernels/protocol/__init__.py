"""The papers' protocol: folds to train on, one to choose the regularisation, one to test.

Imports: centering, engine, families, learned, predictors, registry, solvers, targets.
"""
