"""Helpers for Spark pipelines. None yet: Spark's own source and sink work against Ottla."""
