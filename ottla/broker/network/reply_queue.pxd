# The replies of one connection, in the order of their requests.

from ottla.broker.counts cimport Counts
from ottla.broker.network.promises cimport PendingReply
from ottla.broker.network.reply cimport Reply
from ottla.log.clock cimport Clock
from ottla.wire.codec cimport Writer


cdef class ReplyQueue:
    cdef Reply out                      # replies that may be sent
    cdef object promised                # deque of PendingReply, after `out` in order
    cdef object loop, timer
    cdef Clock clock
    cdef Counts counts
    cdef object connection              # for the log; None once it is closed
    cdef double began                   # when the request in hand had arrived

    cdef Py_ssize_t waiting(self) except -1
    cdef int add(self, Writer reply, Py_ssize_t start, PendingReply pending) except -1
    cdef int release(self) except -1
    cdef int watch(self) except -1
    cdef int answered(self, int key, double began) except -1
    cdef int close(self) except -1
