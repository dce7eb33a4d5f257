# Waits until an append of Python code is as durable as its partition promises.

from ottla.replication.partition cimport Partition, Promise


cdef class CommitPromise(Promise):
    cdef object done
