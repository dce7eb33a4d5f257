# cython: boundscheck=False, wraparound=False
"""A follower's side of Fetch, without a socket: it decides what to request, and parses replies as
their bytes arrive, appending whole batches from the receiver's buffer into segments.

There is one for each broker that partitions are fetched from. The session is incremental (KIP-227):
a request names what changed since the previous one. Whether an answer is accepted never depends on
the session, but on the leader epoch and the offset: data are accepted only if the requested offset
is still the end of the log, in the epoch in which it was requested.

Logs that diverge are truncated by epochs (`FollowerReplica.diverged`); a truncation that must be in a
checkpoint first is in `cut` until `checkpointed`.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from ottla.log.files.clock cimport Clock
from ottla.log.partition.follower_batches cimport bytes_wanted, checked_batches, due_offset
from ottla.replication.fetch_request cimport FetchedPartition, fetch_frame
from ottla.replication.fetch_settings cimport FetchSettings
from ottla.replication.partition cimport Partition
from ottla.replication.roles.follower_replica cimport FollowerReplica
from ottla.wire.codec cimport Cursor
from ottla.wire.marks cimport reached

import logging

from ottla.wire.errors import CorruptMessage, ErrorCode, MalformedMessage, StorageFailed, name_of

log = logging.getLogger("ottla.fetcher")

cdef enum:
    LENGTH_SIZE = 4
    NAMED_MAX = 2000                    # partitions that one request names
    OUTSTANDING_MAX = 2
    UNIT_SIZE_MAX = 1 << 16             # of what precedes or follows the records of a partition
    BACKOFF_MS_MIN = 50
    CORRUPT_MS = 1000
    # The part of a reply that comes next.
    FRAME = 0
    TOPIC = 1
    PARTITION = 2
    RECORDS = 3
    CUT_RECORDS = 4                     # the rest of records that end within a batch
    PARTITION_TAGS = 5
    TOPIC_TAGS = 6
    BODY_TAGS = 7

cdef int64_t NOT_BEFORE_NEWS = 0x7fffffffffffffff

cdef int16_t OFFSET_OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE
cdef int16_t FENCED_LEADER_EPOCH = ErrorCode.FENCED_LEADER_EPOCH


class MalformedReply(MalformedMessage):
    """The bytes cannot be a Fetch reply, whatever follows."""


cdef FollowerReplica follower_of(FetchedPartition item):
    """The role of a partition that is fetched from its leader."""
    return item.partition.role


cdef class Fetcher:
    """Copies partitions from the broker `source_id` to this one, `node_id`."""

    def __init__(self, int node_id, int source_id, Clock clock, FetchSettings settings, dict cut):
        self.node_id, self.source_id, self.clock, self.settings = (
            node_id, source_id, clock, settings)
        self.broker_epoch, self.cut = -1, cut
        self.items, self.changed, self.resting, self.removed = {}, {}, {}, {}
        self.cursor = Cursor()
        self.reset()

    def __len__(self):
        return len(self.items)

    # -- what is fetched -------------------------------------------------------------------------

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
        # The session may still have it: name it again.
        item.named = self.removed.pop(key, False)
        item.told_epoch, item.told_in = -1, self.requests + 1
        self.items[key] = self.changed[key] = item
        self.news = True

    def drop(self, Partition partition not None):
        """Stop fetching a partition, unless one that has come back here is fetched instead."""
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
        """The recovery points of these are on disk: fetch them again."""
        cdef FetchedPartition item
        for partition in list(partitions):
            self.cut.pop(partition, None)
            item = self.items.get((partition.topic_id, partition.index))
            if item is not None and item.is_cut:
                item.is_cut = False
                self.tell(partition)

    def synced(self, Partition partition not None):
        """A flush of its log has ended; returns whether it is fetched again."""
        cdef FetchedPartition item = self.items.get((partition.topic_id, partition.index))
        if item is None or not item.is_syncing:
            return False
        item.is_syncing = False
        return self.tell(partition)

    def tell(self, Partition partition not None):
        """Have the leader told of its log's offsets; returns whether it is fetched here."""
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
        self.state, self.wanted, self.reply_left, self.item = FRAME, LENGTH_SIZE, 0, None
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
        """When to call `request` again, as `Clock.monotonic_ms`; -1: not before news."""
        cdef FetchedPartition item
        cdef int64_t due = NOT_BEFORE_NEWS
        if self.changed or self.removed or self.names_any():
            due = 0
        for item in self.resting.values():
            due = min(due, item.again_ms)
        return -1 if due == NOT_BEFORE_NEWS else max(due, self.again_ms)

    cdef bint names_any(self):
        """Whether the session has a partition."""
        return any([(<FetchedPartition>each).named for each in self.items.values()])

    # -- requests --------------------------------------------------------------------------------

    def request(self):
        """The next request, a whole frame; None if there is nothing to fetch now."""
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
        self.news = bool(self.changed)                  # more than fits into one request
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
                # What the leader learns from the next fetch is on the medium (flush.messages).
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

    def feed(self, const uint8_t[::1] data):
        """`take`, for Python."""
        return self.take(&data[0], data.shape[0]) if data.shape[0] else 0

    cdef Py_ssize_t take(self, const uint8_t *data, Py_ssize_t size) except -1:
        """Parse replies from the bytes that a connection received, frame lengths included.

        Returns how many bytes are consumed: the others must be passed again, before those that
        follow; at least `wanted` bytes are needed to continue. Raises MalformedMessage: the
        connection is unusable, and `reset` must follow.
        """
        cdef Py_ssize_t used = 0, taken
        while self.state != FRAME or size - used >= LENGTH_SIZE:
            taken = self.step(data + used, size - used)
            if taken < 0:
                return used
            used += taken
        self.wanted = LENGTH_SIZE               # most replies arrive alone
        return used

    cdef Py_ssize_t step(self, const uint8_t *data, Py_ssize_t size) except -2:
        """Parse one part of a reply; returns its size, -1 if more bytes are needed."""
        cdef Py_ssize_t held = size
        cdef Cursor cursor = self.cursor
        if self.state == RECORDS or self.state == CUT_RECORDS:
            return self.take_records(data, min(<int64_t>size, self.records_left))
        if self.state != FRAME:
            held = min(<int64_t>size, self.reply_left)
        cursor.at, cursor.end = data, data + held
        try:
            self.read_unit(cursor)
        except MalformedReply:
            raise
        except MalformedMessage:
            if held > UNIT_SIZE_MAX or (self.state != FRAME and held == self.reply_left):
                raise
            self.wanted = size + 1
            return -1
        return cursor.at - data

    cdef int read_unit(self, Cursor cursor) except -1:
        """Parse what `state` says; the fields change only if all of it has arrived."""
        cdef const uint8_t *began = cursor.at
        cdef int state = self.state
        if state == FRAME:
            return self.read_frame(cursor)
        if state == TOPIC:
            topic_id = cursor.read_uuid()
            self.partitions_left = self.count(cursor, "partitions")
            self.topic_id = topic_id
            self.state = PARTITION if self.partitions_left else TOPIC_TAGS
        elif state == PARTITION:
            self.read_partition(cursor)
        elif state == PARTITION_TAGS:
            self.read_tags(cursor)
            self.partitions_left -= 1
            self.state = PARTITION if self.partitions_left else TOPIC_TAGS
        elif state == TOPIC_TAGS:
            cursor.skip_tags()
            self.topics_left -= 1
            self.state = TOPIC if self.topics_left else BODY_TAGS
        else:
            cursor.skip_tags()
            self.reply_left -= cursor.at - began
            return self.end_reply()
        self.reply_left -= cursor.at - began
        return 0

    cdef int read_frame(self, Cursor cursor) except -1:
        """| length | correlation id | tags | throttle ms | error | session id | topics count |"""
        cdef const uint8_t *began
        cdef int64_t length = cursor.read_int32()
        cdef int32_t correlation_id, session_id
        cdef int16_t error
        if length < 16 or not self.outstanding:
            raise MalformedReply(f"a reply of {length} bytes, {self.outstanding} were due")
        began = cursor.at
        correlation_id = cursor.read_int32()
        cursor.skip_tags()
        cursor.read_int32()
        error = cursor.read_int16()
        session_id = cursor.read_int32()
        self.reply_left = length
        topics = self.count(cursor, "topics")
        if correlation_id != <int32_t>((self.replies + 1) & 0x7fffffff):
            raise MalformedReply(f"a reply to request {correlation_id}, {self.replies + 1} is due")
        self.topics_left, self.error = topics, error
        self.replies += 1
        if error == 0 and not self.session_id and session_id:
            self.session_id, self.session_epoch = session_id, 1
        self.reply_left = length - (cursor.at - began)
        self.state = TOPIC if self.topics_left else BODY_TAGS
        return 0

    cdef Py_ssize_t count(self, Cursor cursor, str what) except -1:
        """The length of an array, whose elements need not have arrived."""
        cdef int64_t count = <int64_t>cursor.read_unsigned_varint() - 1
        if not 0 <= count <= self.reply_left:
            raise MalformedReply(f"Fetch reply: {count} {what}")
        return count

    cdef int read_partition(self, Cursor cursor) except -1:
        """The fields before the records of a partition."""
        cdef FetchedPartition item
        cdef int32_t index = cursor.read_int32()
        cdef int16_t error = cursor.read_int16()
        cdef int64_t high_watermark = cursor.read_int64(), log_start, size, aborted
        cursor.read_int64()                             # last_stable_offset
        log_start = cursor.read_int64()
        aborted = <int64_t>cursor.read_unsigned_varint() - 1
        while aborted > 0:
            aborted -= 1
            cursor.take(16, "aborted transaction")
            cursor.skip_tags()
        cursor.read_int32()                             # preferred_read_replica
        size = max(<int64_t>cursor.read_unsigned_varint() - 1, 0)
        if size > self.reply_left:
            raise MalformedReply(f"Fetch reply: {size} bytes of records")
        item = self.items.get((self.topic_id, index))
        if item is not None and (not self.is_followed(item) or self.is_late(item)):
            if item.named and item.told_in <= self.replies:
                self.changed[item.key] = item           # the session needs its new offset
            reached("a fetch answer was late for its partition")
            item = None
        self.item, self.partition_error = item, error
        self.high_watermark, self.log_start = high_watermark, log_start
        self.records_left = size
        if item is not None and error == 0:
            item.backoff_ms = 0
        self.state = RECORDS if size else PARTITION_TAGS
        return 0

    cdef bint is_late(self, FetchedPartition item) noexcept:
        """Whether an answer belongs to a request that is no longer wanted."""
        return (
            item.told_in > self.replies or item.told_epoch != item.epoch
            or item.told_offset != item.partition.log.log_end_offset)

    cdef Py_ssize_t take_records(self, const uint8_t *data, Py_ssize_t size) except -2:
        """Append the whole batches in `data`; -1 if the first one is not complete yet."""
        cdef Py_ssize_t taken = 0, wanted = 1
        cdef Partition partition
        if self.item is not None and not self.is_current(self.item):
            self.item = None                            # its role changed during the reply
            reached("a partition changed its role amid a fetch reply")
        if size == 0:
            pass
        elif self.item is None or self.partition_error != 0 or self.state == CUT_RECORDS:
            taken = size
        else:
            partition = self.item.partition
            try:
                taken = checked_batches(
                    data, size, due_offset(partition.log, data, size), partition.log.latest_epoch,
                    self.item.epoch, size < self.records_left)
            except CorruptMessage as error:
                log.error("%r: node %d sent %s", partition, self.source_id, error)
                reached("a follower refused a batch of its leader")
                self.rest(self.item, CORRUPT_MS)
                self.item = None
                return 0
            if taken:
                self.append(data, taken)
            else:
                wanted = bytes_wanted(data, size, self.records_left)
                if size == self.records_left or wanted > self.records_left:
                    # A leader may send an incomplete last batch, of which this may be a part.
                    taken, self.state = size, CUT_RECORDS
                    reached("a fetch reply ended within a batch")
                    self.changed[self.item.key] = self.item
        if not taken:
            self.wanted = wanted
            return -1
        self.records_left -= taken
        self.reply_left -= taken
        if not self.records_left:
            self.state = PARTITION_TAGS
        return taken

    cdef int append(self, const uint8_t *data, Py_ssize_t size) except -1:
        cdef FetchedPartition item = self.item
        try:
            follower_of(item).append_run(item.partition, data, size)
        except (StorageFailed, CorruptMessage) as error:
            self.failed(item, "appended to", error)
            self.item = None
        else:
            self.bytes_fetched += size
            if self.settings.throttle is not None:
                self.settings.throttle.record(item.partition.topic, item.partition.index, size)
            self.changed[item.key] = item
        return 0

    cdef int read_tags(self, Cursor cursor) except -1:
        """The fields after a partition's records: tag 0 is where the logs diverge (KIP-595)."""
        cdef uint32_t left = cursor.read_tag_count(), tag, size
        cdef const uint8_t *after
        cdef int32_t epoch = -1
        cdef int64_t end = -1
        while left > 0:
            left -= 1
            tag = cursor.read_unsigned_varint()
            size = cursor.read_unsigned_varint()
            after = cursor.take(size, "tagged field") + size
            if tag == 0 and size >= 12:
                cursor.at -= size
                epoch, end = cursor.read_int32(), cursor.read_int64()
                cursor.at = after
        if self.item is not None and self.is_current(self.item):
            if end >= 0:
                self.diverged(self.item, epoch, end)
            else:
                self.after_partition()
        self.item = None
        return 0

    cdef int after_partition(self) except -1:
        cdef FetchedPartition item = self.item
        if self.partition_error != 0:
            return self.refused(item, self.partition_error)
        try:
            follower_of(item).follow_leader(
                item.partition, self.high_watermark, self.log_start)
        except (StorageFailed, CorruptMessage) as error:
            return self.failed(item, "cut at its start", error)
        if item.told_start != item.partition.told_start():
            self.changed[item.key] = item
        return 0

    cdef int diverged(self, FetchedPartition item, int32_t epoch, int64_t end) except -1:
        cdef Partition partition = item.partition
        if self.is_late(item):
            reached("the answer that logs diverge came too late")
            return 0
        before = partition.log.log_end_offset
        if end <= partition.log.last_stable_offset < before:
            reached("a follower has to drop the begin of an open transaction")
        if end < partition.high_watermark:
            reached("a follower's log diverges below its high watermark")
        self.changed[item.key] = item
        try:
            if follower_of(item).diverged(
                    partition, epoch, end, max(self.log_start, <int64_t>0)):
                self.note_cut(item)
        except (StorageFailed, CorruptMessage) as error:
            return self.failed(item, "truncated", error)
        if partition.log.log_end_offset != before:
            reached("a follower was truncated")
            log.info(
                "%r: truncated from %d to %d, where node %d's epoch %d ends at %d", partition,
                before, partition.log.log_end_offset, self.source_id, epoch, end)
        return 0

    cdef int note_cut(self, FetchedPartition item) except -1:
        reached("a truncation waits for its checkpoint")
        item.is_cut = True
        self.cut[item.partition] = None
        return 0

    cdef int refused(self, FetchedPartition item, int16_t code) except -1:
        """The leader has answered a partition with an error."""
        cdef Partition partition = item.partition
        if code == FENCED_LEADER_EPOCH:
            reached("a follower's fetch was fenced")
            return self.rest(item, -1)                  # wait for a newer one in the image
        if code == OFFSET_OUT_OF_RANGE and self.log_start >= 0 and (
                partition.log.log_end_offset < self.log_start
                or partition.log.log_start_offset == partition.log.log_end_offset):
            log.warning(
                "%r: restarted at offset %d, since it ended at %d and node %d has no older records",
                partition, self.log_start, partition.log.log_end_offset, self.source_id)
            reached("a follower began anew at its leader's log start")
            self.changed[item.key] = item
            try:
                follower_of(item).start_anew(partition, self.log_start)
            except (StorageFailed, CorruptMessage) as error:
                return self.failed(item, "restarted", error)
            return self.note_cut(item)
        reached("a leader refused a partition of a fetch")
        item.backoff_ms = min(
            max(2 * item.backoff_ms, BACKOFF_MS_MIN), self.settings.backoff_ms_max)
        return self.rest(item, item.backoff_ms)

    cdef int failed(self, FetchedPartition item, str what, error) except -1:
        # A directory that has failed stays so; a full disk, or a lack of descriptors, may pass.
        offline = item.partition.log.health.offline is not None
        reached("a follower could not write what it fetched")
        log.error("%r could not be %s: %s", item.partition, what, error)
        return self.rest(item, -1 if offline else self.settings.backoff_ms_max)

    cdef int rest(self, FetchedPartition item, int64_t ms) except -1:
        """Fetch a partition again after this time; -1: only in another leader epoch."""
        item.again_ms = NOT_BEFORE_NEWS if ms < 0 else self.clock.monotonic_ms() + ms
        self.resting[item.key] = item
        # Remove it from the session meanwhile, or the leader would answer at once, again and again.
        self.changed[item.key] = item
        return 0

    cdef int end_reply(self) except -1:
        if self.reply_left:
            raise MalformedReply(f"Fetch reply: {self.reply_left} bytes too many")
        self.outstanding -= 1
        self.state, self.wanted = FRAME, LENGTH_SIZE
        if self.error == 0:
            self.backoff_ms = 0
            if not self.session_id:
                self.end_session()                      # no session: name all again
            return 0
        # The leader has lost the session, or the request was refused as a whole.
        self.backoff_ms = min(
            max(2 * self.backoff_ms, BACKOFF_MS_MIN), self.settings.backoff_ms_max)
        self.again_ms = self.clock.monotonic_ms() + self.backoff_ms
        reached("a fetch was refused as a whole")
        log.info("node %d refused a fetch: %s", self.source_id, name_of(self.error))
        return self.end_session()
