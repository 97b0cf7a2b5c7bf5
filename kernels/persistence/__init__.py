"""Learned kernels and models as files of arrays and JSON, checked when read; no pickle.

Imports: centering, drift, estimators, families, learned, learners, parameters, predictors, solvers, statistics,
tables, weights.
"""
