# Offset to position. An entry, big-endian:
#
#   0                  4          8
#   | relative offset  | position |
#
# The relative offset is the last offset of a batch minus the segment's base offset; the batch
# begins at the position in the log file. There is about one entry per index.interval.bytes of log.

from libc.stdint cimport int64_t

from ottla.log.files.index_file cimport IndexFile


cdef class OffsetIndex(IndexFile):
    cdef int64_t position_of(self, Py_ssize_t index) except? -1
    cdef Py_ssize_t first_at(self, int64_t position) except -1
    cdef int add(self, int64_t last_offset, int64_t position) except -1
