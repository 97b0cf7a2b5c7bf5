"""Compute on Dask workers, and give them the rows.

Imports: data, processes, store.
"""
