"""Base kernels that are searched in a continuous family rather than listed.

Imports: centering, engine, families, parameters, solvers.
"""
