"""Turns a standalone broker's metadata into the first snapshot of a cluster, at entry 1.

Entry 1 has no records; it exists because the next entry needs a predecessor. One transaction makes
the snapshot valid and creates the entry and `/cluster/id`. So the root, which is the chroot of
zookeeper.connect, has either no cluster or a complete one.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from ottla.replication.cluster_store import (
    CLUSTER_ID,
    CONTROLLER_EPOCH,
    KAFKAS_TOPICS,
    LOG,
    NEWEST,
    ClusterRefused,
    ClusterStore,
    cluster_id_text,
    entry_path,
    id_of_cluster,
)
from ottla.replication.controller.elections import MIN_ISR
from ottla.replication.coordination import Check, Create, NoNode, Set
from ottla.replication.entries import FORMAT, EntryHeader, encode_entry
from ottla.replication.metadata import (
    NO_LEADER,
    BrokerImage,
    MetadataImage,
    PartitionState,
    TopicImage,
)

FIRST = 1
NO_RUN = 0
"""Stands for the broker epoch of the standalone broker's last run, which was not registered in
ZooKeeper. Every registration has a higher epoch."""


class Root(Enum):
    """What `ottla cluster create` finds in ZooKeeper at the path of zookeeper.connect."""

    EMPTY = "empty"
    TAKEN_OVER = "taken over"
    """The metadata of this broker's cluster: an earlier run of the command has written them."""


def as_first_member(
    image: MetadataImage, broker: BrokerImage, min_isr: str
) -> MetadataImage:
    """Convert a standalone broker's image to the image of a cluster whose only broker is stopped.

    `broker` is the standalone broker with its log directories; `min_isr` is its
    min.insync.replicas, which becomes the value for the whole cluster. Raises ValueError if a
    partition has a replica on another broker.
    """
    node_id = broker.node_id
    topics = {
        topic.name: TopicImage(topic.name, topic.topic_id, tuple(
            _without_leader(image, topic, index, node_id) for index in range(len(topic.partitions))
        ))
        for topic in image.topics.values()
    }
    configs = {resource: dict(settings) for resource, settings in image.configs.items()}
    configs.setdefault(("broker", ""), {})[MIN_ISR] = min_isr
    own = configs.get(("broker", str(node_id)), {})
    own.pop(MIN_ISR, None)          # clusters have no broker-level min.insync.replicas (KIP-966)
    return replace(
        image, entry=FIRST, controller_id=-1, controller_epoch=0, leaving=frozenset(), brokers={},
        former={node_id: broker}, company={}, topics=topics, raised=0,
        configs={resource: settings for resource, settings in configs.items() if settings},
    )


def _without_leader(
    image: MetadataImage, topic: TopicImage, index: int, node_id: int
) -> PartitionState:
    """The state of a partition whose only replica is stopped: the replica is in sync, and leads
    once its broker is back."""
    state = topic.partitions[index]
    if state.replicas != (node_id,):
        raise ValueError(
            f"{topic.name}-{index} has the replicas {list(state.replicas)} instead of only broker"
            f" {node_id}"
        )
    # In a cluster, a partition's state has the whole leader epoch: `MetadataImage.raised` is
    # always 0. The partition gets a new epoch, as after every stop.
    epoch = image.leader_epoch(topic, state) + 1
    return PartitionState(NO_LEADER, epoch, state.replicas, state.replicas,
                          state.partition_epoch + 1)


class FirstSnapshot:
    """Writes a cluster's first snapshot: `look`, `prepare`, `commit`, in this order."""

    def __init__(self, store: ClusterStore, cluster_id: str) -> None:
        self.store, self.coordination, self.cluster_id = store, store.coordination, cluster_id

    async def look(self) -> Root:
        """Return what the root contains, without changing it. Raises ClusterRefused if the root
        belongs to another cluster or system."""
        await self.coordination.sync()
        if await self.coordination.exists(KAFKAS_TOPICS) is not None:
            raise ClusterRefused(
                "ZooKeeper's path (chroot) contains /brokers/topics, so Apache Kafka uses it")
        try:
            data, _ = await self.coordination.get(CLUSTER_ID)
        except NoNode:
            if await self.coordination.exists(NEWEST) is not None or await self._has_entries():
                raise ClusterRefused(
                    f"ZooKeeper's path (chroot) has metadata but no {CLUSTER_ID}: its nodes were"
                    " changed by hand"
                ) from None
            return Root.EMPTY
        existing_id = id_of_cluster(data)
        if existing_id != self.cluster_id:
            raise ClusterRefused(
                f"the path (chroot) already belongs to cluster {existing_id}")
        return Root.TAKEN_OVER

    async def _has_entries(self) -> bool:
        try:
            return bool(await self.coordination.children(LOG))
        except NoNode:
            return False

    async def prepare(self, image: MetadataImage) -> None:
        """Write the snapshot, which no broker reads before `commit`. Raises CoordinationError."""
        await self.store.prepare()
        # Change the version of /controller_epoch, as an election does. From now on, ZooKeeper
        # refuses writes that check the former version. They may come from a controller that was
        # elected in this root, from another process that has called `prepare`, or from an earlier
        # attempt whose commit is still in flight.
        data, stat = await self.coordination.get(CONTROLLER_EPOCH)
        await self.coordination.multi([Set(CONTROLLER_EPOCH, data, stat.version)])
        self.fence = Check(CONTROLLER_EPOCH, stat.version + 1)
        self.newest = await self.store.write_pieces(image, 0, self.fence)
        self.entry = encode_entry(EntryHeader(FORMAT, -1, 0, "", image.offset, 0), ())

    async def commit(self) -> None:
        """Make the snapshot valid. Raises CoordinationRefused if ZooKeeper refuses: the snapshot is
        then not valid. After ConnectionLost, call `look` to learn whether it is."""
        await self.coordination.multi([
            self.fence,
            Create(entry_path(FIRST), self.entry),
            Create(NEWEST, self.newest),
            Create(CLUSTER_ID, cluster_id_text(self.cluster_id)),
        ])
