"""Copies a topic's values to another topic with Pathway; arguments: BOOTSTRAP INPUT OUTPUT."""

import sys

import pathway as pw

bootstrap, source, sink = sys.argv[1:]
settings = {"bootstrap.servers": bootstrap, "group.id": "pathway", "auto.offset.reset": "earliest"}
lines = pw.io.kafka.read(
    settings, topic=source, format="plaintext", autocommit_duration_ms=200, mode="streaming")
pw.io.kafka.write(lines.select(data=pw.this.data), settings, topic_name=sink, format="plaintext")
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
