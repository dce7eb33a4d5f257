"""The views' requests to a cluster: topics, offsets, and records after or before an offset."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.errors import check
from ottla.tools.admin import offsets, topics
from ottla.tools.admin.offsets import EARLIEST, Place
from ottla.tools.stream.batches import FETCH_MAX, fetch_request
from ottla.wire.batch import batches

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.wire.records import Record

FETCH_BYTES = 256 << 10
"""Bytes requested by one fetch; a larger batch is returned completely."""


class Bounds(NamedTuple):
    """The first offset of a partition, and the offset that its next record will have."""

    first: int
    next: int


class Source:
    """One cluster, read without a group, so that nothing is stored on the brokers."""

    def __init__(self, cluster: ClusterClient) -> None:
        self.cluster = cluster

    def topics(self) -> list[tuple[str, int]]:
        """All topics: their names and numbers of partitions."""
        metadata = self.cluster.metadata().topics
        return sorted((topic.name, len(topic.partitions)) for topic in metadata)

    def bounds(self, topic: str) -> dict[int, Bounds]:
        """The offsets of a topic's partitions; raises Refused for an unknown topic."""
        places = sorted(topics.leaders(self.cluster, [topic]))
        first = offsets.at(self.cluster, dict.fromkeys(places, EARLIEST))
        last = offsets.ends(self.cluster, places)
        for place in places:
            check(first[place].error or last[place].error, what=f"{place[0]}-{place[1]}")
        return {place[1]: Bounds(first[place].offset, last[place].offset) for place in places}

    def at_time(self, place: Place, timestamp: int) -> int:
        """The offset of the first record at or after a time (ms), or else the partition's end."""
        listed = offsets.at(self.cluster, {place: timestamp})[place]
        check(listed.error, what=f"{place[0]}-{place[1]}")
        return listed.offset if listed.offset >= 0 else self.bounds(place[0])[place[1]].next

    def fetch(self, place: Place, offset: int) -> tuple[list[Record], int]:
        """Fetches records from an offset on. Returns the records of one fetch, and the offset after
        them.

        At the partition's end, the returned offset is the given one. Control records are skipped.
        """
        leader = topics.leader(self.cluster, place)
        request = fetch_request(
            place[0], [(place[1], offset)], partition_bytes=FETCH_BYTES, wait_ms=0, min_bytes=0
        )
        response = self.cluster.node(leader).call(request, at_most=FETCH_MAX)
        records: list[Record] = []
        following = offset
        for topic in response.responses:
            for part in topic.partitions:
                check(part.error_code, what=f"{place[0]}-{place[1]}")
                for batch in batches(part.records or b""):
                    following = batch.next_offset
                    if not batch.control:
                        records += [one for one in batch.records() if one.offset >= offset]
        return records, following

    def after(self, place: Place, offset: int, count: int) -> list[Record]:
        """The first `count` records from an offset on, fewer at the partition's end."""
        collected: list[Record] = []
        while len(collected) < count:
            records, following = self.fetch(place, offset)
            collected += records
            if following == offset:
                break
            offset = following
        return collected[:count]

    def before(self, place: Place, first: int, offset: int, count: int) -> list[Record]:
        """The last `count` records before an offset; `first` is the partition's first offset.

        Compaction and transactions leave gaps in the offsets, so this function starts `count`
        offsets earlier, and goes further back if it finds too few records.
        """
        span = count
        while True:
            begin = max(first, offset - span)
            collected: deque[Record] = deque(maxlen=count)
            at = begin
            while at < offset:
                records, following = self.fetch(place, at)
                collected.extend(one for one in records if one.offset < offset)
                if following == at:
                    break
                at = following
            if len(collected) == count or begin == first:
                return list(collected)
            span *= 4

    def search(self, place: Place, offset: int, wanted: bytes) -> Iterator[tuple[int, bool]]:
        """Searches keys, values and headers for a text, with one fetch per step.

        Yields (offset, True) for the first match, and then ends. After a fetch without a match,
        yields (offset, False): the search continues at this offset. Ends at the partition's end.
        """
        while True:
            records, following = self.fetch(place, offset)
            for record in records:
                parts = [record.key, record.value, *(value for _, value in record.headers)]
                if any(wanted in part for part in parts if part):
                    yield record.offset, True
                    return
            if following == offset:
                return
            offset = following
            yield offset, False
