"""Kafka's client properties as the keyword arguments of kafka-python."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ottla.client.errors import ClientError

NUMBERS = {
    "linger.ms",
    "batch.size",
    "retries",
    "request.timeout.ms",
    "max.block.ms",
    "buffer.memory",
    "metadata.max.age.ms",
    "send.buffer.bytes",
    "receive.buffer.bytes",
    "retry.backoff.ms",
    "max.request.size",
    "fetch.min.bytes",
    "fetch.max.wait.ms",
    "fetch.max.bytes",
    "max.partition.fetch.bytes",
    "max.poll.records",
    "max.poll.interval.ms",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "auto.commit.interval.ms",
    "connections.max.idle.ms",
    "transaction.timeout.ms",
    "max.in.flight.requests.per.connection",
    "delivery.timeout.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
}
SWITCHES = {"enable.auto.commit", "check.crcs", "enable.idempotence"}
TEXTS = {
    "client.id",
    "group.id",
    "group.instance.id",
    "auto.offset.reset",
    "isolation.level",
    "compression.type",
    "transactional.id",
    "security.protocol",
    "client.rack",
    "sasl.mechanism",
}
RENAMED = {"connections.max.idle.ms": "connections_max_idle_ms", "check.crcs": "check_crcs"}


def keyword_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """Properties that kafka-python has a name for; serializers and the like are left out.

    Raises ClientError for a value that should be a number and is not.
    """
    quiet()
    found: dict[str, Any] = {}
    for name, value in properties.items():
        key = RENAMED.get(name, name.replace(".", "_"))
        if name in NUMBERS:
            try:
                found[key] = int(value)
            except ValueError:
                raise ClientError(f"{name}={value}: expected a whole number") from None
        elif name in SWITCHES:
            found[key] = value.strip().lower() == "true"
        elif name in TEXTS:
            found[key] = value
        elif name == "acks":
            found[key] = acks_of(value)
    if found.get("compression_type") == "none":
        found["compression_type"] = None
    return found


def acks_of(text: str) -> int | str:
    """`all`, -1, 0 or 1."""
    if text in ("all", "-1"):
        return "all"
    if text not in ("0", "1"):
        raise ClientError(f"acks={text}: expected 0, 1 or all")
    return int(text)


def quiet() -> None:
    """Removes settings that the command sets itself."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
