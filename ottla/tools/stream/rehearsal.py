"""A writer for `--dry-run`: checks each record as a broker would, and sends nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ottla.client.errors import ClientError, Refused, no_partition
from ottla.tools.admin import configs, topics
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, build_batch

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.stream.batches import Headers

SIZE = "max.message.bytes"


class RehearsalWriter:
    """Refuses records that a broker would refuse: records for unknown topics or partitions, and
    records that are too large. `missing` returns the description of a topic that a broker would
    create for the first record, and None for other topics. What a broker hides from the user is not
    checked.
    """

    def __init__(self, cluster: ClusterClient, missing: Callable[[str], Any]) -> None:
        self._missing = missing
        self.sent = 0
        self.size = 0
        self._cluster = cluster
        self._topics: dict[str, tuple[int | None, int | None]] = {}

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
        if partition is not None and partitions is not None and not 0 <= partition < partitions:
            raise ClientError(no_partition(topic, partition, partitions))
        # The size of the record in its own batch, without compression.
        size = len(build_batch([Record(-1, timestamp_ms or 0, key, value, headers)]))
        if size_max is not None and size > size_max:
            raise ClientError(
                f"record {self.sent + 1} has {size} bytes, but {SIZE} of {topic} is {size_max}"
            )
        self.sent += 1
        self.size += size

    def _look_up(self, topic: str) -> tuple[int | None, int | None]:
        """How many partitions a topic has, and how large its batches may be; None if a broker hides
        it from the user."""
        if (made := self._missing(topic)) is not None:
            return topics.known_partitions(made), size_max_of(made.configs or ())
        partitions = len(topics.leaders(self._cluster, [topic]))
        try:
            settings = configs.describe(self._cluster, configs.TOPIC, topic)
        except Refused as refused:
            if refused.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            return partitions, None
        return partitions, size_max_of(settings)

    def flush(self) -> None:
        """Does nothing: no record is in flight."""

    def close(self) -> None:
        """Does nothing: nothing is open."""


def size_max_of(settings: Iterable[Any]) -> int | None:
    """The value of max.message.bytes; None if it is hidden from the user."""
    values = [one.value for one in settings if one.name == SIZE]
    return int(values[0]) if values and values[0] is not None else None
