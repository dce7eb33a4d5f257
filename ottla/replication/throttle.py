"""Throttles of replication (KIP-73). They limit the bytes per second that a leader sends or a
follower fetches. A replica is throttled if the topic's settings name it and it is not in sync.

The topic settings `leader.replication.throttled.replicas` and
`follower.replication.throttled.replicas` list replicas as partition:broker, or * for all. The
broker settings `leader.replication.throttled.rate` and `follower.replication.throttled.rate` are
the limits. The bytes of a listed replica that is in sync are counted too, but it never waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.log.files.clock import Clock
    from ottla.replication.metadata import MetadataImage
    from ottla.replication.partition import Partition

SAMPLES = 11
SAMPLE_SECONDS = 1.0
"""Kafka's defaults of replication.quota.window.num and replication.quota.window.size.seconds."""
UNLIMITED = 2**63 - 1
WAIT_SECONDS_MAX = 1.0
"""The longest single wait of a replica, so that a new rate applies soon."""

EVERY: frozenset[int] = frozenset()


class Throttle:
    """One side's throttle on one broker; `side` is "leader" or "follower", `rate` returns the bytes
    per second that are allowed now."""

    def __init__(self, side: str, node_id: int, rate: Callable[[], int], clock: Clock) -> None:
        self.setting = f"{side}.replication.throttled.replicas"
        self.node_id, self.rate, self.clock = node_id, rate, clock
        self.replicas: dict[str, frozenset[int]] = {}
        """The throttled partitions by topic; EVERY means all partitions of a topic."""
        self.active = False
        """Whether any replica is throttled."""
        self.samples: deque[tuple[float, int]] = deque()

    def follow(
        self, old: MetadataImage, new: MetadataImage, topics: Collection[str] = ()
    ) -> None:
        """Take over the settings of topics."""
        if new.configs is old.configs:
            return
        self.replicas = {}
        for (kind, name), settings in new.configs.items():
            text = settings.get(self.setting) if kind == "topic" else None
            if text:
                named = [each.strip() for each in text.split(",")]
                own = [each.split(":") for each in named if each.endswith(f":{self.node_id}")]
                if "*" in named:
                    self.replicas[name] = EVERY
                elif own:
                    self.replicas[name] = frozenset(int(index) for index, _ in own)
        self.active = bool(self.replicas)

    def applies_to(self, topic: str, index: int) -> bool:
        """Whether this partition's replica on this broker is named in the settings."""
        named = self.replicas.get(topic)
        return named is not None and (named is EVERY or index in named)

    def record(self, topic: str, index: int, size: int) -> None:
        """Count bytes of a partition, if it is throttled."""
        if self.active and self.applies_to(topic, index):
            now = self.clock.monotonic()
            self._expire(now)
            if self.samples and now - self.samples[-1][0] < SAMPLE_SECONDS:
                began, counted = self.samples.pop()
                self.samples.append((began, counted + size))
            else:
                self.samples.append((now, size))

    def wait_for(self, partition: Partition, replica: int) -> float:
        """How many seconds this replica has to wait; 0 if it may continue. In-sync replicas never
        wait."""
        if not self.active or replica in partition.isr:
            return 0.0
        rate = self.rate()
        if rate >= UNLIMITED or not self.applies_to(partition.topic, partition.index):
            return 0.0
        now = self.clock.monotonic()
        self._expire(now)
        if rate <= 0:
            return WAIT_SECONDS_MAX
        if not self.samples:
            return 0.0
        elapsed = max(now - self.samples[0][0], SAMPLE_SECONDS)
        over = sum(counted for _, counted in self.samples) / rate - elapsed
        return min(max(over, 0.0), WAIT_SECONDS_MAX)

    def _expire(self, now: float) -> None:
        while self.samples and now - self.samples[0][0] >= SAMPLES * SAMPLE_SECONDS:
            self.samples.popleft()
