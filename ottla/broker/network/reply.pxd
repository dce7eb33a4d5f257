# The output of a connection: bytes, with ranges of files in between; see reply.pyx.

from libc.stdint cimport int64_t, uint8_t

from ottla.broker.network.transport cimport Transport
from ottla.log.files.disk cimport File
from ottla.wire.codec cimport Writer


cdef enum:
    COLD = -2                           # the next bytes have to be read from the disk first


cdef class FileRange:
    cdef File file
    cdef int64_t position
    cdef Py_ssize_t left                # bytes of the file still to send
    cdef int64_t warm_upto              # below this position the file is in memory
    cdef readonly Py_ssize_t after      # sent after this many bytes of the reply

    cdef bint read_into(self, uint8_t *into) except -1


cdef class Reply(Writer):
    cdef list ranges                    # ordered by `after`
    cdef Py_ssize_t file_bytes          # bytes in ranges added since the last clear
    cdef Py_ssize_t sent                # bytes of the writer already sent

    cdef int add_file(self, File file, int64_t position, Py_ssize_t size) except -1
    cdef Py_ssize_t unsent(self) noexcept
    cdef Py_ssize_t send_some(self, Transport transport, Py_ssize_t budget) except? -3
    cdef Py_ssize_t gather(self, bint *all_of_it) except -1
    cdef Py_ssize_t move_on(self, Py_ssize_t sent) except? -3
    cdef int warmed(self) except -1
    cdef int clear(self) except -1
    cdef int cut(self, Py_ssize_t size, Py_ssize_t ranges) except -1
