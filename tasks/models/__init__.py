"""Models from training to use: trained, registered, promoted, applied.

Imports: data, environment, evidence, measure, naming, store, workers.
"""
