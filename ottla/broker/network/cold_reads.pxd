# Whether a range of a file is in memory, and threads that bring it there; see cold_reads.pyx.

from libc.stdint cimport int64_t, uint8_t

from ottla.log.files.disk cimport File

cdef enum:
    WARM_SIZE = 1 << 20                 # bytes that are checked and read into memory at a time


cdef bint is_resident(File file, int64_t position, Py_ssize_t size) except -1
cdef Py_ssize_t read_now(
    File file, uint8_t *into, Py_ssize_t size, int64_t position) except -1
