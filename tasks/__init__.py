"""Prefect tasks over `kernels`: data, measurements, models, reports and servers."""
