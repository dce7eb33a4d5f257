# Fetch, served in one pass; see fetch.pyx.

from libc.stdint cimport int16_t, int32_t, int64_t

from ottla.broker.api.records.fetch_sessions cimport FetchItem, FetchSession, FetchSessionCache
from ottla.broker.api.records.fetch_writer cimport FetchWriter
from ottla.broker.api.records.reader cimport Fetch, Reader, RecordFormat
from ottla.wire.codec cimport Cursor


cdef class FetchHandler:
    """Serves Fetch; one object for the whole broker."""
    cdef object broker, by_name, by_id
    cdef object authorizer              # None: all clients may read everything
    cdef readonly FetchSessionCache sessions
    cdef FetchWriter writer
    cdef int32_t consumers_size_max     # fetch.max.bytes
    cdef bint redirects                 # consumers are sent to replicas in their racks (KIP-392)
    cdef str rack                       # this broker's rack, or None
    cdef Reader consumer, any_replica, in_rack, replica
    cdef RecordFormat stored, without_zstd, message_sets

    cdef Fetch read(self, Cursor request, int version)
    cdef Reader reader_of(self, Fetch fetch)
    cdef int begin(self, Fetch fetch, double now) except -1
    cdef int check_reader_of(self, Fetch fetch) except -1
    cdef bint put(self, Fetch fetch, FetchSession session) except -1
    cdef bint look(self, Fetch fetch, bint final) except -1
    cdef int add(self, Fetch fetch, FetchItem item, int64_t got) except -1
    cdef bint ends_wait(self, Fetch fetch, FetchItem item) except -1
    cdef bint has_news(self, Fetch fetch, FetchItem item) except -1
    cdef int64_t look_at(self, Fetch fetch, FetchItem item) except -1
    cdef int find_records(self, Fetch fetch, FetchItem item, bint may_read) except -1
    cdef int read_records(
        self, Fetch fetch, FetchItem item, int64_t room, bint at_least_one) except -1
    cdef int find(self, FetchItem item) except -1
    cdef int need_read(self, Fetch fetch, FetchItem item) except -1
    cdef int find_again(self, Fetch fetch, FetchItem item) except -1
    cdef int refuse(self, Fetch fetch, FetchItem item, int16_t code) except -1
    cdef int refuse_all(self, Fetch fetch) except -1
    cdef object topic_of(self, FetchItem item)
