# Formats of records that old clients understand; see legacy_fetch.pyx.

from libc.stdint cimport int64_t

from ottla.broker.api.records.fetch_sessions cimport FetchItem
from ottla.broker.api.records.reader cimport RecordFormat

cdef enum:
    BATCHES_SINCE = 4                   # earlier versions get message formats v0 and v1
    ZSTD_SINCE = 10


cdef class ConvertedFormat(RecordFormat):
    pass


cdef class WithoutZstd(ConvertedFormat):
    cdef bytes recoded(self, FetchItem item, int64_t room)


cdef class MessageSets(ConvertedFormat):
    cdef bytes messages(
        self, FetchItem item, int version, int64_t room, bint at_least_one)
