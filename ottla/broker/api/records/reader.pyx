# cython: boundscheck=False, wraparound=False
"""One Fetch request, and two strategies for it: the kind of reader (`Reader`), and the record
formats that the client understands (`RecordFormat`).

The strategies keep no state of a request. The `Reader` in this file is a consumer that reads from
the leader, and the `RecordFormat` is for clients that understand all stored batches. The subclasses
are in `replica_fetch`, `follower_reads` and `legacy_fetch`.
"""

from libc.stdint cimport int16_t, int64_t

from ottla.broker.api.records.conversions cimport CONVERSION_SIZE_MAX, count_converted
from ottla.broker.api.records.fetch_sessions cimport FetchItem
from ottla.broker.network.promises cimport Wait
from ottla.replication.partition cimport Partition

from ottla.wire.errors import ErrorCode

cdef int16_t STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
cdef int16_t NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
cdef int16_t CORRUPT_MESSAGE = ErrorCode.CORRUPT_MESSAGE

UNKNOWN = frozenset({
    int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), int(ErrorCode.UNKNOWN_TOPIC_ID),
    int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
})
"""The errors for partitions that do not exist or that the client may not read."""


cdef class Fetch:
    cdef int begin_look(self, bint final) except -1:
        """Reset the results of the previous look."""
        self.due = self.at_once = final or self.wait_ms_max <= 0 or self.error != 0
        self.in_reply = []
        self.total = self.listed = self.served = self.unfit = self.absent = 0
        self.room, self.conversion_left = self.size_max, CONVERSION_SIZE_MAX
        self.converting, self.waits = None, False
        if self.session is not None:
            self.session.moved_meanwhile = False
        return 0

    cdef int refuse(self, FetchItem item, int16_t code) except -1:
        """Answer an item with an error and no records."""
        if code == CORRUPT_MESSAGE and item.partition is not None and item.partition.role.following:
            code = STORAGE_ERROR                        # clients then ask the leader
        if code == STORAGE_ERROR and self.version <= 5:
            code = NOT_LEADER                           # these clients retry after this code
        item.error, item.slice, item.converted, item.preferred = code, None, None, -1
        # As in Kafka: an empty list if the error is known before a read, otherwise null.
        item.aborted = [] if code in UNKNOWN and not self.looked else None
        if item.partition is not None:
            item.partition.counters.failed_fetches += 1
        return 0


cdef class Reader:
    """A consumer that asks the leader."""

    def __cinit__(self):
        self.consumer = True

    cdef int admit(self, Fetch fetch, FetchItem item) except -1:
        """Raise unless this broker may serve the item's partition to this reader."""
        item.partition.check_leader(max(item.current_leader_epoch, -1))
        return MAY_READ

    cdef object topic_to_check(self, FetchItem item):
        """The topic that the client must be allowed to read; None for all topics."""
        return item.topic

    cdef int64_t end(self, Fetch fetch, Partition partition) except -1:
        """The offset up to which this client may read."""
        return partition.readable_end(fetch.committed_only)

    cdef int64_t end_found(self, Fetch fetch, FetchItem item) noexcept:
        """The offset of `end` as the last look found it; -1 for a partition that was refused."""
        return item.last_stable_offset if fetch.committed_only else item.high_watermark

    cdef int has_read(self, Fetch fetch, FetchItem item) except -1:
        """Called after the log was read at the item's fetch offset, which is therefore valid."""
        return 0

    cdef bint has_new_offsets(self, Fetch fetch, FetchItem item) noexcept:
        """Whether a partition has new offsets that end the wait."""
        return False

    cdef int watch(self, Partition partition, Wait wait) except -1:
        """Wake `wait` when there is more to read."""
        partition.watch(wait)
        return 0

    cdef int count_sent(self, FetchItem item, Py_ssize_t size) except -1:
        """Count an answer with `size` bytes of stored records, or with converted records."""
        item.partition.counters.fetches += 1
        item.partition.counters.bytes_out += (
            size if item.converted is None else count_converted(item))
        return 0


cdef class RecordFormat:
    """Batches as they are stored, in any codec: Fetch 10 and above."""

    cdef int read(
        self, Fetch fetch, FetchItem item, int64_t room, bint at_least_one
    ) except -1:
        """Find the records to send: at most `room` bytes, but at least one batch if `at_least_one`
        is true."""
        if item.diverging_epoch < 0:
            item.slice = item.partition.log.read(
                item.fetch_offset, max(min(<int64_t>item.size_max, room), 0), at_least_one,
                fetch.reader.end(fetch, item.partition), True)
            fetch.reader.has_read(fetch, item)
        return 0

    cdef int forget(self, Fetch fetch) except -1:
        """Drop the conversions that were made for a look without a reply."""
        return 0
