"""Producer snapshots: the state of a partition's producers at an offset.

The file `<offset>.snapshot` holds the state before that offset. Big-endian:

    0         2          6         10
    | version | crc-32c  | count   | entries, 46 bytes each ...
      = 1                                             the checksum covers all bytes from 6 on

    0             8       10              14            22             26          34
    | producer id | epoch | last sequence | last offset | offset delta | timestamp | ...
    34                  38                             46
    | coordinator epoch | transaction's first offset   |             -1 if there is none
"""

import struct
from collections.abc import Iterable

from ottla.log.files.disk import Disk
from ottla.log.files.names import file_name
from ottla.log.files.producers import Producers, ProducerState
from ottla.wire.checksum import crc32c_of

HEADER = struct.Struct(">hIi")
ENTRY = struct.Struct(">qhiqiqiq")


def encode(producers: Producers) -> bytes:
    """The snapshot file of these producers."""
    states = producers.values()
    body = struct.pack(">i", len(states)) + b"".join(
        ENTRY.pack(
            state.producer_id,
            state.epoch,
            state.last_sequence,
            state.last_offset,
            state.offset_delta,
            state.last_timestamp,
            state.coordinator_epoch,
            state.transaction_start,
        )
        for state in states
    )
    return struct.pack(">hI", 1, crc32c_of(body)) + body


def decode(data: bytes) -> Producers:
    """Parses a snapshot file. Raises ValueError if it is damaged."""
    if len(data) < HEADER.size:
        raise ValueError(f"a producer snapshot of {len(data)} bytes is too short")
    version, crc, count = HEADER.unpack_from(data)
    if version != 1:
        raise ValueError(f"a producer snapshot has version {version}, expected 1")
    if crc != crc32c_of(data[6:]):
        raise ValueError("the producer snapshot's checksum does not match its bytes")
    if count < 0 or len(data) != HEADER.size + count * ENTRY.size:
        raise ValueError(f"a producer snapshot of {len(data)} bytes cannot have {count} producers")
    states = [state_of(*fields) for fields in ENTRY.iter_unpack(data[HEADER.size :])]
    producers = Producers()
    for state in sorted(states, key=lambda state: state.transaction_start):
        producers.add(state)
    return producers


def state_of(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_start: int,
) -> ProducerState:
    """Converts one entry of a snapshot to a state; its window has at most one batch."""
    state = ProducerState(producer_id, epoch, coordinator_epoch, timestamp, transaction_start)
    if last_sequence >= 0:
        state.remember(last_sequence, last_offset, offset_delta, timestamp)
    return state


class SnapshotFiles:
    """The offsets of a log's snapshots, ascending; writes and removes the files."""

    __slots__ = ("disk", "offsets")

    def __init__(self, disk: Disk, offsets: Iterable[int]) -> None:
        self.disk = disk
        self.offsets = dict.fromkeys(sorted(offsets))
        assert all(offset >= 0 for offset in self.offsets)

    def write(self, directory: str, offset: int, producers: Producers) -> str:
        """Writes the producers' state at the log's end; returns the file's path, which a flush has
        to sync. Raises OSError."""
        assert all(at <= offset for at in self.offsets), "a snapshot is beyond the log's end"
        data, path = encode(producers), path_of(directory, offset)
        file = self.disk.open(path, create=True)
        file.pwrite(data, 0)
        file.truncate(len(data))
        file.close()
        self.offsets[offset] = None
        return path

    def remove_above(self, directory: str, end: int) -> None:
        """Deletes the snapshots of offsets that the log no longer has."""
        for offset in [at for at in self.offsets if at > end]:
            del self.offsets[offset]
            self.disk.unlink(path_of(directory, offset))

    def take_up_to(self, directory: str, offset: int) -> list[str]:
        """Forgets the snapshots up to an offset; returns the paths of their files, which remain."""
        return [
            path for at in list(self.offsets) if at <= offset for path in self.take(directory, at)
        ]

    def take(self, directory: str, offset: int) -> list[str]:
        """Forgets one snapshot, if it exists; returns the path of its file, which remains."""
        if offset not in self.offsets:
            return []
        del self.offsets[offset]
        return [path_of(directory, offset)]


def path_of(directory: str, offset: int) -> str:
    """The path of an offset's snapshot."""
    return f"{directory}/{file_name(offset, '.snapshot')}"
