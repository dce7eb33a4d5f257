"""A leader's part in changes of in-sync sets: which followers lag, which may join, and the request
to the controller.

There is one request at a time, with at most PARTITIONS_MAX proposals. The image shows the outcome:
a proposal ends when its partition has a newer partition epoch, or when the controller has certainly
refused it. Until then it is sent again, unchanged. A lost answer does no harm: until the proposal
ends, the leader counts both joining and leaving replicas as in sync.

A leader whose log has failed or is damaged removes no follower from the in-sync set. The followers
lag only because they cannot read from this leader. One of them is to become the next leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ottla.broker.cluster.continuity import lasting
from ottla.broker.threads.slices import Slices
from ottla.replication.controller.isr import alter_partitions
from ottla.replication.metadata import MetadataImage
from ottla.replication.partition import Partition
from ottla.wire.errors import ErrorCode, ProtocolError, name_of
from ottla.wire.marks import reached
from ottla.wire.messages import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from ottla.broker.cluster.metadata_log import Metadata
    from ottla.broker.peers.envelopes import Forwarding
    from ottla.broker.peers.replica_fetchers import ReplicaFetchers
    from ottla.broker.threads.flusher import Flusher
    from ottla.replication.replicas import Replicas

log = logging.getLogger("ottla.isr")

VERSION = 3
AGAIN_SECONDS = 1.0
ATTEMPT_SECONDS = 5.0
PARTITIONS_MAX = 2000
"""The most partitions that one request names: the decision has to fit into one entry of the
metadata log."""
AWAITED = frozenset({
    ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.UNKNOWN_TOPIC_ID,
})
"""Errors after which a proposal is not sent again. Either the topic was deleted, or the image has,
or will get, a newer epoch of the partition. An earlier attempt may have succeeded."""

Row = tuple[Partition, AlterPartitionRequest.Topic.Partition]


class IsrChanges:
    """The ClusterSide of one broker's partitions (`replication/cluster_side`).

    `broker_epoch` returns this process's epoch, or -1 while it has none. `removal_asked` is called
    with a partition and the followers that this broker asks the controller to remove."""

    def __init__(
        self, node_id: int, lag_ms: int, metadata: Metadata, flusher: Flusher,
        forwarding: Forwarding, fetchers: ReplicaFetchers, broker_epoch: Callable[[], int],
        removal_asked: Callable[[Partition, Collection[int]], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.node_id, self.lag_ms, self.metadata, self.loop = node_id, lag_ms, metadata, loop
        self.flusher, self.forwarding, self.fetchers = flusher, forwarding, fetchers
        self.broker_epoch, self.removal_asked = broker_epoch, removal_asked
        self.image = MetadataImage.empty()
        self.due: dict[Partition, None] = {}
        self.task: asyncio.Task[None] | None = None
        self.sweeping: asyncio.Task[None] | None = None

    def start(self, replicas: Replicas, check: Callable[[Partition, int], None]) -> None:
        """Begin to check for lagging followers, once the partitions exist. `check` checks a segment
        that a follower cannot read."""
        self.replicas, self.check = replicas, check
        self.sweeping = self.loop.create_task(lasting(self._sweep))
        if self.due:
            self._send_soon()

    def close(self) -> None:
        """Stop sending requests."""
        for task in (self.task, self.sweeping):
            if task is not None:
                task.cancel()

    # Called by partitions

    def follow(self, image: MetadataImage) -> None:
        """Use this image for all later calls."""
        self.image = image

    def broker_epoch_of(self, node_id: int) -> int:
        """A broker's registered epoch; -1 if it is not registered, or is shutting down."""
        broker = self.image.brokers.get(node_id)
        return -1 if broker is None or node_id in self.image.leaving else broker.epoch

    def isr_due(self, partition: Partition) -> None:
        """A follower of a partition may join the in-sync set."""
        self.due[partition] = None
        if self.sweeping is not None:
            self._send_soon()

    def flush(self, partition: Partition) -> None:
        """Flush a partition: acknowledgements, or a follower's next fetch, wait for the flush."""
        self.flusher.want(partition)

    def synced(self, partition: Partition) -> None:
        """A flush of a followed partition has ended."""
        self.fetchers.synced(partition)

    def start_moved(self, partition: Partition) -> None:
        """Retention has moved the log start of a followed partition."""
        self.fetchers.start_moved(partition)

    def keep_start(self, partition: Partition) -> None:
        """A leader has moved a log start. This replica's log start has to be in a checkpoint before
        this broker reports it to the leader."""
        self.fetchers.keep_start(partition)

    def doubted(self, partition: Partition, offset: int) -> None:
        """A follower has asked for records at the same offset for several seconds: check them."""
        self.check(partition, offset)

    # Requests to the controller

    async def _sweep(self) -> None:
        """Check for followers that do not keep up, twice in each replica.lag.time.max.ms."""
        while True:
            await asyncio.sleep(max(0.05, self.lag_ms / 2000))
            slices = Slices()
            for partition in self.replicas:
                if partition.role.replicated and partition.led_here:
                    self.due[partition] = None
                if partition.damaged:               # a read of the log has found damage
                    self.replicas.note_damage(partition)
                if slices.over:
                    await slices.pause()
            if self.due:
                self._send_soon()

    def _send_soon(self) -> None:
        if self.task is None:
            self.task = self.loop.create_task(self._send())

    async def _send(self) -> None:
        await asyncio.sleep(0)              # collects the proposals of this turn
        try:
            while self.due and (rows := self._gather()):
                await self._settle(rows)
        except Exception:
            log.exception("in-sync sets could not be changed because of an internal error")
        finally:
            self.task = None

    def _gather(self) -> list[Row]:
        """Return at most PARTITIONS_MAX of the proposals that are due. While this broker is not
        registered, return none."""
        epoch = self.broker_epoch()
        due, self.due = list(self.due), {}
        rows: list[Row] = []
        if epoch < 0:
            return rows
        made = AlterPartitionRequest.Topic.Partition
        for at, partition in enumerate(due):
            if len(rows) == PARTITIONS_MAX:
                self.due = dict.fromkeys(due[at:])
                break
            isr = partition.propose_isr(self.node_id, epoch) if partition.log.readable else None
            if isr is None:
                continue
            if partition.log.offline is not None and {*partition.isr} - {node for node, _ in isr}:
                reached("a leader with a failed log removes no follower")
                partition.proposal_failed()
                continue
            if leaving := {*partition.isr} - {node for node, _ in isr}:
                self.removal_asked(partition, leaving)
            log.info("%r: the in-sync set is %s; asking the controller to change it to %s",
                     partition, list(partition.isr), [node for node, _ in isr])
            rows.append((partition, made(
                partition_index=partition.index,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                new_isr_with_epochs=[
                    made.NewIsrWithEpoch(broker_id=node, broker_epoch=of) for node, of in isr
                ],
            )))
        return rows

    async def _settle(self, rows: list[Row]) -> None:
        """Repeat the request until each proposal is answered, its partition has a newer epoch in
        the image, or its log has failed."""
        while rows:
            try:
                answer = await self._ask(self._request(rows))
            except (ProtocolError, TimeoutError) as error:
                reached("the controller did not answer about an in-sync set")
                log.info("the controller did not answer a request to change in-sync sets; asking"
                         " again: %s", error)
            else:
                if answer.error_code == 0:
                    rows = self._after(rows, answer)
                else:
                    log.info("the controller refused a request to change in-sync sets: %s",
                             name_of(answer.error_code))
            rows = [row for row in rows if _is_open(*row) and row[0].log.readable]
            if rows:
                await asyncio.sleep(AGAIN_SECONDS)

    def _request(self, rows: list[Row]) -> AlterPartitionRequest:
        made = AlterPartitionRequest.Topic
        topics: dict[bytes, list[AlterPartitionRequest.Topic.Partition]] = {}
        for partition, row in rows:
            topics.setdefault(partition.topic_id, []).append(row)
        return AlterPartitionRequest(
            broker_id=self.node_id,
            broker_epoch=self.broker_epoch(),
            topics=[made(topic_id=key, partitions=of) for key, of in topics.items()],
        )

    async def _ask(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        if self.forwarding.deciding():
            return await self.metadata.decide(alter_partitions, request)
        answer: AlterPartitionResponse = await self.forwarding.ask(
            request, VERSION, ATTEMPT_SECONDS
        )
        return answer

    def _after(self, rows: list[Row], answer: AlterPartitionResponse) -> list[Row]:
        """Process the answers; returns the proposals to send again."""
        again = []
        answers = {
            (topic.topic_id, each.partition_index): each
            for topic in answer.topics
            for each in topic.partitions
        }
        for partition, row in rows:
            each = answers.get((partition.topic_id, partition.index))
            code = ErrorCode.UNKNOWN_SERVER_ERROR if each is None else each.error_code
            if code == ErrorCode.NOT_CONTROLLER:
                reached("a proposed in-sync set met an older controller")
                again.append((partition, row))
            elif code in AWAITED or not _is_open(partition, row):
                reached("a proposed in-sync set was overtaken")
            elif code != 0 or (each and each.partition_epoch <= row.partition_epoch):
                partition.proposal_failed()
                reached("a proposed in-sync set was refused")
                log.info("%r: the in-sync set is not changed: %s", partition, name_of(code))
                self.loop.call_later(AGAIN_SECONDS, self.isr_due, partition)
        return again


def _is_open(partition: Partition, row: AlterPartitionRequest.Topic.Partition) -> bool:
    """Whether a proposal is still the partition's current one."""
    return (
        partition.role.proposed is not None
        and partition.partition_epoch == row.partition_epoch
        and partition.leader_epoch == row.leader_epoch
    )
