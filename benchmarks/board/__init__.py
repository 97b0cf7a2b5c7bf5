"""Benchmark of the estimators with default settings: public data sets, the same rows for all methods."""
