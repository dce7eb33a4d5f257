"""What a power cut or a lost disk may lose, according to ZooKeeper and to the data on the disks.

A copy is *good* if all of this is true: its broker is in the in-sync set or eligible to lead
(KIP-966), its replica is neither doubtful nor lost, and its machine has kept its power and its
disk. While a partition has a good copy, none of its committed records may be lost. If it has none,
two kinds of records must still remain. The first kind: all records of one log, the longest among
the in-sync replicas whose machines stopped last. The second kind: records that were acknowledged
while a single replica was in the in-sync set, because that replica had flushed them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.log.storage.move_record import MOVE_RECORD, decode
from ottla.replication import cluster_store
from ottla.replication.cluster_store import apply_entries, entry_path
from ottla.replication.metadata import MetadataImage, PartitionExtra, PartitionState
from ottla.wire.batch import BatchView
from ottla.wire.errors import CorruptMessage
from tests.simulation.disk import SimDisk
from tests.simulation.zookeeper import ZooKeeperServer

if TYPE_CHECKING:
    from tests.simulation.cluster.clients import Part
    from tests.simulation.cluster.world import ClusterMachine, ClusterWorld

BATCH_HEADER = 61
IDENTITY = "partition.metadata"
NOTHING = PartitionExtra()
WHOLE_ID = re.compile(rb"^topic_id: [\w-]{22}$", re.MULTILINE)
"""A complete line with a topic id in partition.metadata. After a power cut the file may be
incomplete."""


class Truth:
    """The metadata in ZooKeeper, including entries that no broker has read yet. Each entry is read
    when it is written, because a snapshot may replace it later."""

    def __init__(self, zookeeper: ZooKeeperServer) -> None:
        self.zookeeper, self.image = zookeeper, MetadataImage.empty()
        self.history: dict[int, MetadataImage] = {}
        """By the number of an entry, the image after this entry."""
        self.on_record: Callable[[MetadataImage, MetadataImage], None] = lambda old, new: None
        zookeeper.on_change = self.now

    def restored(self, image: MetadataImage) -> None:
        """Note that ZooKeeper was restored from a backup with this image. Later entries are
        forgotten, because new entries replace them."""
        self.image = image
        self.history = {entry: each for entry, each in self.history.items() if entry <= image.entry}

    def now(self) -> MetadataImage:
        """The image after the newest entry."""
        while True:
            number = self.image.entry + 1
            node = self.zookeeper.nodes.get(entry_path(number))
            if node is None:
                return self.image
            entry = cluster_store.decode_entry(number, node.stat.czxid, node.data)
            before, self.image = self.image, apply_entries(self.image, [entry])
            self.history[number] = self.image
            if before.topics is not self.image.topics:
                for record in entry.records:        # an entry may have several decisions
                    after = before.apply([record])
                    self.on_record(before, after)
                    before = after

    def states(self) -> Iterator[tuple[str, int, PartitionState]]:
        """The topic's name, the index and the state of every partition."""
        for topic in self.now().topics.values():
            for index, state in enumerate(topic.partitions):
                yield topic.name, index, state

    def epoch(self, topic: str, index: int) -> int:
        """The leader epoch of a partition."""
        image = self.now()
        found = image.topics[topic]
        return image.leader_epoch(found, found.partitions[index])

    def alone(self, part: Part) -> tuple[int, int] | None:
        """The node id of the only in-sync replica and the partition's epoch; None if there are
        several in-sync replicas."""
        topic = self.now().topics.get(part.topic)
        if topic is None:
            return None
        state = topic.partitions[part.index]
        return (state.isr[0], state.partition_epoch) if len(state.isr) == 1 else None


def has_good_copy(state: PartitionState, dark: set[int]) -> bool:
    """Whether a partition has a good copy. `dark` are the brokers whose copies may lack committed
    records."""
    extra = state.extra or NOTHING
    return bool({*state.isr, *extra.elr} - dark - {*extra.doubtful, *extra.lost})


