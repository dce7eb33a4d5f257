# Timestamp to offset. An entry, big-endian:
#
#   0                      8                 12
#   | timestamp in ms      | relative offset |
#
# The timestamp is the highest so far in the segment. The relative offset is the last offset of the
# batch with that timestamp, minus the segment's base offset. Timestamps ascend strictly.

from libc.stdint cimport int64_t

from ottla.log.files.index_file cimport IndexFile


cdef class TimeIndex(IndexFile):
    cdef int64_t offset_of(self, Py_ssize_t index) except? -1
    cdef int add(self, int64_t timestamp, int64_t offset) except -1
    cdef Py_ssize_t first_from(self, int64_t offset) except -1
