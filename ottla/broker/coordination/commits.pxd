# Calls a Python function once a log is committed; see commits.pyx.

from ottla.replication.partition cimport Partition, Promise


cdef class CommitPromise(Promise):
    cdef object done
