"""Optimizers that several algorithms share, each with its certificate; free of learners and data sets.

Imports: centering, engine, families, parameters, targets.
"""
