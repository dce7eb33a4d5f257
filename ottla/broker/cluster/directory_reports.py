"""Tells the controller which replicas of this broker are in failed or full log directories
(AssignReplicasToDirs, KIP-858), and repairs damaged replicas.

A log directory is full from the first write that fails for lack of space until it has space again.
A replica in it is reported as if the directory had failed, if another in-sync replica can lead. A
partition's only copy is not reported: the broker attempts each write to it.

A damaged log accepts no writes. Its replica is reported as if its directory had failed, if another
in-sync replica can lead. Once the image shows that the replica neither leads nor is in sync, the
files with the damage are renamed. The replica is then reported as working again, and fetches the
records from its leader. A partition's only copy is not reported: it is served up to the damage. If
the other replicas leave the in-sync set while the report is on its way, the report is withdrawn.

Each report is the current difference between the image and the replicas; this module does not
remember what it has sent. So a report that was lost, or reached a controller whose term ended
before it decided, is sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from ottla.replication.controller.directories import LOST, UNASSIGNED, assign_replicas
from ottla.replication.controller.elections import NONE, available, trusted
from ottla.replication.metadata import NO_LEADER, MetadataImage, PartitionState
from ottla.wire.errors import ErrorCode, ProtocolError, StorageFailed
from ottla.wire.messages import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.broker.cluster.metadata_log import Metadata
    from ottla.broker.peers.envelopes import Forwarding
    from ottla.broker.peers.replica_fetchers import ReplicaFetchers
    from ottla.replication.replicas import Replicas

log = logging.getLogger("ottla.directories")

VERSION = 0
ATTEMPT_SECONDS = 5.0
AGAIN_SECONDS = 1.0
PARTITIONS_MAX = 2000
"""The most partitions that one request names."""

Key = tuple[str, int]


class DirectoryReports:
    """The reports of one broker. `broker_epoch` returns its epoch, or -1 while it has none."""

    def __init__(
        self, node_id: int, metadata: Metadata, replicas: Replicas, fetchers: ReplicaFetchers,
        forwarding: Forwarding, broker_epoch: Callable[[], int], loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.node_id, self.metadata, self.replicas = node_id, metadata, replicas
        self.fetchers, self.forwarding = fetchers, forwarding
        self.broker_epoch, self.loop = broker_epoch, loop
        self.marked: set[Key] = set()
        """Replicas of this broker that are offline according to the image."""
        self.task: asyncio.Task[None] | None = None
        self.closed = False

    def follow(self, old: MetadataImage, new: MetadataImage, topics: Collection[str]) -> None:
        """Note which replicas are offline in the new image, and report differences. Called once
        the replicas have followed the image."""
        node_id = self.node_id
        for name in topics:
            self.marked -= {(name, index) for index in range(len(_states(old, name)))}
            self.marked |= {
                (name, index) for index, state in enumerate(_states(new, name))
                if node_id in (state.extra or NONE).offline
            }
        self.look()

    def look(self) -> None:
        """Begin to send reports if any may be due. Called if a log directory has failed; if its
        space has changed; if a log is damaged, or could be opened after all; or if the image is
        new."""
        replicas = self.replicas
        some = replicas.offline or replicas.damaged or self.marked or replicas.full()
        if self.task is None and not self.closed and some:
            self.task = self.loop.create_task(self._send())

    async def settled(self) -> None:
        """Return once the image shows everything that there was to report."""
        self.look()
        while self.task is not None:
            await asyncio.wait([self.task])

    def close(self) -> None:
        """Send nothing more."""
        self.closed = True
        if self.task is not None:
            self.task.cancel()

    def _repair(self, key: Key) -> None:
        """Repair a damaged or unreadable log if, according to the image, another replica leads and
        this replica is not in sync."""
        replicas, image = self.replicas, self.metadata.image
        partition, states = replicas.partition(*key), _states(image, key[0])
        unreadable = key in replicas.unreadable
        if partition is None or key[1] >= len(states) or not (partition.damaged or unreadable):
            return
        state = states[key[1]]
        counts = self.node_id in state.isr or not partition.role.following
        if counts or partition.leader_id != state.leader or state.leader not in image.brokers:
            return
        try:
            if unreadable:
                replicas.replace_unreadable(key, image)
                return
            replicas.repair(partition)
        except StorageFailed as error:
            log.error("%r could not be repaired: %s", partition, error)
            return
        self.fetchers.repaired(partition)

    def _replaceable(self, key: Key) -> bool:
        """For a partition whose replica here accepts no writes: whether an in-sync replica with all
        committed records is on another broker that is not shutting down, so that it can lead."""
        image, states = self.metadata.image, _states(self.metadata.image, key[0])
        if key[1] >= len(states):
            return False
        state = states[key[1]]
        away = {self.node_id, *image.leaving}
        others = [node for node in state.isr if node not in away]
        return bool(trusted(state, available(image, state, others)))

    def _only(self, key: Key) -> bool:
        """Whether the partition has no leader, and this replica is in sync, but no other replica
        could lead."""
        states = _states(self.metadata.image, key[0])
        if key[1] >= len(states):
            return False
        leader, isr = states[key[1]].leader, states[key[1]].isr
        return leader == NO_LEADER and self.node_id in isr and not self._replaceable(key)

    async def _send(self) -> None:
        await asyncio.sleep(0)      # `follow` is called just before `metadata.image` is replaced
        try:
            while (request := self._next()) is not None:
                try:
                    answer = await self._ask(request)
                    refused = ErrorCode(answer.error_code)
                except (ProtocolError, TimeoutError) as error:
                    log.info("the state of log directories could not be reported to the controller;"
                             " trying again: %s", error)
                    refused = ErrorCode.REQUEST_TIMED_OUT
                if refused:
                    await asyncio.sleep(AGAIN_SECONDS)
                else:
                    # The image shows the outcome; a difference that remains is reported again.
                    await self._seen(request)
        except Exception:
            log.exception("reporting the state of log directories to the controller failed")
        finally:
            self.task = None

    async def _seen(self, request: AssignReplicasToDirsRequest) -> None:
        await self.forwarding.caught_up()
        if self._next() == request:
            await asyncio.sleep(AGAIN_SECONDS)

    def _next(self) -> AssignReplicasToDirsRequest | None:
        """Repair replicas as far as the image allows. Then return the next report, or None if there
        is nothing to report."""
        replicas = self.replicas
        for key in [k for k in (*replicas.damaged, *replicas.unreadable) if k in self.marked]:
            self._repair(key)
        return self._request()

    def _request(self) -> AssignReplicasToDirsRequest | None:
        """A request about the replicas whose state differs from the image; None if there are
        none."""
        image, replicas, epoch = self.metadata.image, self.replicas, self.broker_epoch()
        if epoch < 0:
            return None
        refusing = replicas.damaged.keys() | {(each.topic, each.index) for each in replicas.full()}
        replaceable = {key for key in refusing if self._replaceable(key)}
        lost = [
            key for key in sorted((replicas.offline | replaceable) - self.marked)
            if key[1] < len(_states(image, key[0]))
            and self.node_id in _states(image, key[0])[key[1]].replicas
        ]
        working = self.marked - replicas.offline
        reported = sorted((working - refusing) | {key for key in working if self._only(key)})
        if not lost and not reported:
            return None
        made = AssignReplicasToDirsRequest.Directory
        return AssignReplicasToDirsRequest(
            broker_id=self.node_id,
            broker_epoch=epoch,
            directories=[
                made(id=directory_id, topics=_by_topic(image, keys[:PARTITIONS_MAX]))
                for directory_id, keys in ((LOST, lost), (UNASSIGNED, reported)) if keys
            ],
        )

    async def _ask(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        for directory in request.directories:
            log.info(
                "reporting to the controller: %s %s writes",
                counted(
                    sum(len(topic.partitions) for topic in directory.topics),
                    "replica", "replicas",
                ),
                "cannot accept" if directory.id == LOST else "can again accept",
            )
        if self.forwarding.deciding():
            return await self.metadata.decide(assign_replicas, request)
        answer: AssignReplicasToDirsResponse = await self.forwarding.ask(
            request, VERSION, ATTEMPT_SECONDS
        )
        return answer


def _states(image: MetadataImage, name: str) -> tuple[PartitionState, ...]:
    topic = image.topics.get(name)
    return () if topic is None else topic.partitions


def _by_topic(
    image: MetadataImage, keys: Iterable[Key]
) -> list[AssignReplicasToDirsRequest.Directory.Topic]:
    made = AssignReplicasToDirsRequest.Directory.Topic
    topics: dict[str, list[AssignReplicasToDirsRequest.Directory.Topic.Partition]] = {}
    for name, index in keys:
        topics.setdefault(name, []).append(made.Partition(partition_index=index))
    return [
        made(topic_id=image.topics[name].topic_id, partitions=partitions)
        for name, partitions in topics.items() if name in image.topics
    ]
