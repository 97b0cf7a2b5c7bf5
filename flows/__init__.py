"""Prefect flows, one per command, which connect tasks."""
