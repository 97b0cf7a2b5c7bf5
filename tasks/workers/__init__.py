"""Dask workers, and the files from which they read rows.

Imports: data, store.
"""
