# Python code that waits until what it appended is as durable as its partition promises.

from ottla.replication.partition cimport Partition, Promise


cdef class CommitPromise(Promise):
    cdef object done
