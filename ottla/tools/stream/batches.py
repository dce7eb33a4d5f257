"""Sends and fetches batches with Ottla's own code: for measurements, for `topic browse`, and for
records with timestamp 0, which librdkafka cannot send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.client.errors import ClientError, check
from ottla.tools.admin.topics import leader
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import FetchRequest, InitProducerIdRequest, ProduceRequest
from ottla.wire.records import Record, build_batch

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.admin.offsets import Place

Headers = Sequence[tuple[str, bytes | None]]
PRODUCE_MAX, FETCH_MAX = 12, 12
"""The newest versions of Produce and Fetch that have topic names instead of topic ids."""

REPLICATION = {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}
"""Errors that mean too few in-sync replicas. After such an error, the batch is sent again."""


def produce_request(
    topic: str,
    partition: int,
    batch: bytes,
    *,
    acks: int = -1,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> Any:
    """A Produce request with one batch."""
    data = ProduceRequest.TopicData
    part = data.PartitionData(index=partition, records=batch)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[data(name=topic, partition_data=[part])],
    )


def check_produced(response: Any) -> int:
    """The base offset of the request's only batch. Raises Refused if the batch was rejected."""
    [topic] = response.responses
    [part] = topic.partition_responses
    check(part.error_code, part.error_message, f"{topic.name}-{part.index}")
    return int(part.base_offset)


def fetch_request(
    topic: str,
    offsets: Sequence[tuple[int, int]],
    *,
    partition_bytes: int = 1 << 20,
    wait_ms: int = 500,
    min_bytes: int = 1,
    committed: bool = False,
) -> Any:
    """A Fetch request for partitions and their offsets, without a fetch session."""
    kind = FetchRequest.Topic
    parts = [
        kind.Partition(partition=index, fetch_offset=offset, partition_max_bytes=partition_bytes)
        for index, offset in offsets
    ]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=64 << 20,
        isolation_level=1 if committed else 0,
        session_epoch=-1,
        topics=[kind(topic=topic, partitions=parts)],
    )


class SingleSender:
    """Sends records one by one, each in its own batch, exactly once. If an answer is lost, the
    batch is sent again, and the broker recognizes it by its sequence number."""

    def __init__(self, cluster: ClusterClient) -> None:
        self.cluster = cluster
        self._producer: tuple[int, int] | None = None
        self._sequences: Counter[Place] = Counter()

    def send(self, topic: str, record: Record, partition: int | None) -> int:
        """Send one record; returns its offset once every in-sync replica has it."""
        place = (topic, partition or 0)
        if self._producer is None:
            self._producer = self.cluster.with_retries(self._new_producer, again=True)
            self._sequences.clear()
        producer_id, epoch = self._producer
        batch = build_batch(
            [record], producer_id=producer_id, producer_epoch=epoch,
            base_sequence=self._sequences[place],
        )
        request = produce_request(*place, batch)

        def ask() -> int:
            node = self.cluster.node(leader(self.cluster, place))
            return check_produced(node.call(request, at_most=PRODUCE_MAX))

        try:
            offset = int(self.cluster.with_retries(ask, REPLICATION, again=True))
        except ClientError:
            self._producer = None       # its next sequence is unknown
            raise
        self._sequences[place] = (self._sequences[place] + 1) & 0x7FFFFFFF
        return offset

    def _new_producer(self) -> tuple[int, int]:
        answer = self.cluster.any().call(InitProducerIdRequest(transactional_id=None))
        check(answer.error_code, what="a producer id")
        return answer.producer_id, answer.producer_epoch
