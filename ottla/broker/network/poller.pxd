# The loop's epoll, which calls ready connections directly. See poller.pyx.

from libc.stdint cimport int64_t, uint32_t

from ottla.log.files.clock cimport Clock


cdef extern from "<sys/epoll.h>" nogil:
    enum:
        EPOLLIN
        EPOLLOUT
        EPOLL_CTL_ADD
        EPOLL_CTL_MOD
        EPOLL_CTL_DEL
    ctypedef union epoll_data_t:
        int fd
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_ctl(int epoll_fd, int operation, int fd, epoll_event *event)

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <stdint.h>
    #include <sys/epoll.h>
    #include <sys/syscall.h>
    #include <unistd.h>

    /* A millisecond, the unit of epoll_wait, is longer than most requests take. So epoll_pwait2
       (Linux 5.11) is used, which takes nanoseconds. It is called by its number, since older C
       libraries lack it. A negative timeout waits without end. */
    static int ottla_epoll_wait(
        int epoll_fd, struct epoll_event *events, int count, int64_t timeout_ns
    ) {
        int64_t timeout_ms = timeout_ns <= 0 ? (timeout_ns < 0 ? -1 : 0)
            : timeout_ns / 1000000 + (timeout_ns % 1000000 != 0);
    #ifdef SYS_epoll_pwait2
        static int known = 1;
        if (known && timeout_ns > 0) {
            struct { int64_t seconds, nanoseconds; } timeout = {
                timeout_ns / 1000000000, timeout_ns % 1000000000
            };
            int ready = (int)syscall(
                SYS_epoll_pwait2, epoll_fd, events, count, &timeout, (void *)0, (size_t)0
            );
            if (ready >= 0 || errno != ENOSYS) return ready;
            known = 0;
        }
    #endif
        return epoll_wait(
            epoll_fd, events, count, timeout_ms > INT32_MAX ? INT32_MAX : (int)timeout_ms
        );
    }
    """
    int ottla_epoll_wait(int epoll_fd, epoll_event *events, int count, int64_t timeout_ns)

cdef enum:
    EVENTS_PER_TURN = 256


cdef class Pollable:
    cdef int ready(self) except -1


cdef class Poller:
    cdef int epoll_fd
    cdef readonly Clock clock           # the loop's clock
    cdef list watched                   # Pollable or None, by descriptor
    cdef public bint touched            # a callback or timer was added to the loop
    cdef readonly list soon             # calls to make after the ready sockets have been served
    cdef epoll_event[EVENTS_PER_TURN] events

    cdef int watch(self, int fd, Pollable who, uint32_t events) except -1
    cpdef int later(self, callback) except -1
    cdef int run_soon(self) except -1
    cpdef list wait(self, object timeout_seconds)


cdef class MovableTimer:
    cdef readonly Poller poller
    cdef object loop, handle            # asyncio's timer, None if it is not set
    cdef object callback                # None if nothing waits
    cdef double at, fires_at            # loop times: when to call, and when asyncio's timer fires

    cpdef int set(self, double at, callback) except -1
    cpdef int clear(self) except -1
    cpdef int close(self) except -1
