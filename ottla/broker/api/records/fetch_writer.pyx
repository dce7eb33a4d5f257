# cython: boundscheck=False, wraparound=False
"""Writes the reply of a Fetch from what a look has found. The reply consists of bytes, and of
ranges of segment files.
"""

from libc.stdint cimport int16_t

from ottla.broker.api.records.current_leader cimport (
    fetch_leader, write_endpoints, write_fetch_tags,
)
from ottla.broker.api.records.fetch_sessions cimport FetchItem
from ottla.broker.api.records.legacy_fetch cimport BATCHES_SINCE
from ottla.broker.api.records.reader cimport NO_SESSION, Fetch
from ottla.broker.network.counts cimport Counts
from ottla.broker.network.reply cimport Reply

import logging

from ottla.wire.errors import ErrorCode

log = logging.getLogger("ottla.fetch")

cdef int16_t UNKNOWN_SERVER_ERROR = ErrorCode.UNKNOWN_SERVER_ERROR
cdef int16_t STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR

cdef enum:
    FETCH_KEY = 1


cdef class FetchWriter:
    def __init__(self, metadata, Counts counts not None, doubt):
        self.metadata, self.counts, self.doubt = metadata, counts, doubt

    cdef int write(self, Fetch fetch, Reply reply) except -1:
        """Write the reply's body from what `look` has found."""
        cdef bint flexible = fetch.version >= 12
        if fetch.version >= 1:
            reply.write_int32(0)                        # throttle_time_ms
        if fetch.version >= 7:
            reply.write_int16(fetch.error)
            if fetch.error == UNKNOWN_SERVER_ERROR:
                reply.write_int32(fetch.session_id)
            else:
                reply.write_int32(NO_SESSION if fetch.session is None else fetch.session.id)
        self.write_items(fetch, reply)
        if fetch.leaders is not None:
            return write_endpoints(reply, self.metadata.image, fetch.leaders, fetch.client.listener)
        return reply.write_no_tags(flexible)

    cdef int write_items(self, Fetch fetch, Reply reply) except -1:
        cdef FetchItem item
        cdef bint flexible = fetch.version >= 12
        cdef dict by_topic
        if len(fetch.in_reply) == 1:                    # most fetches: no need to group by topic
            reply.write_count(1, flexible)
            item = <FetchItem>fetch.in_reply[0]
            return self.write_topic(fetch, item.topic, fetch.in_reply, reply)
        by_topic = {}
        for each in fetch.in_reply:
            item = <FetchItem>each
            by_topic.setdefault(item.topic, []).append(item)
        reply.write_count(len(by_topic), flexible)
        for topic, items in by_topic.items():
            self.write_topic(fetch, topic, <list>items, reply)
        return 0

    cdef int write_topic(self, Fetch fetch, object topic, list items, Reply reply) except -1:
        cdef bint flexible = fetch.version >= 12
        cdef FetchItem item
        if fetch.version >= 13:
            reply.write_raw(<const char *><bytes>topic, 16)
        else:
            reply.write_string(<str>topic, flexible)
        reply.write_count(len(items), flexible)
        for each in items:
            item = <FetchItem>each
            self.write_item(fetch, item, reply)
            if fetch.session is not None:
                self.remember(fetch, item)
        return reply.write_no_tags(flexible)

    cdef int remember(self, Fetch fetch, FetchItem item) except -1:
        """Record the values that the client has now; after an error or a divergence it has none."""
        if item.error != 0 or item.diverging_epoch >= 0:
            item.sent_high_watermark = item.sent_log_start = -1
        else:
            item.sent_high_watermark, item.sent_log_start = item.high_watermark, item.log_start
        if item.slice is not None and item.slice.size > 0:
            fetch.session.move_last(item)
            item.slice = None
        item.conversion = item.converted = None
        return 0

    cdef int write_item(self, Fetch fetch, FetchItem item, Reply reply) except -1:
        cdef Py_ssize_t start = reply.size, ranges = len(reply.ranges)
        try:
            self.write_found(fetch, item, reply)
        except OSError as error:
            log.error("%r could not be read: %s", item.partition, error)
            self.doubt(item.partition, error, item.fetch_offset)
            reply.cut(start, ranges)
            fetch.refuse(item, STORAGE_ERROR)
            self.counts.failed(FETCH_KEY, item.error)
            self.write_found(fetch, item, reply)
        return 0

    cdef int write_found(self, Fetch fetch, FetchItem item, Reply reply) except -1:
        cdef int version = fetch.version
        cdef bint flexible = version >= 12
        cdef Py_ssize_t size = 0 if item.slice is None else item.slice.size
        if item.partition is not None:
            fetch.reader.count_sent(item, size)
        reply.write_int32(item.index)
        reply.write_int16(item.error)
        reply.write_int64(item.high_watermark)
        if version < BATCHES_SINCE:
            reply.write_bytes(item.converted or b"", False)
            return 0
        reply.write_int64(item.last_stable_offset)
        if version >= 5:
            reply.write_int64(item.log_start)
        if item.aborted is None:
            reply.write_count(-1, flexible)
        else:
            reply.write_count(len(item.aborted), flexible)
            for aborted in item.aborted:
                reply.write_int64(aborted.producer_id)
                reply.write_int64(aborted.first_offset)
                reply.write_no_tags(flexible)
        if version >= 11:
            reply.write_int32(item.preferred)
        if item.converted is not None:
            reply.write_bytes(item.converted, flexible)
            return 0                                    # versions 4 to 9 have no tagged fields
        reply.write_count(size, flexible)
        if size > 0:
            reply.add_file(item.slice.file, item.slice.position, size)
        if flexible:
            write_fetch_tags(
                reply, self.leader_of(fetch, item), item.diverging_epoch, item.diverging_end)
        return 0

    cdef object leader_of(self, Fetch fetch, FetchItem item):
        leader = None if item.error == 0 or fetch.version < 16 else fetch_leader(
            self.metadata.image, item.error, item.topic, item.index)
        if leader is not None:
            fetch.leaders = [*(fetch.leaders or ()), leader[0]]
        return leader
