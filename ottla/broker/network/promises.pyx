# cython: boundscheck=False, wraparound=False
"""Requests that cannot be answered yet, and the events that they wait for."""

from libc.stdint cimport int16_t, int64_t

from ottla.broker.network.poller cimport MovableTimer
from ottla.replication.partition cimport Partition, Promise, Watcher
from ottla.wire.byteorder cimport store_int16
from ottla.wire.codec cimport Writer

from asyncio import ensure_future

from ottla.wire.errors import ErrorCode

cdef int16_t REQUEST_TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
cdef int16_t STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
cdef int16_t NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


cdef class PendingReply:
    """The reply to a Produce request. It must not be sent before the batches are acknowledged."""

    def __init__(self, Writer frame, receiver, double deadline):
        self.frame, self.receiver, self.deadline = frame, receiver, deadline
        self.promises = []

    cdef int promise(
        self, Partition partition, int64_t required, bint of_flush, Py_ssize_t error_at
    ) except -1:
        """Hold the reply until the partition's high watermark reaches `required`; with `of_flush`,
        until everything below `required` is on this broker's disk."""
        cdef AckPromise promise = AckPromise.__new__(AckPromise)
        promise.required, promise.of_flush = required, of_flush
        promise.reply, promise.partition, promise.error_at = self, partition, error_at
        self.open_promises += 1
        self.promises.append(promise)
        partition.promise(promise)
        return 0

    cdef int move_to(self, Writer frame, Py_ssize_t start) except -1:
        """Move the reply into `frame`. It was in a writer with other replies, beginning at the
        position `start`."""
        frame.write_raw(self.frame.data + start, self.frame.size - start)
        self.frame = frame
        for item in self.promises:
            (<AckPromise>item).error_at -= start
        return 0

    cdef int promise_ended(self) except -1:
        self.open_promises -= 1
        if self.open_promises == 0:
            self.promises = None
            self.receiver.promise_kept()
        return 0

    cdef int expire(self) except -1:
        """On timeout: set the error code REQUEST_TIMED_OUT for batches that are not acknowledged
        yet; they may still be committed later."""
        cdef AckPromise promise
        if self.promises is None:
            return 0
        for item in self.promises:
            promise = <AckPromise>item
            if promise.partition.break_promise(promise):
                store_int16(self.frame.data + promise.error_at, REQUEST_TIMED_OUT)
        self.open_promises = 1
        return self.promise_ended()

    cdef int complete(self) except -1:
        """Called when all promises have ended, before the reply is sent. Subclasses add what was
        not known when the reply was written."""
        return 0


cdef class AckPromise(Promise):
    cdef int kept(self, Partition partition) except -1:
        cdef int16_t code
        if not self.due:                                # broken, for the reason in `code`
            code = STORAGE_ERROR if partition.log.offline is not None else partition.ended_code
            store_int16(self.reply.frame.data + self.error_at, code)
            if code == NOT_LEADER:
                self.reply.moved = [*(self.reply.moved or ()), self]
        return self.reply.promise_ended()


cdef class Wait(Watcher):
    """Calls `resume` of a waiting request, from the loop, at a change of a watched partition or at
    the timeout. All requests of a connection use its `timer`, since at most one of them waits."""

    def __init__(self, MovableTimer timer not None, resume):
        self.timer, self.resume = timer, resume

    cdef int start(self, double seconds) except -1:
        self.timer.set(self.timer.poller.clock.monotonic() + seconds, self.time_up)
        return 0

    cdef int moved(self, Partition partition) except -1:
        return self.wake()

    cdef int wake(self) except -1:
        # One turn may change many partitions of a fetch: the fetch runs again once, after all
        # changes.
        if not self.scheduled and not self.over:
            self.scheduled = True
            self.timer.poller.later(self.run)
        return 0

    def time_up(self):
        if not self.over:
            self.over = True
            self.resume(self)

    def run(self):
        self.scheduled = False
        if not self.over:
            self.resume(self)

    cdef int stop(self) except -1:
        self.over = True
        self.timer.clear()
        return 0


cdef class Held:
    """A request that makes later frames wait. It calls its receiver's `resume`, from the loop, when
    `advance` may make progress."""

    cdef Held advance(self):
        """Continue the request. Returns the request for which later frames have to wait from now
        on; None if they need not wait."""
        return None

    cdef int next_is_here(self) except -1:
        """The client's next frame has arrived; this may call `resume` at once."""
        return 0

    cdef int abandon(self) except -1:
        """The client has disconnected: cancel everything that the request waits for."""
        self.over = True
        return 0


cdef class LateReply(Held):
    """A response that its handler delivers later; cheaper than a coroutine with its task and turns
    of the loop."""

    def deliver(self, response):
        """Complete with this message, or fail with this exception. Called once, in the loop's
        thread."""
        if self.observer is not None:
            self.observer(response)     # even if the client has disconnected
        if self.over:
            return                      # the client has disconnected
        self.over = True
        self.response = response
        if self.receiver is not None:
            self.receiver.deliver_late(self)


cdef class TaskReply(LateReply):
    """The response of a handler that is a coroutine."""

    def __init__(self, coroutine):
        self.task = ensure_future(coroutine)
        self.task.add_done_callback(self.done)

    def done(self, task):
        """Deliver the result of the coroutine, which has finished."""
        if not task.cancelled():
            error = task.exception()
            self.deliver(task.result() if error is None else error)
        elif self.observer is not None:
            self.observer(ConnectionAbortedError(
                "the broker stopped before the request was complete"))

    cdef int abandon(self) except -1:
        """A request with an observer runs to its end, since the audit log shows what it did."""
        self.over = True
        if self.observer is None:
            self.task.cancel()
        return 0
