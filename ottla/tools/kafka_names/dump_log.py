"""kafka-dump-log: `ottla log dump`, whose flags and lines are Kafka's already."""

from __future__ import annotations

from ottla.tools import log_command
from ottla.tools.kafka_names.grammar import Options


def run(options: Options) -> int:
    """Hand the whole command line over."""
    options.needs("files")
    return log_command.main(["log", "dump", *options.arguments])
