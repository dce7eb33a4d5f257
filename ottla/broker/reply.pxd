# What a connection sends: bytes, and between them ranges of files that skip user space.

from libc.stdint cimport int64_t

from ottla.log.disk cimport File
from ottla.wire.codec cimport Writer


cdef class FileRange:
    cdef File file
    cdef int64_t position
    cdef Py_ssize_t left                # bytes of the file still to send
    cdef readonly Py_ssize_t after      # due once this many bytes of the reply are sent


cdef class Reply(Writer):
    cdef list ranges                    # ordered by `after`
    cdef Py_ssize_t file_bytes          # bytes in ranges added since the last clear
    cdef Py_ssize_t sent                # bytes of the writer already sent

    cdef int add_file(self, File file, int64_t position, Py_ssize_t size) except -1
    cdef Py_ssize_t unsent(self) noexcept
    cdef int clear(self) except -1
    cdef int cut(self, Py_ssize_t size, Py_ssize_t ranges) except -1
