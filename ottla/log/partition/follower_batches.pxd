# A follower checks the batches of its leader, and divides them among its segments.

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.partition.chain cimport SegmentChain
from ottla.log.partition.readable_log cimport ReadableLog


cdef int64_t due_offset(ReadableLog log, const uint8_t *data, Py_ssize_t size) except -1
cdef Py_ssize_t checked_batches(
    const uint8_t *data, Py_ssize_t size, int64_t offset_min, int32_t epoch_min,
    int32_t epoch_max, bint more) except -1
cdef Py_ssize_t bytes_wanted(const uint8_t *data, Py_ssize_t size, int64_t left) noexcept
cdef Py_ssize_t run_in_segment(
    SegmentChain chain, const uint8_t *data, Py_ssize_t size, Py_ssize_t *entries) except -1
