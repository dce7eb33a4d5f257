"""Creates many partitions, writes to all of them, and reads all of them with one client.

The requests are raw requests, in versions that both Ottla and Apache Kafka serve.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.raw_client import RawClient
from ottla.wire.batch import batches
from ottla.wire.messages import CreateTopicsRequest, FetchRequest, ProduceRequest
from ottla.wire.records import Record, build_batch

CREATE, PRODUCE, FETCH = 5, 9, 12
NAMED = "t%05d"


class Layout(NamedTuple):
    """Topics `t00000`, `t00001` and so on, with the same number of partitions each."""

    topics: int
    partitions: int

    @property
    def total(self) -> int:
        """The number of all partitions."""
        return self.topics * self.partitions

    def names(self) -> list[str]:
        """The names of the topics."""
        return [NAMED % number for number in range(self.topics)]

    def groups(self, size: int) -> Iterator[dict[str, list[int]]]:
        """All partitions, in groups of `size`. A group has the partitions' indexes by topic."""
        group: dict[str, list[int]] = {}
        count = 0
        for name in self.names():
            for index in range(self.partitions):
                group.setdefault(name, []).append(index)
                count += 1
                if count % size == 0:
                    yield group
                    group = {}
        if group:
            yield group


def create(client: RawClient, layout: Layout, partitions_per_request: int = 10_000) -> float:
    """Create the topics; returns the seconds that it took."""
    began = time.monotonic()
    per_request = max(1, partitions_per_request // layout.partitions)
    names = layout.names()
    for first in range(0, len(names), per_request):
        topics = [
            CreateTopicsRequest.Topic(
                name=name, num_partitions=layout.partitions, replication_factor=1,
                assignments=[], configs=[],
            )
            for name in names[first : first + per_request]
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=120_000, validate_only=False)
        for answer in client.ask(request, CREATE).topics:
            if answer.error_code:
                raise RuntimeError(f"{answer.name}: {answer.error_code} {answer.error_message}")
    return time.monotonic() - began


def produce_to_all(
    client: RawClient, layout: Layout, acks: int, partitions_per_request: int = 500
) -> float:
    """Write one record to every partition; returns the seconds that it took."""
    batch = build_batch([Record(timestamp=int(time.time() * 1000), key=b"k", value=bytes(100))])
    began = time.monotonic()
    for group in layout.groups(partitions_per_request):
        made = ProduceRequest.TopicData
        topics = [
            made(
                name=name,
                partition_data=[made.PartitionData(index=i, records=batch) for i in indexes],
            )
            for name, indexes in group.items()
        ]
        request = ProduceRequest(acks=acks, timeout_ms=120_000, topic_data=topics)
        for topic in client.ask(request, PRODUCE).responses:
            for answer in topic.partition_responses:
                if answer.error_code:
                    raise RuntimeError(f"{topic.name}-{answer.index}: {answer.error_code}")
    return time.monotonic() - began


def read_all(client: RawClient, layout: Layout) -> tuple[int, float]:
    """Read every partition from its beginning in one fetch session; returns records and seconds."""
    made = FetchRequest.Topic
    topics = [
        made(
            topic=name,
            partitions=[
                made.Partition(partition=i, fetch_offset=0, partition_max_bytes=1 << 20)
                for i in range(layout.partitions)
            ],
        )
        for name in layout.names()
    ]
    began, got, empty = time.monotonic(), 0, 0
    session_id, epoch = 0, 0
    while got < layout.total and empty < 10:
        request = FetchRequest(
            replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, session_id=session_id,
            session_epoch=epoch, topics=topics, forgotten_topics_data=[], rack_id="",
        )
        answer = client.ask(request, FETCH)
        if answer.error_code:
            raise RuntimeError(f"fetch: {answer.error_code}")
        session_id, epoch, topics = answer.session_id, epoch + 1, []
        before = got
        for topic in answer.responses:
            moved = []
            for partition in topic.partitions:
                if partition.error_code:
                    raise RuntimeError(f"{topic.topic}: {partition.error_code}")
                offset = None
                for batch in batches(partition.records or b""):
                    got += batch.record_count
                    offset = batch.next_offset
                if offset is not None:
                    moved.append(
                        made.Partition(
                            partition=partition.partition_index, fetch_offset=offset,
                            partition_max_bytes=1 << 20,
                        )
                    )
            if moved:
                topics.append(made(topic=topic.topic, partitions=moved))
        empty = empty + 1 if got == before else 0
    return got, time.monotonic() - began


def open_files(pid: int) -> int:
    """The number of open file descriptors of a process."""
    return len(os.listdir(f"/proc/{pid}/fd"))