def remains(
    world: ClusterWorld, topic: str, index: int, state: PartitionState
) -> dict[int, bytes]:
    """The records, by offset, of the log that has to win the election: the longest log among the
    in-sync replicas whose machines stopped last. A replica that stopped earlier need not win. If it
    starts again before the sessions of the others have ended, the controller considers the others
    alive, and may remove this replica from the in-sync set."""
    lost = (state.extra or NOTHING).lost
    machines = list(_machines(world, state))
    last = max((each.cut_at for each in machines if each.dark), default=-1.0)
    disks = [
        each.disk for each in machines if each.node_id not in lost and each.cut_at >= last
    ]
    logs = [log_on_disk(disk, topic, index) for disk in disks]
    if any(end > 0 and not records for _, end, records in logs):
        return {}       # all records were deleted: the files do not say which epoch was reached
    return max(logs, key=lambda log: log[:2], default=(-1, 0, {}))[2]


def _machines(world: ClusterWorld, state: PartitionState) -> Iterator[ClusterMachine]:
    for node_id in state.isr:
        machine = world.broker(node_id)
        if machine is not None:
            yield machine


def log_on_disk(disk: SimDisk, topic: str, index: int) -> tuple[int, int, dict[int, bytes]]:
    """The last epoch and the end offset of a replica's log, and by offset the values of its
    records. Like recovery, this stops at the first batch that is incomplete, damaged or not
    consecutive."""
    # A directory without a valid topic id was never synced: the broker moves it aside.
    places = {
        path.rpartition("/")[0] for path, inode in disk.names.items()
        if path.endswith("/" + IDENTITY) and inode is not None and WHOLE_ID.search(inode.content)
    }
    named = [place for place in places if place.rpartition("/")[2] == f"{topic}-{index}"]
    # Two log directories may have the log if one of them was missing for a while.
    logs = (_log_in(disk, place) for place in moved(disk, topic, index, places) or named)
    return max(logs, key=lambda log: log[:2], default=(-1, 0, {}))


def moved(disk: SimDisk, topic: str, index: int, places: set[str]) -> list[str]:
    """The directory that has the log after a move between log directories, if the move has left a
    record; an empty list otherwise. From its record on, a move is final, even before the renames
    that follow. So another copy of the log is invalid."""
    for path, inode in disk.names.items():
        directory, _, name = path.rpartition("/")
        if name == MOVE_RECORD and inode is not None:
            record = decode(bytes(inode.content))
            if (record.topic, record.partition) == (topic, index):
                return [place for place in (f"{directory}/{record.copy}",
                                            f"{directory}/{topic}-{index}") if place in places][:1]
    return []


def _log_in(disk: SimDisk, place: str) -> tuple[int, int, dict[int, bytes]]:
    epoch, end, records = -1, -1, {}
    for path in sorted(disk.names):
        inode = disk.names[path]
        directory, _, name = path.rpartition("/")
        if inode is None or directory != place or not path.endswith(".log"):
            continue
        data, at = bytes(inode.content), 0
        if end >= 0 and int(name.removesuffix(".log")) != end:
            break
        end = max(end, int(name.removesuffix(".log")))      # earlier segments may be deleted
        while len(data) - at >= BATCH_HEADER:
            size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
            if not BATCH_HEADER <= size <= len(data) - at:
                break
            try:
                view = BatchView(data[at : at + size])
            except CorruptMessage:
                break
            if not view.crc_holds() or view.base_offset != max(end, 0):
                break
            for record in view.records():
                records[record.offset] = record.value or b""
            epoch, end, at = view.leader_epoch, view.next_offset, at + size
        end = max(end, 0)
        if at < len(data) and data[at:].strip(b"\0"):
            break                           # torn: recovery truncates the log here
    return epoch, max(end, 0), records
