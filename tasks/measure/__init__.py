"""From a data set to errors and alignments, fold by fold.

Imports: data, naming, own, store, workers.
"""
