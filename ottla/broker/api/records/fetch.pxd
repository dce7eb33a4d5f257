# Fetch, served in one pass; see fetch.pyx.

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from ottla.broker.api.records.fetch_sessions cimport FetchItem, FetchSession, FetchSessionCache
from ottla.broker.network.reply cimport Reply
from ottla.broker.security.client cimport Client
from ottla.wire.codec cimport Cursor


cdef class Fetch:
    """One Fetch request, kept while it waits."""
    cdef int version
    cdef readonly int32_t wait_ms_max
    cdef int32_t size_min, size_max
    cdef int32_t replica_id             # -1: a consumer
    cdef int64_t replica_epoch          # a replica's broker epoch
    cdef bint by_replica                # reads to the log's end and moves the high watermark
    cdef bint committed_only
    cdef int32_t session_id, session_epoch
    cdef bint incremental
    cdef int16_t error                  # of the whole request
    cdef FetchSession session
    cdef list items                     # FetchItem, in the order of the request
    cdef list forgotten                 # (topic, index); None without any
    cdef list told                      # the items in the reply
    cdef object converting              # the Conversion that `look` has to wait for
    cdef object rebuild                 # the IndexRebuild that a look asked for last, or None
    cdef bint waits                     # the last look has to wait for it
    cdef int64_t conversion_left        # bytes that this look may still convert
    cdef bint watching
    cdef list leaders                   # brokers that lead refused partitions (KIP-951), or None
    cdef Client client


cdef class Fetching:
    """Serves Fetch: one for the broker."""
    cdef object broker, by_name, by_id
    cdef object authorizer              # None: all clients may read everything
    cdef object throttle                # of replicas that are not in sync (KIP-73), or None
    cdef readonly FetchSessionCache sessions
    cdef int32_t response_size_max

    cdef Fetch read(self, Cursor request, int version)
    cdef int begin(self, Fetch fetch, double now) except -1
    cdef bint put(self, Fetch fetch, FetchSession session) except -1
    cdef bint look(self, Fetch fetch, bint final) except -1
    cdef int write(self, Fetch fetch, Reply reply) except -1
    cdef int read_topics(self, Fetch fetch, Cursor request) except -1
    cdef FetchItem read_item(self, Cursor request, int version, object topic)
    cdef int read_forgotten(self, Fetch fetch, Cursor request) except -1
    cdef int64_t look_at(
        self, Fetch fetch, FetchItem item, int64_t room, bint at_least_one) except -1
    cdef int find_records(
        self, Fetch fetch, FetchItem item, int64_t room, bint at_least_one) except -1
    cdef int read_records(
        self, Fetch fetch, FetchItem item, int64_t room, bint at_least_one) except -1
    cdef int find(self, FetchItem item) except -1
    cdef int need_read(self, Fetch fetch, FetchItem item) except -1
    cdef int find_again(self, Fetch fetch, FetchItem item) except -1
    cdef int refuse(self, Fetch fetch, FetchItem item, int16_t code) except -1
    cdef int write_found(self, Fetch fetch, FetchItem item, Reply reply) except -1
    cdef int write_items(self, Fetch fetch, Reply reply) except -1
    cdef int write_topic(self, Fetch fetch, object topic, list items, Reply reply) except -1
    cdef int write_item(self, Fetch fetch, FetchItem item, Reply reply) except -1
    cdef object read_topic(self, Cursor request, int version)
    cdef int read_tags(self, Fetch fetch, Cursor request) except -1
    cdef Py_ssize_t required(self, Py_ssize_t count, str what) except -1
    cdef int refuse_all(self, Fetch fetch) except -1
    cdef bint as_told(self, FetchItem item) noexcept
    cdef int64_t readable(self, Fetch fetch, FetchItem item) noexcept
    cdef int remember(self, Fetch fetch, FetchItem item) except -1
    cdef object leader_of(self, Fetch fetch, FetchItem item)
    cdef object topic_of(self, FetchItem item)
