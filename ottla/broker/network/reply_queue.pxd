# The replies of one connection, in the order of their requests.

from libc.stdint cimport int32_t

from ottla.broker.network.counts cimport Counts
from ottla.broker.network.poller cimport MovableTimer
from ottla.broker.network.promises cimport PendingReply
from ottla.broker.network.reply cimport Reply
from ottla.broker.quotas.quotas cimport Quotas
from ottla.broker.security.client cimport Client
from ottla.log.files.clock cimport Clock
from ottla.wire.codec cimport Writer


cdef class ReplyQueue:
    cdef Reply out                      # replies that may be sent
    cdef object promised                # deque of PendingReply: the replies after those in `out`
    cdef object loop, timer
    cdef MovableTimer wait_timer        # of the request that waits for bytes, if one does
    cdef Clock clock
    cdef Counts counts
    cdef object connection              # to mute it, and for the log; None once it is closed
    cdef double began                   # when the current request arrived
    cdef double waits_since             # when its handler began to wait; 0 before, or if unmeasured
    cdef double free_at                 # when the previous request was answered, or began to wait
    cdef Quotas quotas
    cdef Client client                  # the sender of the current request
    cdef Py_ssize_t frame_size          # of the current request
    cdef double in_hand                 # when the current request began, plus the time it waited

    cdef Py_ssize_t waiting(self) except -1
    cdef int add(self, Writer reply, Py_ssize_t start, PendingReply pending) except -1
    cdef int release(self) except -1
    cdef int watch(self) except -1
    cdef int arrived(self, double seconds) noexcept
    cdef int waits(self) except -1
    cdef int answered(self, int key) except -1
    cdef double count(self, int key, double began, double begun, double waits_since) except -1
    cdef int32_t charge(self, int key, Py_ssize_t size) except -1
    cdef int throttle(
        self, Writer reply, Py_ssize_t body_at, int key, int version, int32_t ms) except -1
    cdef int close(self) except -1
