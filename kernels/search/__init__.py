"""Search for base kernels in continuous families, and for metrics of the features.

Imports: centering, engine, families, parameters, solvers.
"""
