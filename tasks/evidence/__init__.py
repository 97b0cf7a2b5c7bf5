"""What a run leaves behind: comparisons in MLflow and Prefect, tables, figures, reports.

Imports: data, environment, measure, naming, own, stopping, store, workers.
"""
