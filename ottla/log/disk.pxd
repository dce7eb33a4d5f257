# The only file IO of the log: a File is one descriptor, a Disk the directory operations.

from libc.stdint cimport int64_t, uint8_t


cdef int sync_descriptor(int fd) noexcept nogil         # errno, 0 where the bytes are on the medium


ctypedef Py_ssize_t (*Reading)(int fd, void *into, size_t size, int64_t position) noexcept nogil


cdef class File:
    cdef readonly int fd                # -1 when closed
    cdef readonly str path              # where it was opened; a rename does not follow

    cdef int write_at(self, const uint8_t *data, Py_ssize_t size, int64_t position) except -1
    cdef Py_ssize_t read_at(self, uint8_t *into, Py_ssize_t size, int64_t position) except -1
    # For who reads much, beside others: without the GIL.
    cdef Py_ssize_t read_aside(self, uint8_t *into, Py_ssize_t size, int64_t position) except -1
    # For who reads much and once: without the GIL, and nothing stays in the page cache for it.
    cdef Py_ssize_t read_in_passing(
        self, uint8_t *into, Py_ssize_t size, int64_t position) except -1
    cdef Py_ssize_t read_without_gil(
        self, uint8_t *into, Py_ssize_t size, int64_t position, Reading read) except -1


cdef class DelegatingFile(File):
    pass
