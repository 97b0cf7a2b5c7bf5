"""Models from training to use: trained, registered, promoted, applied.

Imports: data, databases, measure, naming, plugins, reporting, store, workers.
"""
