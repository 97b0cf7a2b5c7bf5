"""Base kernels kept as matrices on disk, in Arrow files.

Imports: data, own, store, workers.
"""
