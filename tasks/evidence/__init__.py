"""What a run leaves behind: comparisons in MLflow and Prefect, tables, figures, reports.

Imports: data, environment, measure, naming, owner, stopping, store, workers.
"""
