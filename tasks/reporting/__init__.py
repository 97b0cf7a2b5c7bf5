"""Write tables, figures and reports of runs to files, MLflow and Prefect.

Imports: data, databases, environment, measure, naming, processes, signals, store.
"""
