# Requests that cannot be answered yet, and what each waits for:
#
#   Held           a request that makes later frames wait until it ends
#     LateReply      a handler whose response comes later
#       TaskReply      a handler that is a coroutine
#     ProduceRequest   waits for its coordinator, or a thread that prepares a batch (api/records)
#     FetchRequest     waits for bytes, or its timeout (api/records)
#   PendingReply   the reply to a Produce request with acks=all, or with acks=1 if flush.messages
#                  requires a flush. It is sent when its promises have ended. Until then only
#                  further Produce requests are handled.
#   AckPromise     one partition of a PendingReply. With acks=all it waits until the partition's
#                  high watermark is past the batch that the request appended there, with acks=1
#                  until this broker has flushed the batch
#   Wait           watches partitions; makes a call when one changes, or at a timeout

from libc.stdint cimport int32_t, int64_t

from ottla.broker.network.poller cimport MovableTimer
from ottla.replication.partition cimport Partition, Promise, Watcher
from ottla.wire.codec cimport Writer


cdef class PendingReply:
    cdef Writer frame                   # the whole reply with its length; error codes may change
    cdef int open_promises
    cdef list promises                  # of AckPromise; None once all have ended
    cdef list moved                     # AckPromises whose partition got a new leader, or None
    cdef double deadline                # loop time
    cdef double began                   # loop time: when the request arrived
    cdef double begun, waits_since      # loop times at which its handler began to run and to wait
    cdef object receiver                # its promise_kept is called when the last promise ends

    cdef int promise(
        self, Partition partition, int64_t required, bint of_flush, Py_ssize_t error_at) except -1
    cdef int move_to(self, Writer frame, Py_ssize_t start) except -1
    cdef int promise_ended(self) except -1
    cdef int expire(self) except -1
    cdef int complete(self) except -1


cdef class AckPromise(Promise):
    cdef PendingReply reply
    cdef Partition partition
    cdef Py_ssize_t error_at            # where the reply holds this partition's error code


cdef class Wait(Watcher):
    cdef readonly bint over             # timed out, or nothing is left to wait for
    cdef bint scheduled
    cdef MovableTimer timer
    cdef object resume

    cdef int start(self, double seconds) except -1
    cdef int stop(self) except -1
    cdef int wake(self) except -1


cdef class Held:
    cdef object receiver                # the connection, once the request waits
    cdef bint over                      # it has ended, or was abandoned
    cdef bint stops_reading             # until it ends, nothing is read, not even the stream's end

    cdef Held advance(self)
    cdef int next_is_here(self) except -1
    cdef int abandon(self) except -1


cdef class LateReply(Held):
    cdef readonly object response       # a message or an exception; None until it is delivered
    cdef public object observer         # if not None, called with the response before it is sent
    cdef object context                 # dispatch's RequestContext
    cdef int32_t correlation_id


cdef class TaskReply(LateReply):
    cdef object task
