# cython: boundscheck=False, wraparound=False
"""One Fetch request of a connection.

The request is answered at once if the reply is due, for example because there are enough bytes.
Otherwise it waits until the reply is due, at most until its timeout.
"""

from libc.stdint cimport int32_t, int64_t

from ottla.broker.api.records.conversions cimport Conversion
from ottla.broker.api.records.fetch cimport FetchHandler
from ottla.broker.api.records.fetch_sessions cimport FetchItem
from ottla.broker.api.records.reader cimport Fetch
from ottla.broker.network.promises cimport Held, Wait
from ottla.broker.network.reply cimport Reply
from ottla.broker.network.reply_queue cimport ReplyQueue
from ottla.broker.security.client cimport Client
from ottla.wire.byteorder cimport store_int32
from ottla.wire.codec cimport Cursor
from ottla.wire.headers cimport write_response_header

cdef enum:
    FETCH = 1
    FIELDS_SIZE = 48            # approximate bytes of a partition in a reply, without its records
    SAMPLED_MAX = 1000          # items that one call of `sample` looks at


cdef Held serve_fetch(
    FetchHandler handler, Cursor request, int version, int32_t correlation_id, Client client,
    ReplyQueue queue, object receiver
):
    """Serve a request. Returns the object that holds back the connection's later frames, or
    None."""
    cdef Fetch fetch = handler.read(request, version)
    cdef FetchRequest waiting
    fetch.client = client
    if queue.quotas.active and fetch.reader.consumer:
        fetch.size_max = <int32_t>min(
            <int64_t>fetch.size_max, queue.quotas.fetch_size_max(client))
        fetch.size_min = min(fetch.size_min, fetch.size_max)
    handler.begin(fetch, queue.clock.monotonic())
    if client.samples_reads:
        sample(client, fetch)
    if fetch.session is not None:
        # An abandoned request of this session may have left conversions behind.
        fetch.format.forget(fetch)
    if try_fetch(handler, fetch, correlation_id, queue, False):
        return None
    waiting = FetchRequest.__new__(FetchRequest)
    waiting.handler, waiting.fetch, waiting.queue = handler, fetch, queue
    waiting.correlation_id, waiting.receiver = correlation_id, receiver
    waiting.wait = Wait(queue.wait_timer, waiting.moved)
    watch(fetch, waiting.wait)
    waiting.wait.start(fetch.wait_ms_max * 0.001)
    waiting.convert()
    return waiting


cdef int sample(Client client, Fetch fetch) except -1:
    """Record the topics of a request or, if it has a session, of the session."""
    cdef Py_ssize_t looked = 0
    client.samples_reads = False
    for item in fetch.items if fetch.session is None else fetch.session.items.values():
        client.sampled(False, (<FetchItem>item).topic)
        looked += 1
        if looked == SAMPLED_MAX:
            break
    return 0


cdef bint try_fetch(
    FetchHandler handler, Fetch fetch, int32_t correlation_id, ReplyQueue queue, bint final
) except -1:
    """Write the reply if it is due."""
    cdef Reply out = queue.out
    cdef Py_ssize_t start = out.size, ranges = len(out.ranges), file_bytes = out.file_bytes
    cdef Py_ssize_t body_at, size
    cdef int32_t throttle_ms = 0
    if not handler.look(fetch, final):
        return False
    if queue.quotas.active and fetch.reader.consumer:
        throttle_ms = queue.quotas.would_throttle(
            queue.client, reply_size(fetch), queue.clock.monotonic())
        if throttle_ms > 0:
            put_off(handler, fetch)
    try:
        out.write_int32(0)
        write_response_header(out, FETCH, fetch.version, correlation_id)
        body_at = out.size
        handler.writer.write(fetch, out)
    except BaseException:
        out.cut(start, ranges)
        raise
    if queue.quotas.active and fetch.reader.consumer:
        size = 0 if throttle_ms > 0 else out.size - start + out.file_bytes - file_bytes
        throttle_ms = max(throttle_ms, queue.charge(FETCH, size))
        if throttle_ms > 0:
            queue.throttle(out, body_at, FETCH, fetch.version, throttle_ms)
    store_int32(out.data + start, <int32_t>(out.size - start - 4 + out.file_bytes - file_bytes))
    queue.answered(FETCH)
    return True


