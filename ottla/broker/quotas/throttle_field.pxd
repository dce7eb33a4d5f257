# Sets the throttle time in a reply; see throttle_field.pyx.

from libc.stdint cimport int32_t

from ottla.wire.codec cimport Writer

cdef int set_throttle_time(
    Writer reply, Py_ssize_t body_at, int key, int version, int32_t throttle_ms) except -1
