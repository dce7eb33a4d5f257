# Fetch, served in one pass; see fetch.pyx.

from libc.stdint cimport int16_t, int32_t, int64_t

from ottla.broker.api.records.fetch_parts cimport Fetch
from ottla.broker.api.records.fetch_sessions cimport FetchItem, FetchSession, FetchSessionCache
from ottla.broker.network.reply cimport Reply
from ottla.wire.codec cimport Cursor


cdef class Fetching:
    """Serves Fetch: one for the broker."""
    cdef object broker, by_name, by_id
    cdef object authorizer              # None: all clients may read everything
    cdef object throttle                # of replicas that are not in sync (KIP-73), or None
    cdef readonly FetchSessionCache sessions
    cdef int32_t response_size_max
    cdef bint redirects                 # consumers are sent to replicas in their racks (KIP-392)
    cdef str rack                       # this broker's, or None

    cdef Fetch read(self, Cursor request, int version)
    cdef int begin(self, Fetch fetch, double now) except -1
    cdef int check_reader_of(self, Fetch fetch) except -1
    cdef bint put(self, Fetch fetch, FetchSession session) except -1
    cdef bint look(self, Fetch fetch, bint final) except -1
    cdef int write(self, Fetch fetch, Reply reply) except -1
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
    cdef int refuse_all(self, Fetch fetch) except -1
    cdef bint as_told(self, FetchItem item) noexcept
    cdef int64_t readable(self, Fetch fetch, FetchItem item) noexcept
    cdef int remember(self, Fetch fetch, FetchItem item) except -1
    cdef object leader_of(self, Fetch fetch, FetchItem item)
    cdef object topic_of(self, FetchItem item)
