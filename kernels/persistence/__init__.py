"""Learned kernels and models as files of arrays and JSON, checked when read; no pickle.

May import every room of `kernels`; none imports it.
"""
