# The only file IO of the log: a File is one descriptor, a Disk the directory operations.

from libc.stdint cimport int64_t, uint8_t


cdef int sync_descriptor(int fd) noexcept nogil         # errno, 0 if the bytes are durable


ctypedef Py_ssize_t (*Reading)(int fd, void *into, size_t size, int64_t position) noexcept nogil


cdef class File:
    cdef readonly int fd                # -1 when closed
    cdef readonly str path              # where it was opened; not updated by a rename

    cdef int write_at(self, const uint8_t *data, Py_ssize_t size, int64_t position) except -1
    cdef Py_ssize_t read_at(self, uint8_t *into, Py_ssize_t size, int64_t position) except -1
    # For large reads in several threads: releases the GIL.
    cdef Py_ssize_t read_aside(self, uint8_t *into, Py_ssize_t size, int64_t position) except -1
    # For large reads that are done once: releases the GIL, and adds no pages to the page cache.
    cdef Py_ssize_t read_in_passing(
        self, uint8_t *into, Py_ssize_t size, int64_t position) except -1
    cdef Py_ssize_t read_without_gil(
        self, uint8_t *into, Py_ssize_t size, int64_t position, Reading read) except -1


cdef class DelegatingFile(File):
    pass
