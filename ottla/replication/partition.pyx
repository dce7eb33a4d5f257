# cython: boundscheck=False, wraparound=False
"""A partition as its leader sees it: who leads, how far clients may read, what has been promised.

A batch that was sent with acks=all is neither acknowledged nor readable before it is as durable as
promised: while this broker is the only in-sync replica, that is when it has been flushed to the
disk. The high watermark stops before such a batch until then, so that nobody reads what a power
cut could take back.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.partition_log cimport PartitionLog
from ottla.wire.batch cimport last_offset_delta

from ottla.wire.errors import (
    FencedLeaderEpoch, NotLeaderOrFollower, StorageFailed, UnknownLeaderEpoch,
)


cdef class Watcher:
    cdef int moved(self, Partition partition) except -1:
        raise AssertionError("a Watcher says what it does when a partition moved")


cdef class Promise:
    cdef int kept(self, Partition partition) except -1:
        raise AssertionError("a Promise says what it does when it is kept")


cdef class Partition:
    """One partition on this broker. Everything in it happens on the event loop's thread."""

    def __init__(
        self, str topic, int index, bytes topic_id, PartitionLog log, bint flush_before_ack,
        dict with_sealed=None
    ):
        self.topic, self.index, self.topic_id = topic, index, topic_id
        self.log = log
        self.leader_id = self.leader_epoch = -1
        self.flush_before_ack = flush_before_ack
        # What was read back from the disk is served at once; after a crash housekeeping flushes it.
        self.high_watermark = log.log_end_offset
        self.flush_wanted_upto = self.high_watermark
        self.watchers = {}
        self.promises = []
        self.with_sealed = {} if with_sealed is None else with_sealed

    def __repr__(self):
        return f"{self.topic}-{self.index}"

    def lead(self, int leader_id, int leader_epoch, bint led_here):
        """Follow the image: somebody leads this partition from `leader_epoch` on."""
        if led_here and leader_epoch > self.leader_epoch:
            self.log.assign_epoch_start(leader_epoch)
        self.leader_id, self.leader_epoch, self.led_here = leader_id, leader_epoch, led_here
        self.wake()

    def append_bytes(self, batch, bint all_replicas=True):
        """Append one validated batch from Python; returns its base offset."""
        cdef uint8_t[::1] view = bytearray(batch)
        return self.append(&view[0], view.shape[0], all_replicas)

    cdef int64_t append(self, uint8_t *batch, Py_ssize_t size, bint all_replicas) except -2:
        """Append a validated batch; clients may read it at once unless it waits for its flush."""
        cdef int64_t base = self.log.append(batch, size, self.leader_epoch)
        if not self.log.duplicate:
            self.messages_in += self.log.log_end_offset - base
            self.bytes_in += size
        if self.log.has_sealed():
            self.with_sealed[self] = None
        if all_replicas and self.flush_before_ack:
            # A duplicate's first copy may still wait for its flush, and so must its reply.
            if not self.log.duplicate:
                self.flush_wanted_upto = self.log.log_end_offset
            elif self.log.durable_offset() <= base + last_offset_delta(batch) < self.high_watermark:
                # Read back after a crash it is readable before it is flushed, but not acknowledged.
                self.log.flush()
        elif self.log.log_end_offset - self.log.durable_offset() >= self.log.flush_messages:
            # flush.messages: Kafka flushes before it answers, here the answer waits for the flush.
            if not self.log.duplicate:
                self.flush_wanted_upto = self.log.log_end_offset
        elif self.flush_wanted_upto <= self.high_watermark:
            self.advance(self.log.log_end_offset)
        return base

    def flushed(self, int64_t offset):
        """The disk holds everything below `offset`; returns whether a further flush is wanted."""
        if self.flush_wanted_upto <= offset:
            self.advance(self.log.log_end_offset)
            return False
        self.advance(offset)
        return True

    def wants_flush(self):
        """Whether an acknowledgement waits for the disk."""
        return self.flush_wanted_upto > self.high_watermark

    cdef int advance(self, int64_t offset) except -1:
        cdef Promise promise
        assert offset <= self.log.log_end_offset, "high watermark past the end of the log"
        if offset <= self.high_watermark:
            return 0
        self.high_watermark = offset
        while self.promises and (<Promise>self.promises[0]).required <= offset:
            promise = <Promise>self.promises.pop(0)
            promise.kept(self)
        if self.watchers:
            self.wake()
        return 0

    def wake(self):
        """Tell every watcher that something changed here."""
        for watcher in list(self.watchers):
            (<Watcher>watcher).moved(self)

    cdef int64_t readable_end(self, bint committed_only) except -1:
        """The first offset that a client may not read: high watermark or last stable offset."""
        if committed_only:
            return self.log.stable_offset(self.high_watermark)
        return self.high_watermark

    def last_stable_offset(self):
        """First offset that a read_committed client may not read (KIP-98)."""
        return self.readable_end(True)

    def watch(self, Watcher watcher not None):
        self.watchers[watcher] = None

    def unwatch(self, Watcher watcher not None):
        self.watchers.pop(watcher, None)

    cdef int promise(self, Promise promise) except -1:
        """Keep `promise` in the order of required offsets; nearly always it belongs at the end."""
        cdef Py_ssize_t at = len(self.promises)
        while at > 0 and (<Promise>self.promises[at - 1]).required > promise.required:
            at -= 1
        self.promises.insert(at, promise)
        return 0

    cdef bint break_promise(self, Promise promise) except -1:
        """Take back a promise; False if it has been kept, or given up, already."""
        if promise not in self.promises:
            return False
        self.promises.remove(promise)
        return True

    cdef int check_leader(self, int32_t client_epoch) except -1:
        """Refuse a client that believes in another leader epoch (KIP-320); -1: it does not say."""
        if not self.led_here:
            raise NotLeaderOrFollower(f"{self!r} is led by broker {self.leader_id}")
        # A damaged log takes no more records, and is served up to the damage.
        if self.log.health.offline is not None and self.log.health.damage is None:
            raise StorageFailed(f"{self!r} is offline: {self.log.health.offline}")
        if client_epoch == -1 or client_epoch == self.leader_epoch:
            return 0
        if client_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"{self!r} is led in epoch {self.leader_epoch}, the request says {client_epoch}")
        raise UnknownLeaderEpoch(
            f"{self!r} is led in epoch {self.leader_epoch}, the request says {client_epoch}")

    def require_leader(self, int client_epoch=-1):
        """Raise unless this broker leads the partition, in the epoch that the client names."""
        self.check_leader(client_epoch)

    def close(self):
        """Let go of everybody who waits here; they find the partition gone."""
        self.led_here = False
        self.give_up()

    def give_up(self):
        """Nothing that waits here will come: break the promises, and have the watchers look."""
        promises, self.promises = self.promises, []
        for promise in promises:
            (<Promise>promise).kept(self)
        self.wake()
