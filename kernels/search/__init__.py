"""Base kernels that are searched in a continuous family rather than listed.

May import `engine`, `families`, `moments` and `solvers`.
"""
