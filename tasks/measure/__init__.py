"""Measure errors and alignments of learners and baselines, fold by fold.

Imports: data, naming, plugins, store, workers.
"""
