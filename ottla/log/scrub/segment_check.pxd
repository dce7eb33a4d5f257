# Checks one sealed segment from end to end, a slice at a time, in a fixed amount of memory.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from ottla.log.files.disk cimport File
from ottla.wire.batch cimport HEADER_SIZE


cdef class SegmentScrub:
    cdef readonly File file
    cdef readonly int64_t size          # bytes to be checked
    cdef readonly int64_t position      # bytes read so far
    cdef readonly str problem           # what is wrong; None if nothing so far
    cdef readonly int64_t fault_position, fault_offset      # of the fault; all before it is valid
    cdef readonly int64_t end_offset    # after the last valid batch
    cdef int64_t base_offset
    cdef int64_t next_base              # where the next segment begins; -1: not checked
    cdef int32_t epoch
    cdef bint jumped                    # whether the last batch skipped offsets
    cdef bint epoch_began               # whether the last batch began an epoch
    cdef int64_t jump_position, jump_offset                 # the state before the last batch
    cdef int32_t jump_epoch
    cdef int64_t batch_position         # where the current batch begins
    cdef uint8_t[HEADER_SIZE] header
    cdef Py_ssize_t header_filled
    cdef int64_t left                   # bytes of the current batch still to be checked
    cdef uint32_t crc                   # of the current batch's bytes so far
    cdef uint8_t *buffer
    cdef Py_ssize_t room, buffered, expected

    cdef str problem_of_header(self)
    cdef bint blame_the_last(self, bint fits_without) noexcept
    cdef int end_batch(self) except -1
    cdef int note_fault(self, str problem, int64_t position, int64_t offset) except -1
