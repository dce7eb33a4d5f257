"""kafka-verifiable-producer: numbers as records, and a line of JSON for each event."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from ottla.tools.kafka_names.common import connect, properties_of
from ottla.tools.stream.client_settings import (
    acks_of,
    bootstrap_servers,
    keyword_arguments,
    known_to,
)

if TYPE_CHECKING:
    from ottla.tools.kafka_names.grammar import Options


def say(name: str, **fields: object) -> None:
    """One event."""
    event = {"timestamp": int(time.time() * 1000), "name": name, **fields}
    print(json.dumps(event, separators=(",", ":")), flush=True)


def run(options: Options) -> int:
    """Sends until enough has been sent, or it is stopped."""
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    options.needs("topic", "bootstrap-server")
    with connect(options) as cluster:
        servers = bootstrap_servers(cluster)  # reports an unreachable broker at once
    settings = known_to(KafkaProducer, keyword_arguments(properties_of(options)))
    settings["acks"] = acks_of(options.one("acks", "-1"))
    producer = KafkaProducer(bootstrap_servers=servers, **settings)
    topic, most = options.one("topic"), options.number("max-messages", -1)
    rate, keys = options.number("throughput", -1), options.number("repeating-keys", 0)
    prefix = f"{options.one('value-prefix')}." if options.has("value-prefix") else ""
    created = options.number("message-create-time", -1)
    begun, sent, acked = time.monotonic(), 0, 0
    say("startup_complete")
    try:
        while most < 0 or sent < most:
            key = str(sent % keys) if keys else None
            value = f"{prefix}{sent}"
            stamp = created + sent if created >= 0 else None
            sent += 1
            try:
                done = producer.send(
                    topic, value.encode(), key.encode() if key else None, timestamp_ms=stamp
                ).get(60)
                acked += 1
                say(
                    "producer_send_success",
                    key=key,
                    value=value,
                    topic=topic,
                    partition=done.partition,
                    offset=done.offset,
                )
            except KafkaError as failed:
                say(
                    "producer_send_error",
                    exception=type(failed).__name__,
                    message=str(failed),
                    topic=topic,
                    key=key,
                    value=value,
                )
            if rate > 0:
                time.sleep(max(0.0, begun + sent / rate - time.monotonic()))
    except KeyboardInterrupt:
        pass
    producer.close()
    say("shutdown_complete")
    seconds = max(time.monotonic() - begun, 1e-6)
    say("tool_data", sent=sent, acked=acked, target_throughput=rate, avg_throughput=acked / seconds)
    return 0
