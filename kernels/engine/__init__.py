"""Passes over pairs of rows: base kernels by tiles, compiled, on all cores, without a
matrix of all rows.

Imports: centering, compiled, families.
"""
