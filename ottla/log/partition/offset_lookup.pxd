# Finds where a batch begins in a segment's file: from the index, or from an earlier lookup.

from libc.stdint cimport int64_t

from ottla.log.files.disk cimport File
from ottla.log.files.offset_index cimport OffsetIndex


cdef enum:
    CHUNK = 4608                        # an index interval and a header: usually one read suffices


cdef class OffsetLookup:
    cdef bint after_gap                 # the batch found last begins after the requested offset
    cdef int64_t last_offset            # base offset of the segment's last batch, -1 if unknown
    cdef int64_t last_position          # position of the segment's last batch, -1 if unknown
    cdef int64_t bound_offset           # offset at which the latest read had to end, -1 for none
    cdef int64_t bound_position         # the position that was found for `bound_offset`, or -1

    cdef void forget(self) noexcept
    cdef void note_last(self, int64_t base_offset, int64_t position) noexcept
    cdef int64_t take_last(self, int64_t size, Py_ssize_t *batch_size) noexcept
    cdef void note_bound(self, int64_t offset, int64_t position) noexcept
    cdef int64_t find(self, File file, OffsetIndex index, int64_t size, int64_t index_interval,
                      int64_t offset, Py_ssize_t *batch_size, int64_t enough) except -1
    cdef int64_t entry_from(self, File file, OffsetIndex index, int64_t size,
                            int64_t index_interval, int64_t position) except -2
    cdef int64_t scan(self, File file, OffsetIndex index, int64_t size, int64_t index_interval,
                      int64_t offset, int64_t position, int64_t expected,
                      Py_ssize_t *batch_size) except -1
