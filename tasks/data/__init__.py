"""Read sources into checked, stored data sets; read and write rows in pieces.

Imports: environment, naming, processes, store.
"""
