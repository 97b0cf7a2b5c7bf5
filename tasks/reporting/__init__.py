"""Results of runs: tables, figures and reports, in files, MLflow and Prefect.

Imports: data, databases, environment, measure, naming, signals, store.
"""
