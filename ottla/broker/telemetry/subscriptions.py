"""Subscriptions to client metrics, and how they match clients (KIP-714).

A subscription is a resource of type client-metrics; `kafka-client-metrics` sets its `metrics`,
`interval.ms` and `match`.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.replication.metadata import MetadataImage
from ottla.wire.patterns import InvalidPattern, Pattern, compiled

log = logging.getLogger("ottla.telemetry")

INTERVAL_MS_DEFAULT = 300_000
ALL_METRICS = "*"
"""This entry of a subscription's `metrics` requests all metrics. Any other entry is a prefix of the
names of the requested metrics."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which clients push which metrics, and how often. `match` has an expression for each attribute
    that it names."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: tuple[tuple[str, Pattern], ...]

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Whether every expression matches the whole of its attribute."""
        return all(each.fullmatch(attributes.get(name, "")) for name, each in self.match)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one client has to push, and how often; if that changes, `subscription_id` changes."""

    metrics: tuple[str, ...]
    interval_ms: int
    subscription_id: int


def subscriptions_of(image: MetadataImage) -> list[Subscription]:
    """All subscriptions of the cluster. A subscription with an invalid `match` matches no client.

    Such a `match` was set by another release, or through a broker that accepts more patterns.
    """
    matching = []
    for (kind, name), settings in sorted(image.configs.items()):
        if kind != "client-metrics":
            continue
        try:
            match = tuple(_patterns(settings.get("match", "")))
        except InvalidPattern as error:
            log.warning("the subscription %s to client metrics matches no client, because its"
                        " `match` setting is invalid: %s", name, error)
            continue
        interval_ms = int(settings.get("interval.ms", INTERVAL_MS_DEFAULT))
        matching.append(Subscription(_items(settings.get("metrics", "")), interval_ms, match))
    return matching


def _items(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def _patterns(text: str) -> Iterable[tuple[str, Pattern]]:
    for item in _items(text):
        name, _, expression = item.partition("=")
        yield name.strip(), compiled(expression.strip())


def wanted_from(
    subscriptions: Iterable[Subscription], instance_id: bytes, attributes: Mapping[str, str]
) -> Wanted:
    """The metrics of all matching subscriptions, with the shortest of their intervals, but at most
    INTERVAL_MS_DEFAULT."""
    metrics: set[str] = set()
    interval_ms = INTERVAL_MS_DEFAULT
    for each in subscriptions:
        if each.matches(attributes):
            metrics.update(each.metrics)
            interval_ms = min(interval_ms, each.interval_ms)
    if ALL_METRICS in metrics:
        metrics = {ALL_METRICS}
    names = tuple(sorted(metrics))
    said = f"{interval_ms} {','.join(names)}".encode()
    # An int32 that is the same on every broker for the same subscription of the same client.
    number = zlib.crc32(said, zlib.crc32(instance_id))
    return Wanted(names, interval_ms, number - (1 << 32) if number >> 31 else number)
