# cython: boundscheck=False, wraparound=False
"""Decides what a follower fetches from one leader: which partitions its next request names, and
when the request is due.

The fetch session is incremental (KIP-227): a request names the partitions that changed since the
previous request. The session does not decide whether an answer is accepted. Records are accepted
only if the leader epoch is still that of the request, and the requested offset is still the end of
the log.
"""

from libc.stdint cimport int16_t, int32_t, int64_t

from ottla.log.files.clock cimport Clock
from ottla.replication.fetch_request cimport FetchedPartition, fetch_frame
from ottla.replication.fetch_settings cimport FetchSettings
from ottla.replication.partition cimport Partition
from ottla.wire.marks cimport reached

import logging

from ottla.replication.fetch_reply import MalformedReply
from ottla.wire.errors import name_of

log = logging.getLogger("ottla.fetcher")

cdef enum:
    NAMED_MAX = 2000                    # the most partitions that one request names
    OUTSTANDING_MAX = 2
    BACKOFF_MS_MIN = 50

cdef int64_t NOT_BEFORE_NEWS = 0x7fffffffffffffff


cdef class FetchPlan:
    """The partitions that this broker, `node_id`, copies from the broker `source_id`."""

    def __init__(self, int node_id, int source_id, Clock clock, FetchSettings settings, dict cut):
        self.node_id, self.source_id, self.clock, self.settings = (
            node_id, source_id, clock, settings)
        self.broker_epoch, self.cut = -1, cut
        self.items, self.changed, self.resting, self.removed = {}, {}, {}, {}
        self.reset()

    def __len__(self):
        return len(self.items)

    # -- partitions ------------------------------------------------------------------------------

    def follow(self, Partition partition not None):
        """Begin to fetch a partition in its current leader epoch."""
        cdef FetchedPartition item
        key = (partition.topic_id, partition.index)
        item = self.items.get(key)
        if (item is not None and item.partition is partition
                and item.epoch == partition.leader_epoch):
            return
        if item is not None and item.partition is partition:
            reached("a fetcher goes on with a partition in a new leader epoch")
        self.remove(key)
        item = FetchedPartition.__new__(FetchedPartition)
        item.partition, item.key, item.epoch = partition, key, partition.leader_epoch
        item.is_cut = partition in self.cut
        # If the removal of the key was not sent yet, the fetch session still has the partition.
        item.named = self.removed.pop(key, False)
        item.told_epoch, item.told_in = -1, self.requests + 1
        self.items[key] = self.changed[key] = item
        self.news = True

    def drop(self, Partition partition not None):
        """Stop fetching a partition, unless another Partition object is fetched in its place."""
        key = (partition.topic_id, partition.index)
        if key in self.items and (<FetchedPartition>self.items[key]).partition is partition:
            self.remove(key)

    cdef int remove(self, tuple key) except -1:
        cdef FetchedPartition item = self.items.pop(key, None)
        self.changed.pop(key, None)
        self.resting.pop(key, None)
        if item is not None and item.named:
            self.removed[key] = True
            self.news = True
        return 0

    def checkpointed(self, partitions):
        """Resume fetching these truncated partitions: their recovery points are on disk now."""
        cdef FetchedPartition item
        for partition in list(partitions):
            self.cut.pop(partition, None)
            item = self.items.get((partition.topic_id, partition.index))
            if item is not None and item.is_cut:
                item.is_cut = False
                self.tell(partition)

    def synced(self, Partition partition not None):
        """A flush of the partition's log has ended; returns whether the partition is fetched
        again."""
        cdef FetchedPartition item = self.items.get((partition.topic_id, partition.index))
        if item is None or not item.is_syncing:
            return False
        item.is_syncing = False
        return self.tell(partition)

    def tell(self, Partition partition not None):
        """Report the log's offsets to the leader with the next request; returns whether the
        partition is fetched here."""
        cdef FetchedPartition item = self.items.get((partition.topic_id, partition.index))
        if item is not None:
            self.changed[item.key] = item
            self.news = True
        return item is not None

    def reset(self):
        """The connection broke or is new: replies to earlier requests will not arrive."""
        if self.outstanding:
            reached("a link broke with replies to fetches due")
        self.outstanding, self.replies = 0, self.requests
        self.end_session()

    cdef int end_session(self) except -1:
        cdef FetchedPartition item
        self.session_id = self.session_epoch = 0
        self.removed.clear()
        for item in self.items.values():
            item.named = False
            item.told_in = self.requests + 1    # answers to earlier requests are stale
            if item.key not in self.resting:
                self.changed[item.key] = item
        return 0

    cdef bint is_followed(self, FetchedPartition item) noexcept:
        return (
            item.partition.role.following and item.partition.leader_id == self.source_id
            and item.partition.leader_epoch == item.epoch)

    cdef bint is_current(self, FetchedPartition item) except -1:
        return self.items.get(item.key) is item and self.is_followed(item)

    @property
    def due_ms(self):
        """When to call `request` again, in the time of `Clock.monotonic_ms`; -1 means that there is
        nothing to request until `news` is set."""
        cdef FetchedPartition item
        cdef int64_t due = NOT_BEFORE_NEWS
        if self.changed or self.removed or self.names_any():
            due = 0
        for item in self.resting.values():
            due = min(due, item.again_ms)
        return -1 if due == NOT_BEFORE_NEWS else max(due, self.again_ms)

    cdef bint names_any(self):
        """Whether the fetch session has any partitions."""
        return any([(<FetchedPartition>each).named for each in self.items.values()])

    # -- requests --------------------------------------------------------------------------------

    def request(self):
        """The next request, a whole frame; None if no request is to be sent now."""
        cdef FetchedPartition item
        cdef int64_t now_ms = self.clock.monotonic_ms()
        if now_ms < self.again_ms or self.outstanding and (
                self.outstanding >= OUTSTANDING_MAX or not self.session_id):
            return None
        for item in list(self.resting.values()):
            if item.again_ms <= now_ms:
                del self.resting[item.key]
                self.changed[item.key] = item
        named, forgotten = self.choose()
        if not named and not forgotten and not self.names_any():
            self.news = False
            return None
        self.requests += 1
        frame = fetch_frame(
            self.settings, self.requests, self.session_id, self.session_epoch, named, forgotten,
            self.node_id, self.broker_epoch)
        if self.session_id:
            self.session_epoch = self.session_epoch + 1 if self.session_epoch < 0x7fffffff else 1
        self.outstanding += 1
        assert self.outstanding <= OUTSTANDING_MAX and len(named) <= NAMED_MAX
        self.news = bool(self.changed)                  # partitions not named need another request
        return frame

    def choose(self):
        """The partitions that the next request names, and the keys that it removes."""
        cdef FetchedPartition item
        cdef Partition partition
        named, forgotten = [], list(self.removed)
        self.removed.clear()
        for item in list(self.changed.values()):
            partition = item.partition
            if len(named) == NAMED_MAX:
                break
            del self.changed[item.key]
            if self.settings.throttle is not None and item.key not in self.resting:
                seconds = self.settings.throttle.wait_for(partition, self.node_id)
                if seconds > 0:
                    self.rest(item, max(<int64_t>(seconds * 1000), BACKOFF_MS_MIN))
            if partition.must_sync() and not item.is_syncing and self.is_followed(item):
                # With flush.messages, the next fetch may report an offset only once all records
                # below it are on disk.
                item.is_syncing = True
                reached("a follower flushes before its next fetch")
                partition.cluster.flush(partition)
            if (not self.is_followed(item) or item.is_cut or item.is_syncing
                    or item.key in self.resting):
                if item.named:
                    forgotten.append(item.key)
                    item.named = False
                continue
            if (item.named and item.told_offset == partition.log.log_end_offset
                    and item.told_epoch == item.epoch
                    and item.told_last_epoch == partition.log.latest_epoch
                    and item.told_start == partition.told_start()):
                continue
            item.told_offset = partition.log.log_end_offset
            item.told_start = partition.told_start()
            item.told_epoch, item.told_last_epoch = item.epoch, partition.log.latest_epoch
            item.told_in, item.named = self.requests + 1, True
            named.append(item)
        return named, forgotten

    # -- replies ---------------------------------------------------------------------------------

    cdef int reply_begins(
        self, int32_t correlation_id, int16_t error, int32_t session_id
    ) except -1:
        """Begin a reply. Raises MalformedReply if the reply to another request was expected."""
        if correlation_id != <int32_t>((self.replies + 1) & 0x7fffffff):
            raise MalformedReply(
                f"a reply to request {correlation_id} arrived, but the reply to request"
                f" {self.replies + 1} was expected")
        self.replies += 1
        assert self.replies <= self.requests, "a reply arrived that no request had asked for"
        if error == 0 and not self.session_id and session_id:
            self.session_id, self.session_epoch = session_id, 1
        return 0

    cdef FetchedPartition answered(self, bytes topic_id, int32_t index):
        """The partition that an answer belongs to; None if the answer is outdated."""
        cdef FetchedPartition item = self.items.get((topic_id, index))
        if item is not None and (not self.is_followed(item) or self.is_late(item)):
            if item.named and item.told_in <= self.replies:
                self.name_again(item)                   # the session needs the new offset
            reached("a fetch answer was late for its partition")
            item = None
        return item

    cdef bint is_late(self, FetchedPartition item) noexcept:
        """Whether an answer belongs to an outdated request."""
        return (
            item.told_in > self.replies or item.told_epoch != item.epoch
            or item.told_offset != item.partition.log.log_end_offset)

    cdef int name_again(self, FetchedPartition item) except -1:
        """Name the partition in the next request, which reports its offsets to the leader."""
        self.changed[item.key] = item
        return 0

    cdef int note_cut(self, FetchedPartition item) except -1:
        reached("a truncation waits for its checkpoint")
        item.is_cut = True
        self.cut[item.partition] = None
        return 0

    cdef int rest(self, FetchedPartition item, int64_t ms) except -1:
        """Fetch a partition again after `ms`; with -1, only in another leader epoch."""
        item.again_ms = NOT_BEFORE_NEWS if ms < 0 else self.clock.monotonic_ms() + ms
        self.resting[item.key] = item
        # The next request removes the partition from the session. If it stayed in the session, its
        # records or its error would make the leader answer each request at once.
        return self.name_again(item)

    cdef int rest_longer(self, FetchedPartition item) except -1:
        """Fetch a partition again after a time that grows with each error."""
        item.backoff_ms = min(
            max(2 * item.backoff_ms, BACKOFF_MS_MIN), self.settings.backoff_ms_max)
        return self.rest(item, item.backoff_ms)

    cdef int reply_ends(self, int16_t error) except -1:
        self.outstanding -= 1
        assert 0 <= self.outstanding <= self.requests - self.replies
        if error == 0:
            self.backoff_ms = 0
            if not self.session_id:
                self.end_session()                      # no session: name all partitions again
            return 0
        # The leader has lost the session, or the request was refused as a whole.
        self.backoff_ms = min(
            max(2 * self.backoff_ms, BACKOFF_MS_MIN), self.settings.backoff_ms_max)
        self.again_ms = self.clock.monotonic_ms() + self.backoff_ms
        reached("a fetch was refused as a whole")
        log.info("broker %d refused a fetch: %s", self.source_id, name_of(error))
        return self.end_session()
