"""Fuzzers for the data that are read from disk and from ZooKeeper: a partition's files, and stored
records."""

from __future__ import annotations

import functools
import pickle
import struct

from ottla.groups import record_codec
from ottla.groups.transactions import records as transaction_records
from ottla.log.files import aborted_sizes, checkpoints, closed_logs, snapshots, topic_ids
from ottla.log.files.epochs import LeaderEpochs
from ottla.log.storage import move_record
from ottla.log.storage.log_directory import StorageRefused
from ottla.replication import entries, registration
from ottla.replication.records import decode_record
from ottla.wire.errors import MalformedMessage, ProtocolError
from tests.log.batches import NOW_MS, split
from tests.log.faulty_disk import FaultyDisk
from tests.log.partition.foreign_files import DATA, change, reopened, written

TEXT_DECODERS = (
    checkpoints.decode_offsets, checkpoints.decode_properties, topic_ids.decode, closed_logs.decode,
    aborted_sizes.decode, snapshots.decode, LeaderEpochs.decode, move_record.decode,
    lambda data: registration.decode(1, data), decode_record,
    lambda data: entries.decode_entry(1, 1, data), lambda data: entries.decode_snapshot(1, [data]),
)  # fmt: skip
"""The decoders of files and znodes. They refuse bytes with ValueError or its subclass
UnreadableMetadata."""


def stored_records(data: bytes) -> None:
    """Files, znodes and records of the internal topics are decoded, or refused with a proper
    error."""
    if len(data) < 3:
        return
    kind, body = data[0] % (len(TEXT_DECODERS) + 2), data[3:]
    if kind < len(TEXT_DECODERS):
        try:
            TEXT_DECODERS[kind](body)
        except ValueError:
            pass
        return
    decode = (record_codec, transaction_records)[kind - len(TEXT_DECODERS)].decode_record
    key, value = body[: struct.unpack_from(">H", data, 1)[0] % 64], body
    try:
        decode(key, value[len(key) :])
    except (MalformedMessage, ProtocolError):
        pass


@functools.cache
def frozen(clean: bool) -> bytes:
    """A disk with a partition of three segments, as pickled bytes."""
    return pickle.dumps(written(1, clean))


def partition(clean: bool) -> FaultyDisk:
    """A new copy of the disk from `frozen`."""
    disk: FaultyDisk = pickle.loads(frozen(clean))
    return disk


@functools.cache
def file_names() -> list[str]:
    """The paths of the partition's files."""
    return sorted(name for name in partition(True).names if name.startswith(DATA))


def partition_files(data: bytes) -> None:
    """One file of a partition is replaced after a clean stop or a kill. Each call of the log
    returns an answer, or raises a proper error."""
    if len(data) < 2:
        return
    clean, name = bool(data[0] & 1), file_names()[data[1] % len(file_names())]
    disk = partition(clean)
    change(disk, name, data[2:])
    try:
        log = reopened(disk)
        end = log.log_end_offset
        for offset in range(log.log_start_offset, min(end, log.log_start_offset + 200), 11):
            split(log.read_bytes(offset, 4096))
            log.offset_for_timestamp(NOW_MS + offset)
            log.aborted_transactions(offset, min(offset + 9, end))
        log.offset_of_max_timestamp(end)
        log.end_offset_for_epoch(1)
    except (ProtocolError, StorageRefused):
        pass


def partition_seeds() -> list[bytes]:
    """Each of the partition's files as it was written."""
    return [
        bytes([clean, at]) + bytes(inode.content)
        for clean in (0, 1)
        for at, name in enumerate(file_names())
        if (inode := partition(bool(clean)).names.get(name)) is not None
    ]


def stored_seeds() -> list[bytes]:
    """Texts and records of each kind."""
    texts = [
        b"0\n1\nevents 0 17\n", b"#x\nversion=1\ncluster.id=abc\n", b"0\n1\nevents 0 AAAA\n",
        b"0\n0\n1\n1\n0 5\n", b'{"type":"topic","name":"x"}', b'{"host":"h","port":1,"epoch":3}',
    ]  # fmt: skip
    seeds = [bytes([at, 0, 0]) + text for at in range(len(TEXT_DECODERS)) for text in texts]
    group = struct.pack(">hh1sh1si", 1, 1, b"g", 1, b"t", 0)
    value = struct.pack(">hqih", 3, 7, 0, 0) + struct.pack(">q", 1)
    base = len(TEXT_DECODERS)
    seeds.append(bytes([base]) + struct.pack(">H", len(group)) + group + value)
    key = struct.pack(">hh1s", 0, 1, b"t")
    seeds.append(bytes([base + 1]) + struct.pack(">H", len(key)) + key + value)
    disk = partition(False)
    seeds += [
        bytes([at, 0, 0]) + bytes(inode.content)
        for at in range(len(TEXT_DECODERS))
        for name in file_names()
        if not name.endswith(".log") and (inode := disk.names.get(name)) is not None
    ]
    return seeds
