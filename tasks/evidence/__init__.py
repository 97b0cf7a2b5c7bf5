"""What is shown of a run: MLflow, Prefect, tables, figures, reports."""
