# One partition's log: appends and truncations change its end, and its start moves forward.

from libc.stdint cimport int64_t

from ottla.log.partition.appendable_log cimport AppendableLog


cdef class PartitionLog(AppendableLog):
    cdef readonly int moves             # how often `directory` has changed, also by a deletion
    cdef int cut(self, int64_t offset) except -1
    cdef int lower_to(self, int64_t offset) except -1
    cdef int reload_producers(self) except -1
