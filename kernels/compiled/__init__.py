"""Inner loops that Numba compiles when they are first called: how they are kept, vectors, distances and exponentials.

Imports: nothing of kernels.
"""
