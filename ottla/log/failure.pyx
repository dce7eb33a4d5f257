"""What a log does when the disk refuses: it waits for what passes, all else takes it offline.

A full disk refuses one write after the other until it has room again; a disk that fails otherwise
is not asked again.
"""

from ottla.log.disk import is_passing
from ottla.log.partition_log cimport PartitionLog
from ottla.log.index.transaction_index import AbortedTransaction, TransactionIndex
from ottla.wire.errors import StorageFailed


def take_back(PartitionLog log, error):
    """Undo a write that failed, and raise StorageFailed."""
    try:
        if log.active is not None:
            log.active.undo()
    except OSError as second:
        log.fail(f"after a failed write ({error}) the file could not be cut: {second}")
    if not is_passing(error):
        log.fail(f"a write failed: {error}")
    raise StorageFailed(f"{log.directory}: {error}") from error


def refuse(PartitionLog log, what, error):
    """Raise StorageFailed: for now where the disk is only full or busy, else for good."""
    if not is_passing(error):
        log.fail(f"{what}: {error}")
    raise StorageFailed(log.offline or f"{log.directory}: {what}: {error}") from error


def note_aborted(PartitionLog log, aborted):
    """Write an aborted transaction to the index of the segment that has its marker.

    The marker is in the log: without the index aborted records would look committed. Where there
    is no room for it, it is kept in memory until there is some, and no flush ends before.
    """
    log.active.nothing_aborted = False
    log.unwritten.append((log.active, AbortedTransaction(*aborted)))
    try:
        write_aborted(log)
    except OSError as error:
        if not is_passing(error):
            log.fail(f"the transaction index could not be written: {error}")
            raise StorageFailed(log.offline) from error


def write_aborted(PartitionLog log):
    """Write what waits for room in the transaction indexes. Raises OSError."""
    while log.unwritten:
        segment, aborted = log.unwritten[0]
        TransactionIndex(log.disk, segment.path(".txnindex")).append(aborted)
        segment.transactions_changed = True
        log.unwritten.pop(0)
