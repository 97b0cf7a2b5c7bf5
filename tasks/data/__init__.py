"""From a source, here or elsewhere, to a checked data set in the store, and rows in and
out by pieces.

Imports: environment, naming, store.
"""
