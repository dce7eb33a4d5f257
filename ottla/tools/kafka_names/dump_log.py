"""kafka-dump-log: `ottla log dump`, which already has Kafka's flags and output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.tools import log_command

if TYPE_CHECKING:
    from ottla.tools.kafka_names.grammar import Options


def run(options: Options) -> int:
    """Passes the whole command line to `ottla log dump`. As in Kafka's tool, the status is 0
    for a damaged file that could be read to its end."""
    options.needs("files")
    options.only_flags()                # `ottla log dump` would treat other words as files
    return log_command.main(["log", "dump", *options.arguments], as_kafka=True)
