"""Compiled passes over all pairs of rows, by blocks (tiles), on all cores.

Imports: centering, compiled, families.
"""
