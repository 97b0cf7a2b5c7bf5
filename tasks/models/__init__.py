"""Train, register, promote and apply models.

Imports: data, databases, measure, naming, plugins, reporting, store, workers.
"""
