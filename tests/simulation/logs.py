"""Checks of a log. What it has in memory must match its files: the transactions, and the size as
long as the broker has read none of the files. A copy in another directory must be complete. The log
start in an answer to DeleteRecords must be on the medium. The process after a kill must know the
producers that the killed process knew.

The files are read directly from the simulated disk, so that the broker does not notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ottla.log.files.checkpoints import LOG_STARTS, decode_offsets
from ottla.log.files.producers import Producers
from ottla.log.storage.move_transfer import Move
from ottla.replication.partition import Partition
from ottla.wire.batch import batches
from ottla.wire.errors import CorruptMessage, StorageFailed
from ottla.wire.marks import reached
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from ottla.broker.server import Server
    from ottla.log.partition.partition_log import PartitionLog
    from tests.simulation.disk import SimDisk
    from tests.simulation.machine import Machine

PRODUCER_LIFE_MS = 86_400_000
"""The default of producer.id.expiration.ms."""
MARGIN_MS = 60_000
COPIED = (".log", ".txnindex", ".snapshot")
"""Files that a move between directories must copy byte for byte."""


def at_rest(log: PartitionLog) -> bool:
    """Whether the broker has not read a file of the log since its start."""
    return log.aborted_sizes() is None


def data_files(log: PartitionLog) -> list[bytes]:
    """The content of each segment, the oldest segment first. Raises OSError."""
    disk = log.disk
    if not at_rest(log):
        return [
            bytes(disk.read_bytes(each.path(".log")))[: each.size] for each in log.segments
        ]
    try:
        names = sorted(name for name in disk.listdir(log.directory) if name.endswith(".log"))
    except FileNotFoundError:
        return []
    return [disk.read_bytes(f"{log.directory}/{name}") for name in names]


def check_log_transactions(partition: Partition) -> None:
    """Check that the last stable offset and the aborted transactions of a log are those that its
    batches give."""
    log, right = partition.log, Producers()
    if log.offline is not None or log.damage is not None:
        return
    aborted: dict[int, tuple[int, int]] = {}
    first = last = -1
    try:
        files = data_files(log)
        for data in files:
            for view in batches(data):
                first, last = view.base_offset if first < 0 else first, view.last_offset
                if view.producer_id >= 0 and (ended := right.replay(bytes(view.data))):
                    aborted[ended[2]] = ended[0], ended[1]
        check_rest(partition, files)
        told = [] if at_rest(log) else log.aborted_transactions(first, log.log_end_offset)
    except (CorruptMessage, StorageFailed, OSError):
        return
    if last < 0:
        return
    opened = [each.transaction_start for each in right.values() if each.transaction_start >= 0]
    stable = min(opened, default=log.log_end_offset)
    if stable != log.last_stable_offset and log.last_stable_offset >= first:
        raise Violation(
            f"partition {partition!r}: the log has the last stable offset {log.last_stable_offset},"
            f" its batches give {stable}"
        )
    if opened and at_rest(log):
        reached("a log was checked amid a transaction before a file of it was read")
    check_aborted(partition, first, aborted, told)


def check_rest(partition: Partition, files: list[bytes]) -> None:
    """Check that the number of segments and bytes of a log at rest matches its files."""
    log = partition.log
    if not at_rest(log) or not log.segment_count:
        return
    known, right = (log.segment_count, log.size_bytes), (len(files), sum(map(len, files)))
    if known != right:
        raise Violation(
            f"partition {partition!r}: the log, whose files were not read yet, counts {known}"
            f" segments and bytes, its files give {right}"
        )


def check_aborted(
    partition: Partition, first: int, aborted: dict[int, tuple[int, int]], told: Iterable[Any]
) -> None:
    """Compare the aborted transactions that a log knows with those in its batches, by the offsets
    of their markers. Logs at rest are left out."""
    log = partition.log
    if at_rest(log):
        return
    # Compaction may have removed the batches of aborted transactions that the log still knows.
    whole = log.first_dirty_offset == 0 and not log.config.compacts
    seen: dict[int, tuple[int, int]] = {}
    for each in told:
        if each.last_offset in seen:
            raise Violation(
                f"partition {partition!r}: the log lists the aborted transaction that ends at"
                f" {each.last_offset} twice"
            )
        seen[each.last_offset] = each.producer_id, each.first_offset
        if whole and each.first_offset >= first and each.last_offset not in aborted:
            raise Violation(
                f"partition {partition!r}: the log lists an aborted transaction that its batches do"
                f" not have: {each}"
            )
    for marker, (producer, begun) in aborted.items():
        owner, start = seen.get(marker, (-1, -1))
        exact = whole and start >= first
        if owner != producer or (start != begun if exact else start > begun):
            raise Violation(
                f"partition {partition!r}: producer {producer} aborted a transaction at the offsets"
                f" {begun} to {marker}, but the log lists {seen.get(marker)}"
            )
    if aborted:
        reached("the aborted transactions of a log were checked")


def check_started(server: Server) -> None:
    """Check those logs of a just started broker that are at rest or have transactions."""
    for partition in server.replicas:
        log = partition.log
        if log.offline is not None:
            continue
        if at_rest(log) or any(
            each.coordinator_epoch >= 0 or each.transaction_start >= 0
            for each in log.producers.values()
        ):
            check_log_transactions(partition)


def check_copy(move: Move) -> None:
    """Check that the copy of a log is complete when the log is about to continue in it."""
    disk, log = move.disk, move.log
    for segment in log.segments:
        for suffix in COPIED:
            path = segment.path(suffix)
            if suffix == ".txnindex" and segment.aborted.distrusted:
                continue                            # the broker creates this file again
            if content(disk, path) != content(disk, move.inside(path)):
                raise Violation(
                    f"the copy of {move.name} in {move.target.path} differs: {suffix} of the"
                    f" segment at {segment.base_offset} is not as in the log"
                )
    bases = {each.path(".log").rpartition("/")[2] for each in log.segments}
    extra = {name for name in disk.listdir(move.directory) if name.endswith(".log")} - bases
    if extra:
        raise Violation(
            f"the copy of {move.name} in {move.target.path} has files that the log does not have:"
            f" {sorted(extra)}"
        )


def checking_copies(failures: list[BaseException]) -> Callable[[Move], None]:
    """A replacement of `Move.continue_in_copy`. It first checks the copy, and adds the Violation to
    `failures` if the copy is incomplete."""
    unchecked = Move.continue_in_copy

    def continue_in_copy(move: Move) -> None:
        try:
            check_copy(move)
        except Violation as wrong:
            failures.append(wrong)
        unchecked(move)

    return continue_in_copy


def content(disk: Any, path: str) -> bytes | None:
    """The content of a file, None if the file does not exist."""
    inode = disk.names.get(path)
    return None if inode is None else bytes(inode.content)


def check_start_kept(server: Server, disk: SimDisk, key: tuple[str, int], offset: int) -> None:
    """Check that the log start in an answer to DeleteRecords is on the medium."""
    home = server.storage.homes.get(key)
    if home is None or home.offline is not None:
        return
    inode = disk.kept_names().get(home.file(LOG_STARTS))
    kept = decode_offsets(bytes(inode.durable)).get(key, 0) if inode is not None else 0
    if kept < offset:
        raise Violation(
            f"DeleteRecords of partition {key[0]}-{key[1]} was answered with log start {offset},"
            f" but the disk has {kept} in {home.path}"
        )


class BeforeAKill:
    """The producers of each log before a kill. A kill loses nothing that was written, so the next
    process must know these producers."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, int, bytes], list[tuple[int, int, int, int]]] = {}

    def note(self, machine: Machine) -> None:
        """Note the producers of a process that is about to end. Nothing is noted if it ends within
        a call of the disk, or while a disk does not work, because then the next process may find
        other producers."""
        self.known.clear()
        server, disk = machine.server, machine.disk
        if server is None or not machine.up or machine.died or not disk.is_well():
            return
        for each in server.replicas:
            if each.log.offline is None and not at_rest(each.log):
                self.known[each.topic, each.index, each.topic_id] = [
                    (state.producer_id, state.epoch, state.last_offset, state.last_timestamp)
                    for state in each.log.producers.values()
                ]

    def check(self, server: Server, now_ms: int) -> None:
        """Check the logs of the next process, which has begun to serve."""
        for each in server.replicas:
            before = self.known.get((each.topic, each.index, each.topic_id))
            if not before or each.log.offline is not None or each.log.damage is not None:
                continue
            states = {state.producer_id: state for state in each.log.producers.values()}
            for producer, epoch, offset, timestamp in before:
                if timestamp <= now_ms - PRODUCER_LIFE_MS + MARGIN_MS:
                    continue
                state = states.get(producer)
                if state is None or (state.epoch, state.last_offset) < (epoch, offset):
                    raise Violation(
                        f"partition {each!r}: before a kill the log knew producer {producer} with"
                        f" epoch {epoch} and last offset {offset}, and now with"
                        f" {state and (state.epoch, state.last_offset)}"
                    )
        self.known.clear()
