# cython: boundscheck=False, wraparound=False
"""Incremental fetch sessions (KIP-227).

A session watches its partitions: a partition that changes puts itself on the session's list of
changed partitions, and a fetch checks only that list. So an idle poll costs the same for one
partition as for ten thousand. The cache is bounded. If it is full, a client is served without a
session, which is slower but correct.
"""

from libc.stdint cimport int32_t

from ottla.broker.network.promises cimport Wait
from ottla.broker.security.client cimport Client
from ottla.replication.partition cimport Partition, Watcher

cdef enum:
    # A session may be evicted if it was unused for this long. It may also be evicted if it was
    # created this long ago and has fewer partitions than the new session (KIP-227).
    EVICTABLE_AFTER_S = 120


cdef class FetchItem:
    pass


cdef class FetchSession(Watcher):
    def __init__(self, int32_t id, bint by_id, double now, int32_t replica_id=-1):
        self.id, self.epoch, self.by_id, self.replica_id = id, 1, by_id, replica_id
        self.items, self.changed, self.by_partition = {}, {}, {}
        self.created_at = self.used_at = now
        self.replica_epoch = -1

    def __len__(self):
        return len(self.items)

    def advance_epoch(self):
        """Advance to the epoch that the next request must have; it never becomes 0 again."""
        self.epoch = self.epoch + 1 if self.epoch < 0x7fffffff else 1

    cdef int used_by(self, int64_t replica_epoch, double now) except -1:
        """Note that a request uses the session. If the replica's broker epoch has changed, the
        broker has registered again. Then the fetch offset of each item has to count anew for the
        high watermark, even if the request does not contain the item."""
        self.used_at = now
        if replica_epoch != self.replica_epoch:
            self.replica_epoch = replica_epoch
            for item in self.items.values():
                (<FetchItem>item).uncounted = True
                self.changed[((<FetchItem>item).topic, (<FetchItem>item).index)] = item
        return 0

    cdef int read_by(self, Client client, object rules) except -1:
        """Record the client and the authorizer's decisions. If one of them has changed, every
        partition is looked at again, since the client's access may have changed."""
        if rules is not self.rules or client is not self.client:
            if self.client is not None:
                self.changed.update(self.items)
            self.rules, self.client = rules, client
        return 0

    cdef int put(self, FetchItem item) except -1:
        """Add a partition, or change its fetch parameters.

        If the client is a consumer, it still has the values that were last sent, such as the high
        watermark. A replica may not have them: it names a partition again if it has dropped an
        answer with an outdated leader epoch or offset. So the values are sent to it again.
        """
        cdef FetchItem before
        key = (item.topic, item.index)
        before = <FetchItem>self.items.get(key)
        if self.replica_id < 0:
            item.sent_high_watermark = -1 if before is None else before.sent_high_watermark
            item.sent_log_start = -1 if before is None else before.sent_log_start
        if before is not None:
            self.release(before)
        elif item.partition is None:
            self.absent += 1
        self.items[key] = item
        self.changed[key] = item
        return self.watch(item)

    cdef int watch(self, FetchItem item) except -1:
        """Watch the partition of an item of this session."""
        if item.partition is not None and self.items.get((item.topic, item.index)) is item:
            self.by_partition[item.partition] = item
            if self.replica_id >= 0:
                item.partition.watch_appends(self)
            else:
                item.partition.watch(self)
        return 0

    cdef int release(self, FetchItem item) except -1:
        if item.partition is not None and self.by_partition.get(item.partition) is item:
            del self.by_partition[item.partition]
            item.partition.unwatch(self)
        return 0

    cdef int forget(self, object key) except -1:
        cdef FetchItem item = <FetchItem>self.items.pop(key, None)
        self.changed.pop(key, None)
        if item is not None:
            self.release(item)
        return 0

    cdef int move_last(self, FetchItem item) except -1:
        """Move a served partition to the end of `changed`, so that no partition starves."""
        key = (item.topic, item.index)
        self.changed.pop(key, None)
        self.changed[key] = item
        return 0

    cdef int moved(self, Partition partition) except -1:
        cdef FetchItem item = <FetchItem>self.by_partition.get(partition)
        if item is not None:
            self.changed[(item.topic, item.index)] = item
            self.moved_meanwhile = True
            if self.wait is not None:
                self.wait.wake()
        return 0

    cdef int readable_moved(self, Partition partition) except -1:
        """The high watermark has moved: include the partition in the replica's next answer. Send
        the answer now if the replica's consumers may be waiting for the high watermark."""
        cdef FetchItem item = <FetchItem>self.by_partition.get(partition)
        if item is not None:
            self.changed[(item.topic, item.index)] = item
            if self.reports_at_once and self.wait is not None:
                self.wait.wake()
        return 0

    cdef int close(self) except -1:
        for item in self.items.values():
            self.release(<FetchItem>item)
        self.items, self.changed = {}, {}
        return 0


cdef class FetchSessionCache:
    """The sessions of one broker, at most `max.incremental.fetch.session.cache.slots`.

    `choose_id` returns a random positive int32, so that a client cannot guess another's session.
    """

    def __init__(self, Py_ssize_t slots, choose_id):
        self.slots, self.choose_id = slots, choose_id
        self.sessions, self.of_replicas = {}, {}

    def __len__(self):
        return len(self.sessions)

    cdef FetchSession get(self, int32_t session_id):
        return <FetchSession>self.sessions.get(session_id)

    cdef FetchSession create(
        self, Py_ssize_t partitions, bint by_id, double now, int32_t replica_id=-1
    ):
        """Create a session; None if the cache is full of sessions in use.

        Each replica has one session, which does not count towards the limit.
        """
        cdef FetchSession session
        cdef int32_t id
        if replica_id >= 0:
            session = <FetchSession>self.of_replicas.get(replica_id)
            if session is not None:
                self.remove(session.id)
        elif self.slots <= 0 or (
                len(self.sessions) - len(self.of_replicas) >= self.slots
                and not self.evict(partitions, now)):
            return None
        id = self.choose_id()
        while id in self.sessions or id <= 0:
            id = self.choose_id()
        session = FetchSession(id, by_id, now, replica_id)
        self.sessions[id] = session
        if replica_id >= 0:
            self.of_replicas[replica_id] = session
        return session

    cdef bint evict(self, Py_ssize_t partitions, double now) except -1:
        """Make room for a session with `partitions` partitions. Evict the least recently used
        session if it was unused for EVICTABLE_AFTER_S. Otherwise take the smallest session created
        that long ago, and evict it if it has fewer partitions than the new one. Returns False if no
        session is evicted."""
        cdef FetchSession candidate, oldest = None, smallest = None
        for item in self.sessions.values():
            candidate = <FetchSession>item
            if candidate.wait is not None or candidate.replica_id >= 0:
                continue
            if oldest is None or candidate.used_at < oldest.used_at:
                oldest = candidate
            if now - candidate.created_at > EVICTABLE_AFTER_S and (
                smallest is None or len(candidate.items) < len(smallest.items)
            ):
                smallest = candidate
        if oldest is not None and now - oldest.used_at > EVICTABLE_AFTER_S:
            self.remove(oldest.id)
        elif smallest is not None and len(smallest.items) < partitions:
            self.remove(smallest.id)
        else:
            return False
        self.evictions += 1
        return True

    cdef int remove(self, int32_t session_id) except -1:
        cdef FetchSession session = <FetchSession>self.sessions.pop(session_id, None)
        if session is not None:
            if self.of_replicas.get(session.replica_id) is session:
                del self.of_replicas[session.replica_id]
            session.close()
        return 0
