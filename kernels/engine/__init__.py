"""Compiled passes over pairs of rows by tiles, on all cores.

Imports: centering, compiled, families.
"""
