# One Fetch request, its kind of reader and that reader's record format; see reader.pyx.

from libc.stdint cimport int16_t, int32_t, int64_t

from ottla.broker.api.records.fetch_sessions cimport FetchItem, FetchSession
from ottla.broker.network.promises cimport Wait
from ottla.broker.security.client cimport Client
from ottla.replication.partition cimport Partition

cdef enum:
    CONSUMER = -1                       # the replica id of a client that is no replica
    NO_SESSION = 0
    FINAL_EPOCH = -1

cdef enum:                              # what `Reader.admit` returns
    MAY_READ = 0
    MAY_NOT_YET = 1                     # the reply has the partition's offsets, but no records
    REDIRECTED = 2                      # the reply sends the consumer to `item.preferred`


cdef class Fetch:
    """One Fetch request, kept while it waits."""
    cdef int version
    cdef readonly int32_t wait_ms_max
    cdef int32_t size_min, size_max
    cdef int32_t replica_id             # -1: a consumer
    cdef int64_t replica_epoch          # a replica's broker epoch
    cdef str rack                       # where the consumer is, or None
    cdef bint committed_only
    cdef int32_t session_id, session_epoch
    cdef bint incremental
    cdef int16_t error                  # of the whole request
    cdef FetchSession session
    cdef list items                     # FetchItem, in the order of the request
    cdef list forgotten                 # (topic, index) of each; None if there are none
    cdef Client client
    cdef Reader reader
    cdef RecordFormat format
    cdef bint looked                    # all items were looked at since the request came
    cdef bint watching                  # whether changes of its partitions wake it
    # The state of one call of `FetchHandler.look` (a look).
    cdef bint at_once                   # answer now, whatever the look finds
    cdef bint due                       # answer now, since the look has found enough bytes or news
    cdef list in_reply                  # the items in the reply
    cdef int64_t total, listed          # bytes of records, and of aborted transactions
    cdef int64_t room                   # bytes that the reply may still get
    cdef Py_ssize_t served, unfit       # partitions with records; with records that did not fit
    cdef Py_ssize_t absent              # number of items that are unknown or refused
    cdef double began                   # when the look began; 0 if it has too few items for a limit
    cdef object converting              # the Conversion that `look` has to wait for
    cdef object rebuild                 # the IndexRebuild that a look last asked for, or None
    cdef bint waits                     # the last look has to wait for `rebuild`
    cdef int64_t conversion_left        # bytes that this look may still convert
    cdef list leaders                   # brokers that lead refused partitions (KIP-951), or None

    cdef int begin_look(self, bint final) except -1
    cdef int refuse(self, FetchItem item, int16_t code) except -1


cdef class Reader:
    """The kind of reader: all requests of a kind share one object."""
    cdef bint consumer                  # has quotas, and waits even if some partitions are absent

    cdef int admit(self, Fetch fetch, FetchItem item) except -1
    cdef object topic_to_check(self, FetchItem item)
    cdef int64_t end(self, Fetch fetch, Partition partition) except -1
    cdef int64_t end_found(self, Fetch fetch, FetchItem item) noexcept
    cdef int has_read(self, Fetch fetch, FetchItem item) except -1
    cdef bint has_new_offsets(self, Fetch fetch, FetchItem item) noexcept
    cdef int watch(self, Partition partition, Wait wait) except -1
    cdef int count_sent(self, FetchItem item, Py_ssize_t size) except -1


cdef class RecordFormat:
    """The record formats and codecs that a client understands: one object for each kind."""
    cdef int read(
        self, Fetch fetch, FetchItem item, int64_t room, bint at_least_one) except -1
    cdef int forget(self, Fetch fetch) except -1
