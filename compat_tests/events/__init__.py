"""Runs each pipeline of `ottla.spark_interop` in each event of docs/spark_promises.md."""
