# Requests that cannot be answered yet, and who waits for what:
#
#   Held           a request that holds the frames after it until it ends, however it ends
#     LateReply      a handler that has its response later
#       TaskReply      a handler that is a coroutine
#     ProduceRequest   a coordinator that admits it, a thread that prepares a batch (api/records)
#     FetchRequest     bytes, or its time (api/records)
#   PendingReply   a whole reply with open promises (acks=all); it queues, and holds no frames
#   AckPromise     one partition of it, until the high watermark has passed its batch
#   Wait           a watcher of partitions that calls back once, when one has moved or time is up

from libc.stdint cimport int32_t, int64_t

from ottla.replication.partition cimport Partition, Promise, Watcher
from ottla.wire.codec cimport Writer


cdef class PendingReply:
    cdef Writer frame                   # the whole reply with its length, ready but for error codes
    cdef int open_promises
    cdef list promises                  # of AckPromise; None once all are kept
    cdef double deadline                # loop time
    cdef double began                   # loop time: when the request had arrived
    cdef object receiver                # its promise_kept is called when the last promise is kept

    cdef int promise(self, Partition partition, int64_t required, Py_ssize_t error_at) except -1
    cdef int move_to(self, Writer frame, Py_ssize_t start) except -1
    cdef int promise_ended(self) except -1
    cdef int expire(self) except -1


cdef class AckPromise(Promise):
    cdef PendingReply reply
    cdef Partition partition
    cdef Py_ssize_t error_at            # where the reply holds this partition's error code


cdef class Wait(Watcher):
    cdef readonly bint over             # the time is up, or nothing is left to wait for
    cdef bint scheduled
    cdef object loop, timer, resume

    cdef int start(self, double seconds) except -1
    cdef int stop(self) except -1
    cdef int wake(self) except -1


cdef class Held:
    cdef object receiver                # the connection, once it waits
    cdef bint over                      # it has ended, or nobody wants it any more
    cdef bint stops_reading             # not even the end of the stream is read meanwhile

    cdef Held go_on(self)
    cdef int next_is_here(self) except -1
    cdef int abandon(self) except -1


cdef class LateReply(Held):
    cdef readonly object response       # a message, or the exception in its place; None until then
    cdef public object amend            # called with a message before it goes, or None
    cdef object context                 # dispatch's RequestContext
    cdef int32_t correlation_id


cdef class TaskReply(LateReply):
    cdef object task
