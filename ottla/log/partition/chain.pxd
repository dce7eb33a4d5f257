# The segments of one log.
#
# Invariant: `segments` ascend by base offset without overlap; `active` is the last of them.

from libc.stdint cimport int64_t, uint8_t

from ottla.log.files.clock cimport Clock
from ottla.log.files.disk cimport File
from ottla.log.files.open_files cimport OpenFiles
from ottla.log.partition.segment cimport Segment


cdef class LogSlice:
    cdef readonly File file             # kept open by the slice, even if the segment is deleted
    cdef readonly int64_t position      # of the first byte in the file
    cdef readonly Py_ssize_t size       # in bytes, 0 when there is nothing to read
    cdef readonly Segment segment       # None when there is nothing to read
    cdef readonly int64_t first_offset  # the requested offset
    cdef readonly bint ends_segment     # the slice reaches the end of its segment, and the log has
                                        #   a later segment


cdef class SegmentChain:
    cdef object disk
    cdef Clock clock
    cdef OpenFiles open_files
    cdef object config
    cdef str directory
    cdef list segments                  # of Segment
    cdef Segment active                 # appends go here; None in an empty log
    cdef list unwritten                 # (segment, aborted transaction): entries for transaction
                                        #   indexes that a full disk did not accept
    cdef int64_t segment_bytes, segment_ms, offset_span_max
    cdef Py_ssize_t index_entries_max

    cdef int configure(self, config) except -1
    cdef int share(self, OpenFiles open_files) except -1
    cdef int set_directory(self, str directory) except -1
    cdef int forget(self) except -1
    cdef int64_t size_bytes(self) except -1
    cdef Py_ssize_t number_of(self, int64_t offset) except -2
    cdef bint must_roll(self, const uint8_t *batch, Py_ssize_t size, int64_t last_offset) except -1
    cdef int64_t early_ms(self) except -1
    cdef Segment begin(self, int64_t base_offset)
    cdef int seal_active(self) except -1
    cdef int read(self, LogSlice slice, Py_ssize_t size_max, bint at_least_one,
                  int64_t upto_offset, bint patient) except -1
    cdef int64_t aborted_bytes(self) except -1
    cdef int64_t aborted_found(self) except -1
    cdef dict aborted_sizes(self, int64_t below)
    cdef int distrust_aborted(self) except -1
    cdef bint distrusts_aborted(self) except -1
    cdef int note_aborted(self, tuple aborted) except -1
    cdef int write_aborted(self) except -1
    cdef list waiting(self, Segment segment)
    cdef int forget_waiting(self, Segment segment) except -1
    cdef list cut_to(self, int64_t offset)
    cdef int sync_cut(self) except -1
    cdef int clear(self) except -1
    cdef int remove_files(self, Segment segment) except -1
    cdef list take_away(self, Segment segment)
    cdef list put_aside(self, Segment segment)
    cdef list replace(self, list sources, Segment cleaned)
