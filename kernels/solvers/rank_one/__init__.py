"""Solvers for rank-one kernels, one a feature, of which there may be thousands."""
