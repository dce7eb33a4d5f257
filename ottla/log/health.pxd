# Whether a log takes writes, and up to where it can be read.
#
# Invariant: once `offline` is set it stays set until a restart.

from libc.stdint cimport int64_t


cdef class LogHealth:
    cdef public str directory           # of the log, for messages
    cdef readonly str offline           # why the log takes no writes, None while it does
    cdef readonly object damage         # the Damage that recovery or a scrub found, None without
    cdef int64_t readable_end           # damage begins there; far away without
    cdef public object on_failure       # called with the reason once the log goes offline

    cdef int check(self) except -1
