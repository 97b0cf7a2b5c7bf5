"""Models from training to use: trained, registered, promoted, applied.

Imports: data, evidence, measure, naming, own, store, workers.
"""
