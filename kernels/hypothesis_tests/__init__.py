"""Hypothesis tests between the rows of two tables, and between features and targets.

Imports: centering, engine, families, learned_kernel, parameters, statistics, targets.
"""
