"""The highest producer id and leader epoch in a broker's logs, for the adoption of a backup."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.groups.transactions.records import decode_record
from ottla.log.files.batch_scan import BatchScan, producer_id_max
from ottla.log.files.disk import Disk
from ottla.log.files.snapshots import decode
from ottla.replication.metadata import Held
from ottla.replication.topic_names import TRANSACTIONS_TOPIC
from ottla.wire.batch import BatchView
from ottla.wire.errors import MalformedMessage, ProtocolError

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

log = logging.getLogger("ottla.member")

HEADERS_CHUNK = 4096
"""How many bytes are read at once. They contain the header of a batch and, if the batch is small,
the next batches."""


def held_by_logs(disk: Disk, partitions: Iterable[Partition]) -> Held:
    """The producer id and the leader epoch that follow the highest ones in these logs. The logs
    must have been recovered. Raises OSError."""
    highest_id = highest_epoch = -1
    for partition in partitions:
        highest_epoch = max(highest_epoch, partition.log.latest_epoch)
        ids = producer_ids(disk, partition.log.directory, partition.topic == TRANSACTIONS_TOPIC)
        highest_id = max(highest_id, max(ids, default=-1))
    log.info(
        "the logs have producer ids up to %d and leader epochs up to %d", highest_id, highest_epoch
    )
    return Held(highest_id + 1, highest_epoch + 1)


def producer_ids(disk: Disk, directory: str, transactions: bool) -> Iterator[int]:
    """The producer ids in a log's batches and snapshots, and in the records of a partition of
    `__transaction_state`. Raises OSError."""
    if not disk.exists(directory):
        return
    for name in disk.listdir(directory):
        path = f"{directory}/{name}"
        if name.endswith(".snapshot"):
            with suppress(ValueError):          # damaged: the batches have its ids, too
                yield from (state.producer_id for state in decode(disk.read_bytes(path)).values())
        elif name.endswith(".log"):
            yield from _of_segment(disk, path, transactions)


def _of_segment(disk: Disk, path: str, transactions: bool) -> Iterator[int]:
    file = disk.open(path)
    try:
        yield producer_id_max(BatchScan(file, 0, file.size(), HEADERS_CHUNK, headers_only=True))
        if transactions:
            scan = BatchScan(file, 0, file.size())
            while (data := scan.batch()) is not None:
                yield from _recorded(BatchView(data))
    finally:
        file.close()


def _recorded(batch: BatchView) -> Iterator[int]:
    try:
        for record in () if batch.control else batch.records():
            known = decode_record(record.key or b"", record.value)
            if known is not None and (value := known.value) is not None:
                yield from (value.producer_id, value.previous_producer_id, value.next_producer_id)
    except (MalformedMessage, ProtocolError) as error:
        log.error("a record of %s cannot be read: %s", TRANSACTIONS_TOPIC, error)