cdef Py_ssize_t reply_size(Fetch fetch) except -1:
    """The approximate size of the reply in bytes, for a quota."""
    cdef Py_ssize_t size = FIELDS_SIZE * len(fetch.in_reply)
    cdef FetchItem item
    for each in fetch.in_reply:
        item = <FetchItem>each
        if item.converted is not None:
            size += len(item.converted)
        elif item.slice is not None:
            size += item.slice.size
    return size


cdef int put_off(FetchHandler handler, Fetch fetch) except -1:
    """Answer without any partition: the client is throttled and asks again afterwards.

    If the request has just begun a session, the session is removed, since this answer does not
    contain the session's partitions.
    """
    fetch.in_reply = []
    if fetch.session is not None and not fetch.incremental:
        fetch.session.wait, fetch.watching = None, False
        handler.sessions.remove(fetch.session.id)
        fetch.session = None
    return 0


cdef class FetchRequest(Held):
    """A Fetch request that waits (a long poll)."""

    def moved(self, wait):
        """A partition of the request has changed, or the timeout has passed."""
        if not self.over:
            self.receiver.resume(self)

    cdef Held advance(self):
        if not try_fetch(
                self.handler, self.fetch, self.correlation_id, self.queue, self.wait.over):
            self.convert()
            return self
        self.abandon()
        return None

    cdef int next_is_here(self) except -1:
        """The client has sent its next request. If the client is a replica, answer the waiting
        request now. While one request waits, a replica sends another only to report something
        new, such as a change of leadership."""
        if not self.fetch.reader.consumer and not self.over:
            self.wait.time_up()
        return 0

    cdef int convert(self) except -1:
        """Have a thread convert records for an old client, or rebuild an index, if the fetch waits
        for that."""
        cdef Conversion conversion = self.fetch.converting
        if self.fetch.waits and self.fetch.rebuild is not self.rebuild:
            self.rebuild = self.fetch.rebuild
            work = self.handler.broker.workers.renew(self.rebuild)
            work.add_done_callback(self.converted)
        if conversion is not None and not conversion.started:
            conversion.started = True
            work = self.handler.broker.workers.run(conversion.run)
            work.add_done_callback(self.converted)
        return 0

    def converted(self, work):
        """Continue the fetch once the thread has finished."""
        if not self.over and not work.cancelled():
            self.receiver.resume(self)

    cdef int abandon(self) except -1:
        self.over = True
        unwatch(self.fetch, self.wait)
        self.wait.stop()
        self.wait = None                # `wait` refers to this object: break the cycle
        return 0


cdef int watch(Fetch fetch, Wait wait) except -1:
    """Wake `wait` when a partition of this fetch changes."""
    fetch.watching = True
    if fetch.session is not None:
        fetch.session.wait = wait
        if fetch.session.moved_meanwhile:
            # A partition changed during `look`, which may have checked it before the change. For
            # example, `look` notes a replica's fetch offset, and this commits a record. The commit
            # lets a coordinator append to a partition that `look` has already checked.
            wait.wake()
    else:
        for item in fetch.items:
            if (<FetchItem>item).partition is None:
                continue
            fetch.reader.watch((<FetchItem>item).partition, wait)
    return 0


cdef int unwatch(Fetch fetch, Wait wait) except -1:
    if not fetch.watching:
        return 0
    fetch.watching = False
    if fetch.session is not None:
        fetch.session.wait = None
    else:
        for item in fetch.items:
            if (<FetchItem>item).partition is not None:
                (<FetchItem>item).partition.unwatch(wait)
    return 0
