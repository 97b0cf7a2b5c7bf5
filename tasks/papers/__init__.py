"""Tables and figures of the papers, made again: what was measured, judged and written down.

Imports: data, evidence, measure, naming, store, workers.
"""
