"""Errors and alignments of learners and baselines on a data set, fold by fold.

Imports: data, naming, plugins, store, workers.
"""
