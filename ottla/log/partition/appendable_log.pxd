# One partition's log as writers see it: its end grows by whole batches.

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.partition.readable_log cimport ReadableLog


cdef class AppendableLog(ReadableLog):
    cdef int64_t append(self, uint8_t *batch, Py_ssize_t size, int32_t leader_epoch) except -2
    cdef int append_run(self, const uint8_t *data, Py_ssize_t size) except -1
    cdef int note_gaps(self, const uint8_t *data, Py_ssize_t size) except -1
    cdef int note_run(self, const uint8_t *data, Py_ssize_t size) except -1
    cdef int write(self, const uint8_t *batch, Py_ssize_t size, int64_t last_offset) except -1
    cdef int take_back(self, error) except -1
    cpdef int start_segment(self, bint discards=*) except -1
    cdef int replace_snapshots(self) except -1
    cdef int make_directory(self) except -1
    cdef bint has_sealed(self) noexcept
    cdef checked(self, bytearray batch)
