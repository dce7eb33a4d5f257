# Whether a range of a file is in memory, and threads that bring it there; see cold_reads.pyx.

from libc.stdint cimport int64_t

cdef enum:
    WARM_SIZE = 1 << 20                 # looked at, and brought into memory, at a time


cdef bint is_resident(int fd, int64_t position, Py_ssize_t size) noexcept
