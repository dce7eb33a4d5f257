# The received bytes of one connection; see inbox.pyx.

from libc.stdint cimport int16_t, uint8_t

from ottla.broker.network.transport cimport Transport


cdef class Inbox:
    # data[begin:filled] is received and not handled yet; room is the allocated size.
    cdef uint8_t *data
    cdef Py_ssize_t begin, filled, room
    cdef Py_ssize_t frame_size_min, frame_size_max

    cdef Py_ssize_t held(self) noexcept
    cdef Py_ssize_t receive(self, Transport transport) except? -1
    cdef uint8_t *space(self, Py_ssize_t *size) except NULL
    cdef int add(self, Py_ssize_t size) noexcept
    cdef bint has_frame(self) except -1
    cdef int16_t api_key(self) noexcept
    cdef uint8_t *take(self, Py_ssize_t *size) noexcept
    cdef int awaited(self, Py_ssize_t got) noexcept
    cdef int compact(self) except -1
    cdef int trim(self) except -1
