"""Read sources into checked data sets in the store, and read and write rows by pieces.

Imports: environment, naming, store.
"""
