"""Changes bytes on disks, makes files unreadable, and knows which copies of a partition are damaged
and not repaired yet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.wire.batch import batches
from tests.simulation.cluster.losses import BATCH_HEADER, Truth, has_good_copy

if TYPE_CHECKING:
    from tests.log.faulty_disk import Inode
    from tests.simulation.cluster.world import ClusterMachine, ClusterWorld

SEGMENT = re.compile(r"/d\d/(.+)-(\d+)/\d{20}\.log")
UNREADABLE_SHARE = 0.3
"""The share of damage that makes a file unreadable. The rest changes a byte."""
COVERED_FROM = 17
"""The position in a batch from which on the checksum covers every byte."""

Key = tuple[str, int]


@dataclass(frozen=True)
class Place:
    """The place of a byte that has changed."""

    machine: ClusterMachine
    file: str
    head: bytes
    """The content of the file up to and including the changed byte."""

    @property
    def is_there(self) -> bool:
        """Whether the log still has that byte, in any log directory. It does not if the file was
        moved aside or truncated, or if its disk was lost."""
        names = self.machine.disk.names
        for directory in self.machine.world.options.directories:
            inode = names.get(f"{directory}/{self.file}")
            if inode is not None and inode.content.startswith(self.head):
                return True
        return False


@dataclass(frozen=True)
class BadSector:
    """A file that its disk refuses to read."""

    machine: ClusterMachine
    file: str
    inode: Inode

    @property
    def is_there(self) -> bool:
        """Whether the log still has that file, in the directory where it was."""
        disk = self.machine.disk
        directories = self.machine.world.options.directories
        return self.inode in disk.unreadable and any(
            disk.names.get(f"{directory}/{self.file}") is self.inode for directory in directories
        )

    def recovers(self) -> None:
        """Have the disk read the file again."""
        self.machine.disk.unreadable.discard(self.inode)


class Damage:
    """Every byte that was changed in a run, and every file that became unreadable."""

    def __init__(self, world: ClusterWorld, truth: Truth) -> None:
        self.world, self.truth = world, truth
        self.places: dict[Key, list[Place | BadSector]] = {}
        self.kinds = Random(f"kinds of damage {world.seed}")

    def strike(self, chance: Random) -> bool:
        """Change a byte of a closed segment, or make its file unreadable. This is done only to a
        partition that has no damaged copy yet, and has a good copy on another broker. False if
        there is no such segment."""
        harmed, dark = self.nodes(), {each.node_id for each in self.world.brokers if each.dark}
        found = []
        for name, index, state in self.truth.states():
            if (name, index) in harmed:
                continue
            for machine in self.world.brokers:
                node = machine.node_id
                if node in state.replicas and has_good_copy(state, dark | {node}):
                    found += [(machine, path) for path in sealed(machine, name, index)]
        if not found:
            return False
        machine, path = chance.choice(found)
        inode = machine.disk.names[path]
        assert inode is not None
        first, size = chance.choice(list(durable_batches(inode)))
        at = first + chance.randrange(COVERED_FROM, size)
        value = inode.content[at] ^ 1 << chance.randrange(8)
        matched = SEGMENT.fullmatch(path)
        assert matched is not None
        places, file = self.places.setdefault((matched[1], int(matched[2])), []), path[4:]
        if self.kinds.random() < UNREADABLE_SHARE:
            machine.disk.unreadable.add(inode)
            places.append(BadSector(machine, file, inode))
            self.world.note(f"{machine.name}: {path} cannot be read any more")
            return True
        inode.content[at] = inode.durable[at] = value
        places.append(Place(machine, file, bytes(inode.content[: at + 1])))
        self.world.note(f"{machine.name}: byte {at} of {path} changes, in the batch at {first}")
        return True

    def nodes(self) -> dict[Key, set[int]]:
        """By partition, the brokers whose copies are damaged now. Partitions without a damaged copy
        are left out."""
        found = {
            key: {place.machine.node_id for place in places if place.is_there}
            for key, places in self.places.items()
        }
        return {key: nodes for key, nodes in found.items() if nodes}

    def recover(self, topic: str, index: int) -> set[int]:
        """Make all unreadable files of a partition readable again. Returns the brokers that have
        such files."""
        nodes = set()
        for place in self.places.get((topic, index), ()):
            if isinstance(place, BadSector) and place.is_there:
                place.recovers()
                nodes.add(place.machine.node_id)
        return nodes

    def spoils(self, topic: str, index: int, records: Any) -> bool:
        """Whether a client refuses fetched records because a byte of the partition was changed."""
        return (topic, index) in self.places and not all(
            view.crc_holds() for view in batches(records or b"")
        )


def sealed(machine: ClusterMachine, topic: str, index: int) -> Iterator[str]:
    """The paths of a replica's closed segments, without those that are not completely on the
    medium."""
    ending = f"/{topic}-{index}/"
    paths = sorted(
        path for path, inode in machine.disk.names.items()
        if inode is not None and ending in path and SEGMENT.fullmatch(path)
    )
    for path in paths[:-1]:
        inode = machine.disk.names[path]
        if inode is not None and any(durable_batches(inode)):
            yield path


def durable_batches(inode: Inode) -> Iterator[tuple[int, int]]:
    """Position and size of each batch in a file. Nothing if a part of the file is not on the medium
    yet."""
    first, data = 0, inode.content
    if inode.pending or inode.durable != data:
        return
    while len(data) - first >= BATCH_HEADER:
        size = 12 + int.from_bytes(data[first + 8 : first + 12], "big")
        if not BATCH_HEADER <= size <= len(data) - first:
            return
        yield first, size
        first += size
