"""Topics read from the segment files of their log: `spark.read.format("ottla")`."""
