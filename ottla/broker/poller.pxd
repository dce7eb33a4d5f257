# The loop's epoll, with the connections' sockets called straight from it. See poller.pyx.

from libc.stdint cimport uint32_t


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
    int epoll_wait(int epoll_fd, epoll_event *events, int count, int timeout_ms)

cdef enum:
    EVENTS_PER_TURN = 256


cdef class Pollable:
    cdef int ready(self) except -1


cdef class Poller:
    cdef int epoll_fd
    cdef list watched                   # Pollable or None, by descriptor
    cdef public bint touched            # somebody gave the loop something to do
    cdef epoll_event[EVENTS_PER_TURN] events

    cdef int watch(self, int fd, Pollable who, uint32_t events) except -1
    cpdef list wait(self, object timeout_seconds)
