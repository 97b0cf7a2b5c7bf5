"""What a run leaves behind: comparisons in MLflow and Prefect, tables, figures, reports.

Imports: data, environment, measure, naming, own, owner, stopping, store, workers.
"""
