"""The brokers that have stopped or died, and when this broker learned of it.

When a broker's registration has ended, Metadata responses still list the broker for
`ottla.unavailable.broker.listed.ms`. Apache Kafka lists a stopped broker until the broker's session
ends. The list is for librdkafka, which drops a broker that is missing from it. If the dropped
broker was a group's coordinator, librdkafka never sends the requests that wait for the coordinator
(librdkafka #5456, #5511). A broker that restarts in time never leaves the list. DescribeQuorum
shows when each broker left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.log.files.clock import Clock
from ottla.replication.metadata import BrokerImage, MetadataImage

NEVER = float("inf")


class Departure(NamedTuple):
    """When a broker departed (ms since 1970), and until when Metadata responses list it (seconds of
    the monotonic clock)."""

    at_ms: int
    listed_until: float


class DepartedBrokers:
    """The brokers whose registration ended since this broker's start."""

    def __init__(self, clock: Clock, listed_ms: int) -> None:
        self.clock, self.listed_ms = clock, listed_ms
        self.began_ms = clock.now_ms()
        self.seen: dict[int, Departure] = {}
        self._former: Mapping[int, BrokerImage] | None = None
        self._changes_at = NEVER
        self._listed: Mapping[int, BrokerImage] = {}

    def follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """Note which brokers have departed or returned."""
        if new.brokers is old.brokers:
            return
        listed_until = self.clock.monotonic() + self.listed_ms / 1000
        departure = Departure(self.clock.now_ms(), listed_until)
        self.seen |= dict.fromkeys(old.brokers.keys() - new.brokers.keys(), departure)
        for node_id in self.seen.keys() & new.brokers.keys():
            del self.seen[node_id]
        self._former = None

    def listed(self, image: MetadataImage) -> Mapping[int, BrokerImage]:
        """The last registrations of the departed brokers that Metadata responses still list. This
        is the same object until the list changes."""
        if image.former is not self._former or self.clock.monotonic() >= self._changes_at:
            now = self.clock.monotonic()
            listed = {node: each.listed_until for node, each in self.seen.items()
                      if each.listed_until > now}
            self._changes_at = min(listed.values(), default=NEVER)
            self._former = image.former
            self._listed = {node: image.former[node] for node in listed if node in image.former}
        return self._listed
