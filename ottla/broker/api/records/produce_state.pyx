# cython: boundscheck=False, wraparound=False
"""Reads a Produce request once, and keeps the position of each partition's records.

The whole request is read before anything is appended, so nothing of a malformed request is
appended. The positions are then used to ask the transaction's coordinator, and to append the
records.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcpy

from ottla.wire.batch cimport HEADER_SIZE, TRANSACTIONAL, attributes, magic
from ottla.wire.codec cimport Cursor

from ottla.wire.errors import MalformedMessage

cdef enum:
    FLEXIBLE = 9                        # first version with compact lengths
    TOPIC_IDS = 13                      # first version that names topics by their ids
    TOPIC_ID_SIZE = 16
    TOPIC_NAME_SIZE_MAX = 249
    STRING_SIZE_MAX = 32767


cdef class ProduceState(Held):
    cdef int read(self, Cursor request) except -1:
        """Read the request to its end. Raises MalformedMessage if it is not well formed.

        As in Apache Kafka, the last of duplicate partitions counts, and topics without partitions
        are left out.
        """
        cdef int version = self.version
        cdef bint flexible = version >= FLEXIBLE
        cdef Py_ssize_t topics, size
        cdef const uint8_t *name
        cdef set names = None
        cdef bint twice = False
        self.body, self.size_sent = <uint8_t *>request.at, <int32_t>(request.end - request.at)
        self.parts, self.room = &self.first, 1
        if version >= 3:
            self.transactional_id = request.read_string(flexible)
        self.acks = request.read_int16()
        self.timeout_ms = request.read_int32()
        topics = required(request.read_count(flexible, 3), "topics")
        while topics > 0:
            topics -= 1
            size = TOPIC_ID_SIZE
            if version < TOPIC_IDS:
                size = required(request.read_string_length(flexible), "topic name")
            name = request.take(size, "topic")
            if size > TOPIC_NAME_SIZE_MAX:
                check_name(name, size)
            if topics > 0 or names is not None:
                names = set() if names is None else names
                key = <bytes>(<const char *>name)[:size]
                twice = twice or key in names
                names.add(key)
            twice |= self.read_partitions(
                request, name, size, required(request.read_count(flexible, 5), "partitions"))
            if flexible:
                request.skip_tags()
        if twice:
            self.remove_duplicates()
        return 0

    cdef int read_partitions(
        self, Cursor request, const uint8_t *topic, Py_ssize_t topic_size, Py_ssize_t partitions
    ) except -1:
        """Read the partitions of one topic; returns whether one of them occurs twice."""
        cdef bint flexible = self.version >= FLEXIBLE, ascending = True
        cdef const uint8_t *records
        cdef Py_ssize_t left = partitions, begin = self.count, size
        cdef int32_t before = -1
        cdef ProducedPartition *part
        while left > 0:
            if self.count == self.room:
                self.make_room(max(8, 2 * self.room))
            part = self.parts + self.count
            part.topic_at = <int32_t>(topic - self.body)
            part.topic_size = <int32_t>topic_size
            part.partitions = <int32_t>partitions if left == partitions else 0
            part.index = request.read_int32()
            ascending = ascending and part.index > before
            before = part.index
            size = request.read_bytes_length(flexible)
            records = request.take(max(size, 0), "records")
            part.records_at, part.sent = <int32_t>(records - self.body), <int32_t>size
            if size >= HEADER_SIZE and magic(records) == 2 and attributes(records) & TRANSACTIONAL:
                self.transactional_batches = True
            if flexible:
                request.skip_tags()
            self.count += 1
            left -= 1
        self.topics += partitions > 0
        if ascending or partitions < 2:
            return False
        return len({self.parts[at].index for at in range(begin, self.count)}) < partitions

    cdef ProducedPartition *make_room(self, Py_ssize_t room) except NULL:
        """Move the parts to larger memory. The memory is bounded, since each part takes at least
        six bytes of the request."""
        cdef bytearray memory = PyByteArray_FromStringAndSize(
            NULL, room * sizeof(ProducedPartition))
        cdef ProducedPartition *parts = <ProducedPartition *>PyByteArray_AS_STRING(memory)
        assert self.count <= room
        memcpy(parts, self.parts, self.count * sizeof(ProducedPartition))
        self.memory, self.parts, self.room = memory, parts, room
        return parts

    cdef int remove_duplicates(self) except -1:
        """Merge topics that occur twice. Of a partition's entries, keep only the last one."""
        cdef dict topics = {}, parts
        cdef Py_ssize_t at
        cdef bytearray read = self.memory
        cdef ProducedPartition *was = self.parts
        cdef ProducedPartition *made
        for at in range(self.count):
            if was[at].partitions > 0:
                parts = topics.setdefault(self.topic_id(was + at), {})
            parts[was[at].index] = at
        made = self.make_room(self.count)
        self.count, self.topics = 0, len(topics)
        for parts in topics.values():
            partitions = len(parts)
            for at in parts.values():
                made[self.count] = was[at]
                made[self.count].partitions = partitions
                partitions = 0
                self.count += 1
        return 0

    cdef int keep(self, Py_ssize_t position) except -1:
        """Copy the rest of the request, which begins at `position`, out of the connection's
        memory."""
        cdef uint8_t[::1] view
        if self.frame is None:
            self.frame = PyByteArray_FromStringAndSize(
                <char *>self.body + position, self.size_sent - position)
            view = self.frame
            self.body = &view[0] - position
        return 0


cdef Py_ssize_t required(Py_ssize_t length, str what) except -1:
    if length < 0:
        raise MalformedMessage(f"Produce: {what} must not be null")
    return length


cdef int check_name(const uint8_t *name, Py_ssize_t size) except -1:
    """Refuse a name that does not fit into the reply once U+FFFD replaces its invalid bytes."""
    text = (<const char *>name)[:size].decode("utf-8", "replace")
    if len(text.encode()) > STRING_SIZE_MAX:
        raise MalformedMessage(f"a topic name of {size} bytes is not valid UTF-8")
    return 0
