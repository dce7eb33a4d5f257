# Reads the batches of a log file one by one; checks each length against the bytes present.

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.files.disk cimport File


cdef class BatchScan:
    cdef File file
    cdef readonly int64_t position      # where the current batch begins
    cdef readonly int64_t next_position # where the next batch begins
    cdef readonly int64_t end           # position in the file where the scan ends
    cdef readonly Py_ssize_t size       # bytes of the current batch
    cdef readonly str problem           # why the scan ended before `end`, None otherwise
    cdef bint headers_only
    cdef uint8_t *buffer
    cdef Py_ssize_t room, buffered      # invariant: buffered <= room
    cdef int64_t buffer_position        # position of the buffer's first byte in the file
    cdef int64_t checked                # all batches before this position have valid checksums

    cdef int grow(self, Py_ssize_t room) except -1
    cdef const uint8_t *next(self) except? NULL
    cpdef bint holds_next(self) noexcept
    cdef const uint8_t *hold(self, Py_ssize_t size) except NULL
    cdef void check_held(self, const uint8_t *batch) noexcept
    cdef bint checksum_fits(self, const uint8_t *batch) noexcept


cdef class CheckedBatches:
    cdef BatchScan scan
    cdef bint checked                   # whether checksums are verified
    cdef int64_t end_offset             # end offset of the previous batch
    cdef int32_t epoch
    cdef readonly str problem           # why the batches end before the end of the scan, or None

    cdef const uint8_t *next(self) except? NULL

cdef str problem_of(
    const uint8_t *batch, bint checksum_fits, int64_t offset_min, int32_t epoch_min)
cdef str contradiction_of(
    BatchScan scan, const uint8_t *batch, int64_t end_offset, int32_t epoch)
