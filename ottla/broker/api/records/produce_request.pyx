# cython: boundscheck=False, wraparound=False
"""One Produce request of a connection: what it waits for, and the destination of its reply.

    frame -> checked -> admitted to its transaction -> appended -> prepared in a thread -> ... reply
                        by a coordinator, but only            |_________________________|
                        from version 12 on or in a
                        cluster

Appending and preparation alternate if several batches need a thread. Later frames do not wait for
promises (acks=all, or a flush): the reply is queued together with its promises.
"""

from libc.stdint cimport int32_t

from ottla.broker.api.records.produce cimport ProduceHandler
from ottla.broker.api.records.produce_state cimport ProduceState
from ottla.broker.network.promises cimport Held
from ottla.broker.network.reply_queue cimport ReplyQueue
from ottla.broker.security.client cimport Client
from ottla.wire.byteorder cimport store_int32
from ottla.wire.codec cimport Cursor, Writer
from ottla.wire.headers cimport write_response_header

from ottla.wire.errors import MalformedMessage

cdef enum:
    PRODUCE = 0
    IMPLICIT_TRANSACTION = 12           # Produce adds its partitions implicitly (KIP-890)


cdef Held serve_produce(
    ProduceHandler handler, Cursor request, int version, int32_t correlation_id, Client client,
    ReplyQueue queue, object receiver
):
    """Serve a request. Returns the object that holds back the connection's later frames, or
    None."""
    cdef ProduceRequest produce = ProduceRequest.__new__(ProduceRequest)
    produce.handler, produce.queue, produce.receiver = handler, queue, receiver
    produce.version, produce.correlation_id, produce.client = version, correlation_id, client
    produce.read(request)
    if produce.transactional_id is not None and (
            version >= IMPLICIT_TRANSACTION or handler.gate.verifier is not None):
        waiting = handler.gate.admission(produce)
        if waiting is not None:
            produce.keep(0)
            produce.asks = True
            produce.wait_for(waiting)
            return produce
    return produce.begin()


cdef class ProduceRequest(ProduceState):
    """A request from its frame to its reply. It holds back later frames while a coordinator admits
    it to its transaction, and while a thread prepares a batch."""

    cdef Held begin(self):
        """Append the records and queue the reply, unless a thread has to prepare a batch first."""
        cdef bint apart = self.acks == -1 or self.acks == 0 or self.queue.waiting() > 0
        cdef Writer reply = Writer() if apart else self.queue.out
        cdef Py_ssize_t start = reply.size
        reply.write_int32(0)
        write_response_header(reply, PRODUCE, self.version, self.correlation_id)
        self.handler.begin(self, reply)
        if not self.handler.serve_partitions(self):
            return self.prepare(start)
        self.finish(start)
        return None

    cdef Held prepare(self, Py_ssize_t start):
        """Have a thread prepare a batch, or rebuild an index of its log. Meanwhile nothing more is
        read from the connection: the end of the connection must not be handled before the records
        sent earlier are appended."""
        cdef Writer reply = self.reply
        self.handler.suspend(self, start)
        if reply is self.queue.out:                     # an incomplete reply must not be sent
            self.queue.out.cut(start, len(self.queue.out.ranges))
        self.stops_reading = True
        workers = self.handler.broker.workers
        rebuild = self.preparation.rebuild
        self.wait_for(
            workers.run(self.preparation.run) if rebuild is None else workers.renew(rebuild))
        return self

    cdef int wait_for(self, work) except -1:
        self.work = work
        work.add_done_callback(self.done)
        return 0

    def done(self, work):
        """Continue the request once the coordinator or the thread has finished."""
        if not self.over and not work.cancelled():
            self.receiver.resume(self)

    cdef Held advance(self):
        if not self.asks:
            self.handler.resume(self)
            if not self.handler.serve_partitions(self):
                return self.prepare(0)
            self.finish(0)
            return None
        self.asks = False
        self.refusal = self.work.result()
        return self.begin()

    cdef int abandon(self) except -1:
        self.over = True
        self.work.cancel()
        return 0

    cdef int finish(self, Py_ssize_t start) except -1:
        """Write the length of the complete reply, then queue the reply with any promises."""
        cdef Writer reply = self.reply
        cdef int32_t throttle_ms = 0
        self.client.samples_writes = False
        if self.queue.quotas.active:
            throttle_ms = self.queue.charge(PRODUCE, self.queue.frame_size)
        if self.acks == 0:
            if self.failed:
                raise MalformedMessage(
                    "a Produce request with acks=0 failed; it gets no reply, so the connection is"
                    " closed to report the failure")
            reply = None
        if throttle_ms > 0:
            self.queue.throttle(reply, start, PRODUCE, self.version, throttle_ms)
        if reply is None:
            return self.queue.answered(PRODUCE)
        store_int32(reply.data + start, <int32_t>(reply.size - start - 4))
        return self.queue.add(reply, start, self.pending)
