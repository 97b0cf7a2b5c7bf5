"""Tests between the rows of two tables, and between features and targets.

Imports: base, centering, engine, families, learned_kernel, statistics, targets, weights.
"""
