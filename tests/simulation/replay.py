"""Checks that the state that a broker has in memory equals the state that a replay of its logs
gives."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from ottla.log.files.producers import Producers
from ottla.replication.partition import Partition
from ottla.replication.standalone import image_of
from ottla.wire.batch import batches
from ottla.wire.errors import CorruptMessage, StorageFailed
from ottla.wire.marks import reached
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from ottla.broker.server import Server
    from ottla.log.partition.partition_log import PartitionLog

READ_BYTES = 1 << 24


def bytes_of(partition: Partition, start: int = 0) -> bytes:
    """The batches of a partition from this offset on."""
    return bytes_in(partition.log, start)


def bytes_in(log: PartitionLog, start: int = 0) -> bytes:
    """The batches of a log from this offset on."""
    data, offset = b"", max(log.log_start_offset, start)
    while offset < log.log_end_offset:
        piece = bytes(log.read_bytes(offset, READ_BYTES))
        if not piece:
            break                           # the rest was compacted away
        last = list(batches(piece))[-1]
        data, offset = data + piece, last.next_offset
    return data


def check_image(server: Server) -> None:
    """Check that the metadata image of a standalone broker equals the image that a replay of its
    metadata log gives. Nothing is checked while a metadata change is being written or applied."""
    metadata = server.metadata_log
    log, image = metadata.store.log, metadata.image
    if metadata.writer is not None or image is not metadata.decided or log.offline is not None:
        return
    values = [
        [record.value or b"" for record in view.records()] for view in batches(bytes_in(log))
    ]
    right, _ = image_of(values, image.cluster_id)
    for each in fields(image):
        if getattr(image, each.name) != getattr(right, each.name):
            raise Violation(
                f"the metadata image has other {each.name} than the metadata log:"
                f" {getattr(image, each.name)} instead of {getattr(right, each.name)}"
            )


def check_producers(partition: Partition) -> None:
    """Check that the producer state of a log equals the state that its batches give."""
    log = partition.log
    if log.offline is not None or log.log_start_offset > 0 or log.first_dirty_offset > 0:
        return                              # the log also knows producers of removed batches
    if log.config.compacts or log.aborted_sizes() is None:
        return                              # compaction may be under way, or the log is at rest
    right = Producers()
    try:
        for view in batches(bytes_of(partition)):
            right.replay(bytes(view.data))
        states = log.active_producers()
    except (CorruptMessage, StorageFailed, OSError):
        return
    for state in states:
        wanted = right.get(state.producer_id)
        if wanted is None:
            raise Violation(
                f"partition {partition!r}: the log knows producer {state.producer_id}, but has no"
                " batch of it"
            )
        for what in ("epoch", "last_sequence", "last_offset", "transaction_start"):
            if getattr(state, what) != getattr(wanted, what):
                raise Violation(
                    f"partition {partition!r}: the log has the {what} {getattr(state, what)} of"
                    f" producer {state.producer_id}, its batches give {getattr(wanted, what)}"
                )
        if state.transaction_start >= 0:
            reached("a log's producers were checked amid a transaction")
