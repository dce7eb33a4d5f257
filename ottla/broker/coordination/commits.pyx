# cython: boundscheck=False, wraparound=False
"""Calls a Python function once a partition's log is committed up to its present end (acks=all)."""

from ottla.replication.partition cimport Partition, Promise

from ottla.wire.errors import NotLeaderOrFollower, StorageFailed


cdef class CommitPromise(Promise):
    cdef int kept(self, Partition partition) except -1:
        done, self.done = self.done, None
        if self.due:
            done(None)
        elif partition.log.offline is not None:
            done(StorageFailed(f"{partition!r} is offline: {partition.log.offline}"))
        else:
            done(NotLeaderOrFollower(f"{partition!r} is led by another broker now"))
        return 0


def when_committed(Partition partition not None, done):
    """Call `done(None)` once everything that the log holds now is committed. If the log goes
    offline before that, or another broker leads the partition, call `done(error)`.

    If everything is committed already, `done` is called before this returns. The functions that
    wait are called in the order of the appends.
    """
    cdef CommitPromise promise
    if partition.high_watermark >= partition.log.log_end_offset:
        done(None)
        return
    promise = CommitPromise.__new__(CommitPromise)
    promise.required, promise.done = partition.log.log_end_offset, done
    promise.outlasts_isr = True
    partition.promise(promise)
