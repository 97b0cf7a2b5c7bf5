"""Compiled passes over all pairs of rows, by blocks of Gram matrices (tiles), on all cores.

Imports: centering, compiled, families.
"""
