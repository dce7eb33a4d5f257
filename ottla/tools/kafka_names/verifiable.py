"""kafka-verifiable-producer: sends numbers as records, and prints each event as a line of JSON."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.client.errors import ClientError
from ottla.tools.cli.target_topic import create_aloud
from ottla.tools.kafka_names.common import connect, properties_of
from ottla.tools.kafka_names.main import complain
from ottla.tools.stream.client_settings import acks_of
from ottla.tools.stream.writer import Writer

if TYPE_CHECKING:
    from ottla.tools.kafka_names.grammar import Options


def say(name: str, **fields: object) -> None:
    """Prints one event."""
    event = {"timestamp": int(time.time() * 1000), "name": name, **fields}
    print(json.dumps(event, separators=(",", ":")), flush=True)


class Acknowledgements:
    """Prints the result of each record."""

    def __init__(self, topic: str) -> None:
        self.topic, self.acked = topic, 0

    def of(self, key: str | None, value: str, error: Any, message: Any) -> None:
        """Handles librdkafka's result for one record."""
        if error is None:
            self.acked += 1
            offset = -1 if message.offset() is None else message.offset()   # unknown with acks=0
            say("producer_send_success", key=key, value=value, topic=self.topic,
                partition=message.partition(), offset=offset)  # fmt: skip
        else:
            self.failed(key, value, error.name(), error.str())

    def failed(self, key: str | None, value: str, exception: str, message: str) -> None:
        """Prints that a record was not acknowledged."""
        say("producer_send_error", exception=exception, message=message, topic=self.topic,
            key=key, value=value)  # fmt: skip


def run(options: Options) -> int:
    """Sends records until --max-messages of them were sent, or the tool is stopped."""
    options.only_flags()
    options.needs("topic", "bootstrap-server")
    topic, most = options.one("topic"), options.number("max-messages", -1)
    rate, keys = options.number("throughput", -1), options.number("repeating-keys", 0)
    prefix = f"{options.one('value-prefix')}." if options.has("value-prefix") else ""
    created = options.number("message-create-time", -1)
    # As in Kafka's tool, the file takes precedence over --acks.
    settings = {"acks": str(acks_of(options.one("acks", "-1"))), **properties_of(options)}
    with connect(options) as cluster:
        cluster.any()                               # reports an unreachable broker at once
        writer, answers = Writer(cluster, settings), Acknowledgements(topic)
        begun, sent = time.monotonic(), 0
        say("startup_complete")
        if most:
            create_aloud(cluster, topic, partial(complain, "kafka-verifiable-producer"))
        try:
            while most < 0 or sent < most:
                key = str(sent % keys) if keys else None
                value = f"{prefix}{sent}"
                stamp = created + sent if created >= 0 else None
                sent += 1
                try:
                    writer.send(
                        topic, key.encode() if key else None, value.encode(), timestamp_ms=stamp,
                        delivered=partial(answers.of, key, value),
                    )  # fmt: skip
                except ClientError as refused:
                    answers.failed(key, value, type(refused).__name__, str(refused))
                writer.serve()
                if rate > 0:
                    time.sleep(max(0.0, begun + sent / rate - time.monotonic()))
        except KeyboardInterrupt:
            pass
        writer.close()
    say("shutdown_complete")
    seconds = max(time.monotonic() - begun, 1e-6)
    say("tool_data", sent=sent, acked=answers.acked, target_throughput=rate,
        avg_throughput=answers.acked / seconds)  # fmt: skip
    return 0
