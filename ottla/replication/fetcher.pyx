# cython: boundscheck=False, wraparound=False
"""A follower's side of Fetch, without a socket. It applies a leader's replies to the logs of
followed partitions as the bytes arrive: whole batches go from the receive buffer into segments.

There is one Fetcher for each broker from which partitions are fetched. Its FetchPlan decides what
to request and which answers to accept; its ReplyParser splits replies into parts. A log that
diverges from its leader's is truncated (`FollowerReplica.diverged`). If a truncation must be in a
checkpoint before the next fetch, the partition stays in the plan's `cut` until `checkpointed` is
called.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from ottla.log.files.clock cimport Clock
from ottla.log.partition.follower_batches cimport bytes_wanted, checked_batches, due_offset
from ottla.replication.fetch_plan cimport FetchPlan
from ottla.replication.fetch_reply cimport ReplyParser, ReplyReceiver
from ottla.replication.fetch_request cimport FetchedPartition
from ottla.replication.fetch_settings cimport FetchSettings
from ottla.replication.partition cimport Partition
from ottla.replication.roles.follower_replica cimport FollowerReplica
from ottla.wire.marks cimport reached

import logging

from ottla.wire.errors import CorruptMessage, ErrorCode, StorageFailed

log = logging.getLogger("ottla.fetcher")

cdef int64_t CORRUPT_MS = 1000

cdef int16_t OFFSET_OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE
cdef int16_t FENCED_LEADER_EPOCH = ErrorCode.FENCED_LEADER_EPOCH


cdef FollowerReplica follower_of(FetchedPartition item):
    """The role of a partition that is fetched from its leader."""
    return item.partition.role


cdef class Fetcher(ReplyReceiver):
    """Copies partitions from the broker `source_id` to this broker, `node_id`."""

    def __init__(self, int node_id, int source_id, Clock clock, FetchSettings settings, dict cut):
        self.plan = FetchPlan(node_id, source_id, clock, settings, cut)
        self.parser = ReplyParser()

    def reset(self):
        """The connection broke or is new: replies to earlier requests will not arrive."""
        self.parser.reset()
        self.item = None
        self.plan.reset()

    def feed(self, const uint8_t[::1] data):
        """`take`, for Python."""
        return self.take(&data[0], data.shape[0]) if data.shape[0] else 0

    cdef Py_ssize_t take(self, const uint8_t *data, Py_ssize_t size) except -1:
        """Parse replies from the bytes that a connection received, frame lengths included.

        Returns how many bytes are consumed. The caller passes the other bytes again, in front of
        the bytes that follow; at least `parser.wanted` bytes are needed to continue. If this raises
        MalformedMessage, the connection is unusable: call `reset`.
        """
        return self.parser.take(self, data, size)

    # -- the parts of a reply --------------------------------------------------------------------

    cdef int replies_due(self) noexcept:
        return self.plan.outstanding

    cdef int reply_begins(
        self, int32_t correlation_id, int16_t error, int32_t session_id
    ) except -1:
        self.plan.reply_begins(correlation_id, error, session_id)
        self.error = error
        return 0

    cdef int partition_begins(
        self, bytes topic_id, int32_t index, int16_t error, int64_t high_watermark,
        int64_t log_start
    ) except -1:
        self.item = self.plan.answered(topic_id, index)
        self.partition_error, self.cut_short = error, False
        self.high_watermark, self.log_start = high_watermark, log_start
        if self.item is not None and error == 0:
            self.item.backoff_ms = 0
        return 0

    cdef Py_ssize_t take_records(
        self, const uint8_t *data, Py_ssize_t size, int64_t left
    ) except? -1:
        """Append the whole batches in `data`."""
        cdef Py_ssize_t taken, wanted
        cdef Partition partition
        if self.item is not None and not self.plan.is_current(self.item):
            self.item = None                            # the role changed during the reply
            reached("a partition changed its role amid a fetch reply")
        if self.item is None or self.partition_error != 0 or self.cut_short:
            return size
        partition = self.item.partition
        try:
            taken = checked_batches(
                data, size, due_offset(partition.log, data, size), partition.log.latest_epoch,
                self.item.epoch, size < left)
        except CorruptMessage as error:
            log.error("%r: broker %d sent damaged records: %s",
                      partition, self.plan.source_id, error)
            reached("a follower refused a batch of its leader")
            self.plan.rest(self.item, CORRUPT_MS)
            self.item = None
            return 0
        if taken:
            self.append(data, taken)
            return taken
        wanted = bytes_wanted(data, size, left)
        if size < left and wanted <= left:
            return -wanted
        # The leader has sent only a part of the last batch: skip it.
        self.cut_short = True
        reached("a fetch reply ended within a batch")
        self.plan.name_again(self.item)
        return size

    cdef int partition_ends(self, int32_t diverging_epoch, int64_t diverging_end) except -1:
        cdef FetchedPartition item = self.item
        self.item = None
        if item is None or not self.plan.is_current(item):
            return 0
        if diverging_end >= 0:
            return self.diverged(item, diverging_epoch, diverging_end)
        if self.partition_error != 0:
            return self.refused(item, self.partition_error)
        return self.follow_leader(item)

    cdef int reply_ends(self) except -1:
        return self.plan.reply_ends(self.error)

    # -- effects on a partition ------------------------------------------------------------------

    cdef int append(self, const uint8_t *data, Py_ssize_t size) except -1:
        cdef FetchedPartition item = self.item
        try:
            follower_of(item).append_run(item.partition, data, size)
        except (StorageFailed, CorruptMessage) as error:
            self.failed(item, "append records to", error)
            self.item = None
        else:
            self.bytes_fetched += size
            if self.plan.settings.throttle is not None:
                self.plan.settings.throttle.record(item.partition.topic, item.partition.index, size)
            self.plan.name_again(item)
        return 0

    cdef int follow_leader(self, FetchedPartition item) except -1:
        try:
            follower_of(item).follow_leader(
                item.partition, self.high_watermark, self.log_start)
        except (StorageFailed, CorruptMessage) as error:
            return self.failed(item, "remove old records of", error)
        if item.told_start != item.partition.told_start():
            self.plan.name_again(item)
        return 0

    cdef int diverged(self, FetchedPartition item, int32_t epoch, int64_t end) except -1:
        cdef Partition partition = item.partition
        if self.plan.is_late(item):
            reached("the answer that logs diverge came too late")
            return 0
        before = partition.log.log_end_offset
        if end <= partition.log.last_stable_offset < before:
            reached("a follower has to drop the begin of an open transaction")
        if end < partition.high_watermark:
            reached("a follower's log diverges below its high watermark")
        self.plan.name_again(item)
        try:
            if follower_of(item).diverged(
                    partition, epoch, end, max(self.log_start, <int64_t>0)):
                self.plan.note_cut(item)
        except (StorageFailed, CorruptMessage) as error:
            return self.failed(item, "truncate", error)
        if partition.log.log_end_offset != before:
            reached("a follower was truncated")
            log.info(
                "%r was truncated from offset %d to %d, because leader epoch %d ends at offset %d "
                "on broker %d",
                partition, before, partition.log.log_end_offset, epoch, end, self.plan.source_id)
        return 0

    cdef int refused(self, FetchedPartition item, int16_t code) except -1:
        """The leader has answered a partition with an error."""
        cdef Partition partition = item.partition
        if code == FENCED_LEADER_EPOCH:
            reached("a follower's fetch was fenced")
            return self.plan.rest(item, -1)             # wait for a newer epoch in the image
        if code == OFFSET_OUT_OF_RANGE and self.log_start >= 0 and (
                partition.log.log_end_offset < self.log_start
                or partition.log.log_start_offset == partition.log.log_end_offset):
            log.warning(
                "%r: the log ended at offset %d. It is emptied and now begins at offset %d, like"
                " the log on broker %d",
                partition, partition.log.log_end_offset, self.log_start, self.plan.source_id)
            reached("a follower began anew at its leader's log start")
            self.plan.name_again(item)
            try:
                follower_of(item).start_anew(partition, self.log_start)
            except (StorageFailed, CorruptMessage) as error:
                return self.failed(item, "empty the log of", error)
            return self.plan.note_cut(item)
        reached("a leader refused a partition of a fetch")
        return self.plan.rest_longer(item)

    cdef int failed(self, FetchedPartition item, str what, error) except -1:
        # A failed directory stays failed; a full disk or a lack of file descriptors may pass.
        offline = item.partition.log.health.offline is not None
        reached("a follower could not write what it fetched")
        log.error("this broker could not %s %r: %s", what, item.partition, error)
        return self.plan.rest(item, -1 if offline else self.plan.settings.backoff_ms_max)
