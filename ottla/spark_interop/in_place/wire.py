"""Fetches committed batches from the brokers, for offsets of a partition that are in no file.

The batches stay unchanged, so the same code converts batches from brokers and files to columns.
Aborted transactions are skipped as consumers skip them. A fetch response has the producer id and
the first offset of each aborted transaction; batches of the producer from this offset to its next
marker are skipped.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from functools import partial

from ottla.client.cluster import ClusterClient
from ottla.client.errors import check
from ottla.spark_interop.errors import DataLost, PipelineError
from ottla.spark_interop.in_place.segments import batches_in
from ottla.wire.batch import BatchHeader
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import FetchRequest, FetchResponse

FETCH_BYTES = 8 << 20
FETCH_MS = 500
NAMED_BY_TOPIC = 12
"""The newest version of Fetch that has topic names instead of topic ids."""
READ_COMMITTED = 1
QUIET_SECONDS = 60
"""How long a partition may return nothing although there are more records."""

Answer = FetchResponse.Response.Partition


def committed_batches(
    bootstrap: str, topic: str, partition: int, start: int, end: int
) -> Iterator[memoryview]:
    """The batches with offsets from `start` to `end`, except control and aborted batches.

    Raises SegmentGone if a batch has a format before v2, DataLost if `start` no longer exists,
    PipelineError if no records come for QUIET_SECONDS.
    """
    aborted: set[int] = set()
    deadline = time.monotonic() + QUIET_SECONDS
    with ClusterClient(bootstrap, client_id="ottla-in-place") as cluster:
        while start < end:
            ask = partial(_fetch, cluster, topic, partition, start)
            answer = cluster.with_retries(ask, again=True)
            begun = [(t.first_offset, t.producer_id) for t in answer.aborted_transactions or ()]
            heapq.heapify(begun)
            before = start
            where = f"{topic}-{partition}"
            fetched = memoryview(answer.records or b"")
            for batch, _ in batches_in(fetched, f"{where}, fetch from offset {before}"):
                header = BatchHeader(batch)
                start = max(start, header.next_offset)
                while begun and begun[0][0] <= header.base_offset:
                    aborted.add(heapq.heappop(begun)[1])
                if header.control:
                    aborted.discard(header.producer_id)
                elif not (header.transactional and header.producer_id in aborted):
                    yield batch
                if start >= end:
                    return
            if start > before:
                deadline = time.monotonic() + QUIET_SECONDS
            elif answer.last_stable_offset >= end:
                return                      # compaction removed the rest
            elif time.monotonic() > deadline:
                raise PipelineError(
                    f"{where}: no record at or after offset {start} was received within"
                    f" {QUIET_SECONDS} s"
                )


def _fetch(cluster: ClusterClient, topic: str, partition: int, offset: int) -> Answer:
    """The answer of one Fetch for the partition. Raises DataLost if the offset no longer exists,
    Refused for other error codes."""
    described = cluster.metadata([topic]).topics[0]
    check(described.error_code, what=topic)
    leaders = {each.partition_index: each.leader_id for each in described.partitions}
    if leaders.get(partition, -1) < 0:
        check(ErrorCode.LEADER_NOT_AVAILABLE, what=f"{topic}-{partition}")
    wanted = FetchRequest.Topic.Partition(
        partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES,
        current_leader_epoch=-1, last_fetched_epoch=-1, log_start_offset=-1,
    )
    request = FetchRequest(
        replica_id=-1, max_wait_ms=FETCH_MS, min_bytes=1, max_bytes=FETCH_BYTES,
        isolation_level=READ_COMMITTED, session_id=0, session_epoch=-1, rack_id="",
        topics=[FetchRequest.Topic(topic=topic, partitions=[wanted])], forgotten_topics_data=[],
    )
    response = cluster.node(leaders[partition]).call(request, at_most=NAMED_BY_TOPIC)
    check(response.error_code, what=topic)
    answer: Answer = response.responses[0].partitions[0]
    if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise DataLost(f"{topic}-{partition}: offset {offset} no longer exists")
    check(answer.error_code, what=f"{topic}-{partition}")
    return answer
