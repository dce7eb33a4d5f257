# The reply of a Fetch; see fetch_writer.pyx.

from ottla.broker.api.records.fetch_sessions cimport FetchItem
from ottla.broker.api.records.reader cimport Fetch
from ottla.broker.network.counts cimport Counts
from ottla.broker.network.reply cimport Reply


cdef class FetchWriter:
    """Writes the Fetch replies of a broker."""
    cdef object metadata                # its image has the leaders' addresses
    cdef object doubt                   # called about a log that could not be read
    cdef Counts counts

    cdef int write(self, Fetch fetch, Reply reply) except -1
    cdef int write_found(self, Fetch fetch, FetchItem item, Reply reply) except -1
    cdef int write_items(self, Fetch fetch, Reply reply) except -1
    cdef int write_topic(self, Fetch fetch, object topic, list items, Reply reply) except -1
    cdef int write_item(self, Fetch fetch, FetchItem item, Reply reply) except -1
    cdef int remember(self, Fetch fetch, FetchItem item) except -1
    cdef object leader_of(self, Fetch fetch, FetchItem item)
