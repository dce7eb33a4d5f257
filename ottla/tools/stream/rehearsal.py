"""A writer for `--dry-run`: checks each record as a broker would, and sends nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.client.errors import ClientError, no_partition
from ottla.tools.admin import configs, topics
from ottla.wire.records import Record, build_batch

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.stream.batches import Headers

SIZE = "max.message.bytes"


class RehearsalWriter:
    """Refuses records that a broker would refuse: records for unknown topics or partitions, and
    records that are too large. `missing` returns the description of a topic that a broker would
    create for the first record, and None for other topics.
    """

    def __init__(self, cluster: ClusterClient, missing: Callable[[str], Any]) -> None:
        self._missing = missing
        self.sent = 0
        self.size = 0
        self._cluster = cluster
        self._topics: dict[str, tuple[int, int]] = {}

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Count a record. Raises ClientError if a broker would refuse it."""
        if topic not in self._topics:
            self._topics[topic] = self._look_up(topic)
        partitions, size_max = self._topics[topic]
        if partition is not None and not 0 <= partition < partitions:
            raise ClientError(no_partition(topic, partition, partitions))
        # The size of the record in its own batch, without compression.
        size = len(build_batch([Record(-1, timestamp_ms or 0, key, value, headers)]))
        if size > size_max:
            raise ClientError(
                f"record {self.sent + 1} has {size} bytes, but {SIZE} of {topic} is {size_max}"
            )
        self.sent += 1
        self.size += size

    def _look_up(self, topic: str) -> tuple[int, int]:
        """How many partitions a topic has, and how large its batches may be."""
        if (made := self._missing(topic)) is not None:
            return made.num_partitions, next(
                int(one.value) for one in made.configs if one.name == SIZE)
        partitions = len(topics.leaders(self._cluster, [topic]))
        settings = configs.describe(self._cluster, configs.TOPIC, topic)
        return partitions, next(int(one.value) for one in settings if one.name == SIZE)

    def flush(self) -> None:
        """Does nothing: no record is in flight."""

    def close(self) -> None:
        """Does nothing: nothing is open."""
