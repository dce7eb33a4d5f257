"""What each pipeline of `ottla.spark_interop` does in each event: docs/spark_promises.md."""
