"""Models from training to use: trained, registered, promoted, applied.

Imports: data, databases, measure, naming, own, reporting, store, workers.
"""
