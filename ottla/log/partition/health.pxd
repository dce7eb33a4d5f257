# Whether a log accepts writes, and up to which offset it can be read.
#
# Invariant: once `offline` is set it stays set until a restart, or until the damage is put aside.

from libc.stdint cimport int64_t


cdef class LogHealth:
    cdef readonly str directory         # of the log, for messages
    cdef readonly str offline           # why the log accepts no writes; None if it accepts them
    cdef readonly object damage         # the Damage that keeps the log from accepting writes, or
                                        #   None
    cdef readonly object put_aside      # the Damage that was cut off above the recovery point when
                                        #   the log was opened, or None; it does not stop writes
    cdef public bint replaceable        # whether another in-sync replica has all records: if so,
                                        #   files that the disk refuses to read count as damaged
    cdef int64_t readable_end           # offset where damage begins; OFFSET_MAX if there is none
    cdef int refusals                   # how often the disk refused to read files of a log at rest
    cdef readonly object on_failure     # called when a failure, not damage, takes the log offline
    cdef readonly object on_refusal     # called with each temporary error of a write

    cdef int check(self) except -1
