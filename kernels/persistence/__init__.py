"""Learned kernels and models as files of arrays and JSON, checked when read; no pickle.

Imports: centering, estimators, families, fields, learned, learners, moments, parameters, predictors, solvers, tables.
"""
