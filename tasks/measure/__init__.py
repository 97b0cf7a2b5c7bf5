"""From a data set to errors and alignments, fold by fold.

Imports: data, matrices, naming, own, store, workers.
"""
