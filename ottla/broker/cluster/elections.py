"""Elections for which the controller asks replicas how long their logs are.

These elections are rare. One kind follows a machine failure that makes it uncertain which replica
has all committed records. It is held once every replica that may have them is back. The other kind
is held when a topic allows leaders that are not in sync. The controller asks a replica with
ListOffsets under replica id -2. A replica that does not answer in time does not take part, and the
controller tries again later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from ottla.broker.cluster.cluster_log import ClusterLog
from ottla.broker.cluster.metadata_log import NotController
from ottla.broker.peers.peers import Peers, PeerUnavailable
from ottla.replication.controller.elections import LogEnd, leaderless
from ottla.replication.controller.partitions import elect_longest
from ottla.replication.metadata import MetadataImage
from ottla.replication.replicas import Replicas
from ottla.wire.errors import StorageFailed
from ottla.wire.messages import ListOffsetsRequest, ListOffsetsResponse
from ottla.wire.wording import counted

log = logging.getLogger("ottla.controller")

ASK_SECONDS = 2.0
ASKED_AT_ONCE = 1000
LOOK_SECONDS = 1.0
UNCLEAN_WAIT_SECONDS = 5.0
"""How long a partition that allows unclean leaders waits for its in-sync replicas before one of the
other replicas is elected."""
VERSION = 9
ANY_REPLICA, LATEST = -2, -1

Key = tuple[str, int]
Ends = dict[Key, dict[int, LogEnd]]


class LogEnds:
    """Asks replicas of partitions, here and on other brokers, for the ends of their logs."""

    def __init__(self, peers: Peers, replicas: Replicas, node_id: int) -> None:
        self.peers, self.replicas, self.node_id = peers, replicas, node_id

    async def ask(self, image: MetadataImage, wanted: Mapping[Key, tuple[int, ...]]) -> Ends:
        """Ask the replicas in `wanted` (node ids by partition). Returns the reports that arrive
        within ASK_SECONDS."""
        by_node: dict[int, list[Key]] = {}
        for key, nodes in wanted.items():
            for node in nodes:
                by_node.setdefault(node, []).append(key)
        ends: Ends = {key: {} for key in wanted}
        await asyncio.gather(*(self._ask(image, *each, ends) for each in by_node.items()))
        return ends

    async def _ask(self, image: MetadataImage, node: int, keys: list[Key], ends: Ends) -> None:
        broker = image.brokers.get(node)
        if broker is None:
            return
        if node == self.node_id:
            for key in keys:
                partition = self.replicas.partition(*key)
                if partition is not None and partition.log.readable:
                    with suppress(StorageFailed):       # the disk refuses to read the log's files
                        ends[key][node] = LogEnd(broker.epoch, *partition.own_end())
            return
        for at in range(0, len(keys), ASKED_AT_ONCE):
            try:
                answer: ListOffsetsResponse = await self.peers.ask(
                    node, _request(keys[at : at + ASKED_AT_ONCE]), VERSION, ASK_SECONDS
                )
            except PeerUnavailable as error:
                log.info("broker %d did not report the ends of its logs for an election: %s",
                         node, error)
                return
            for topic in answer.topics:
                for each in topic.partitions:
                    key = topic.name, each.partition_index
                    if each.error_code == 0 and key in ends:
                        ends[key][node] = LogEnd(broker.epoch, each.leader_epoch, each.offset)


def _request(keys: list[Key]) -> ListOffsetsRequest:
    made = ListOffsetsRequest.Topic
    topics: dict[str, list[ListOffsetsRequest.Topic.Partition]] = {}
    for name, index in keys:
        topics.setdefault(name, []).append(
            made.Partition(partition_index=index, current_leader_epoch=-1, timestamp=LATEST)
        )
    return ListOffsetsRequest(
        replica_id=ANY_REPLICA, isolation_level=0, timeout_ms=int(ASK_SECONDS * 1000),
        topics=[made(name=name, partitions=rows) for name, rows in topics.items()],
    )


class Elections:
    """The controller's elections. `unclean` is the value of unclean.leader.election.enable for
    topics that do not set it."""

    def __init__(
        self,
        metadata: ClusterLog,
        log_ends: LogEnds,
        unclean: bool,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.metadata, self.log_ends, self.unclean, self.loop = metadata, log_ends, unclean, loop
        self.since: dict[Key, float] = {}
        """When each partition that allows an unclean leader was first seen without a leader."""

    async def run(self) -> None:
        """Elect leaders while this broker is the controller: after each change of the image, and
        while partitions still wait for an election."""
        seen: MetadataImage | None = None
        self.since.clear()
        with suppress(NotController):
            while True:
                image = self.metadata.decided
                if seen is None or self.since or not _same(seen, image):
                    seen = None if await self._look(image) else image
                await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, image: MetadataImage) -> bool:
        """Hold the elections that are due; returns whether some partition still waits for its
        election."""
        now = self.loop.time()
        partitions = list(leaderless(image, self.unclean))
        waiting = {(topic, index) for topic, index, _, unclean in partitions if unclean}
        self.since = {key: self.since.get(key, now) for key in waiting}
        due = {
            (topic, index): (nodes, unclean) for topic, index, nodes, unclean in partitions
            if not unclean or now - self.since[topic, index] >= UNCLEAN_WAIT_SECONDS
        }
        if not due:
            return bool(partitions)
        ends = await self.log_ends.ask(image, {key: nodes for key, (nodes, _) in due.items()})
        asked = [(*key, ends[key], unclean) for key, (_, unclean) in due.items()]
        elected = 0
        for at in range(0, len(asked), ASKED_AT_ONCE):
            some = asked[at : at + ASKED_AT_ONCE]
            elected += await self.metadata.decide(elect_longest, some, image)
        log.warning(
            "%s had no replica that surely has all committed records; %d of these partitions are"
            " now led by the replica with the longest log, and may lack committed records",
            counted(len(due), "partition"), elected,
        )
        return elected < len(partitions)


def _same(one: MetadataImage, other: MetadataImage) -> bool:
    """Whether everything on which elections depend is unchanged."""
    return (
        one.topics is other.topics and one.brokers is other.brokers
        and one.configs is other.configs and one.leaving == other.leaving
        and one.adopting == other.adopting
    )
