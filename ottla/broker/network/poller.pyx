"""asyncio's event loop with a selector that serves the sockets of connections itself.

With the plain loop a ready socket costs some four microseconds of Python before its callback runs.
All the work of a small request takes about as long. Here the selector calls the connection itself.
Then it waits for the next sockets in C, and returns to asyncio only if asyncio has work. Calls that
a connection defers to the end of the turn (`later`) do not need asyncio either. Timers that are set
anew with each request (`MovableTimer`) seldom need it. Everything else (timers, tasks, calls from
threads, other descriptors) is asyncio's and works as usual.
"""

import asyncio
import math
import os
import select
import selectors
import time

from libc.errno cimport EINTR, ENOENT, errno
from libc.stdint cimport int64_t, uint32_t

from ottla.log.files.clock cimport Clock

WAIT_SECONDS_MAX = 86_400.0             # asyncio's own limit for one wait


cdef class Pollable:
    """An object with a socket: `ready` is called when one of the watched events has occurred."""

    cdef int ready(self) except -1:
        raise TypeError(f"{type(self).__name__} has to define ready")


cdef class Poller:
    """The sockets that are served directly, on an epoll descriptor made by asyncio."""

    def __init__(self, int epoll_fd, Clock clock not None):
        self.epoll_fd, self.clock = epoll_fd, clock
        self.watched, self.soon = [], []

    cdef int watch(self, int fd, Pollable who, uint32_t events) except -1:
        """Call `who` when one of these events occurs; without events, stop watching."""
        cdef epoll_event event
        cdef bint known = fd < len(self.watched) and self.watched[fd] is not None
        if not known and events == 0:
            return 0
        while fd >= len(self.watched):
            self.watched.append(None)
        self.watched[fd] = who if events != 0 else None
        event.events, event.data.fd = events, fd
        if epoll_ctl(
            self.epoll_fd,
            EPOLL_CTL_DEL if events == 0 else EPOLL_CTL_MOD if known else EPOLL_CTL_ADD,
            fd,
            &event,
        ) < 0 and not (events == 0 and errno == ENOENT):
            raise OSError(errno, os.strerror(errno))
        return 0

    cpdef int later(self, callback) except -1:
        """Make this call after the sockets that are ready now have been served, and before epoll is
        asked again."""
        self.soon.append(callback)
        return 0

    cdef int run_soon(self) except -1:
        """Make the deferred calls. If these calls defer further calls, the further calls are made
        after epoll is asked again."""
        if not self.soon:
            return 0
        due, self.soon = self.soon, []
        for callback in due:
            try:
                callback()
            except Exception as error:
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"Exception in {callback}", "exception": error})
        return 0

    cpdef list wait(self, object timeout_seconds):
        """Serve ready sockets until asyncio has work; returns asyncio's ready descriptors with
        their events.

        Asyncio has work if the timeout is over; if a descriptor is ready that is not watched here;
        or if a callback or timer was added to the loop.
        """
        cdef list others = []
        cdef int count, i, fd
        cdef int64_t timeout_ns = -1, deadline_ns = 0
        cdef bint waits
        cdef Pollable who
        if timeout_seconds is not None:
            timeout_ns = 0
            if timeout_seconds > 0:         # asyncio passes 0 while it has ready callbacks
                timeout_ns = math.ceil(min(timeout_seconds, WAIT_SECONDS_MAX) * 1e9)
                deadline_ns = time.monotonic_ns() + timeout_ns
        self.touched = False
        self.run_soon()                 # calls that callbacks of asyncio have deferred
        while True:
            waits = not self.soon and not self.touched
            with nogil:
                count = ottla_epoll_wait(
                    self.epoll_fd, self.events, EVENTS_PER_TURN, timeout_ns if waits else 0)
            if count < 0:
                if errno == EINTR:
                    return others
                raise OSError(errno, os.strerror(errno))
            for i in range(count):
                fd = self.events[i].data.fd
                who = <Pollable>self.watched[fd] if fd < len(self.watched) else None
                if who is None:
                    others.append((fd, self.events[i].events))
                else:
                    who.ready()
            self.run_soon()
            if others or self.touched or timeout_ns == 0 or (count == 0 and waits):
                return others
            if timeout_ns > 0:
                timeout_ns = max(0, deadline_ns - time.monotonic_ns())


cdef class MovableTimer:
    """A timer for waits that follow each other and seldom time out.

    asyncio's timer is replaced only if it has to fire earlier. If it fires too early, it is set
    again. If nothing waits, firing has no effect.
    """

    def __init__(self, loop):
        self.loop, self.poller = loop, loop.poller

    cpdef int set(self, double at, callback) except -1:
        """Make this call at the loop time `at`, instead of the call that was set before."""
        self.at, self.callback = at, callback
        if self.handle is not None:
            if self.fires_at <= at:
                return 0
            self.handle.cancel()
        self.fires_at = at
        self.handle = self.loop.call_at(at, self.fire)
        return 0

    cpdef int clear(self) except -1:
        """Drop the call."""
        self.callback = None
        return 0

    cpdef int close(self) except -1:
        """Drop the call, and cancel asyncio's timer."""
        self.callback = None
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None
        return 0

    def fire(self):
        self.handle = None
        if self.callback is None:
            return
        if self.at > self.fires_at:
            self.set(self.at, self.callback)
            return
        callback, self.callback = self.callback, None
        callback()


class ConnectionSelector(selectors.EpollSelector):
    """epoll for asyncio, with a poller on the same descriptor."""

    def __init__(self, clock):
        super().__init__()
        self.poller = Poller(self.fileno(), clock)

    def select(self, timeout=None):
        ready = []
        for fd, happened in self.poller.wait(timeout):
            try:
                key = self.get_key(fd)
            except KeyError:
                continue                # an earlier handler of this turn has unregistered it
            events = 0
            if happened & ~select.EPOLLIN:
                events |= selectors.EVENT_WRITE
            if happened & ~select.EPOLLOUT:
                events |= selectors.EVENT_READ
            ready.append((key, events & key.events))
        return ready


class BrokerLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock=None):
        selector = ConnectionSelector(clock or Clock())
        self.poller = selector.poller
        super().__init__(selector)

    def time(self):
        return self.poller.clock.monotonic()

    def call_soon(self, callback, *args, context=None):
        self.poller.touched = True
        return super().call_soon(callback, *args, context=context)

    def call_at(self, when, callback, *args, context=None):
        self.poller.touched = True
        return super().call_at(when, callback, *args, context=context)
