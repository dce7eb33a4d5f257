# cython: boundscheck=False, wraparound=False
"""Parses Fetch replies as their bytes arrive, and keeps none of the bytes. Record batches go from
the connection's buffer straight to the receiver. The connection passes an incomplete part again,
together with the bytes that follow.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from ottla.wire.codec cimport Cursor

from ottla.wire.errors import MalformedMessage

cdef enum:
    LENGTH_SIZE = 4
    HEAD_SIZE_MIN = 16                  # the smallest reply, without its length field
    UNIT_SIZE_MAX = 1 << 16             # largest part before or after the records of a partition
    # The part of a reply that comes next.
    FRAME = 0
    TOPIC = 1
    PARTITION = 2
    RECORDS = 3
    PARTITION_TAGS = 4
    TOPIC_TAGS = 5
    BODY_TAGS = 6


class MalformedReply(MalformedMessage):
    """The bytes cannot be the beginning of a Fetch reply."""


cdef class ReplyReceiver:
    """Receives the parts of replies: records as they arrive, any other part once it is
    complete."""

    cdef int replies_due(self) noexcept:
        """The number of requests without a complete reply."""
        return 0

    cdef int reply_begins(
        self, int32_t correlation_id, int16_t error, int32_t session_id
    ) except -1:
        """The head of a reply."""
        raise NotImplementedError

    cdef int partition_begins(
        self, bytes topic_id, int32_t index, int16_t error, int64_t high_watermark,
        int64_t log_start
    ) except -1:
        """The fields before the records of a partition."""
        raise NotImplementedError

    cdef Py_ssize_t take_records(
        self, const uint8_t *data, Py_ssize_t size, int64_t left
    ) except? -1:
        """Take records of the partition from `data`. `left` bytes of the partition's records are
        not consumed yet, including `data`. Returns how many bytes are consumed now, or -n if at
        least n bytes are needed to continue."""
        raise NotImplementedError

    cdef int partition_ends(self, int32_t diverging_epoch, int64_t diverging_end) except -1:
        """The fields after the records: where the logs diverge (KIP-595). Both are -1 if the logs
        do not diverge."""
        raise NotImplementedError

    cdef int reply_ends(self) except -1:
        """The whole reply was parsed."""
        raise NotImplementedError


cdef class ReplyParser:
    """Parses the replies of one connection, one after the other."""

    def __init__(self):
        self.cursor = Cursor()
        self.begin()

    cdef int reset(self) except -1:
        """The connection is new or has ended. A receiver may call this during `take`, which then
        returns."""
        self.over = True
        if not self.parsing:
            self.begin()
        return 0

    cdef int begin(self) except -1:
        self.state, self.wanted, self.reply_left, self.over = FRAME, LENGTH_SIZE, 0, False
        return 0

    cdef Py_ssize_t take(
        self, ReplyReceiver receiver, const uint8_t *data, Py_ssize_t size
    ) except -1:
        """Parse what has arrived; returns how many bytes are consumed. Raises MalformedMessage."""
        cdef Py_ssize_t used = 0, taken
        assert not self.parsing, "a receiver has called its parser"
        self.parsing = True
        try:
            while not self.over and (self.state != FRAME or size - used >= LENGTH_SIZE):
                taken = self.step(receiver, data + used, size - used)
                if taken < 0:
                    return used
                used += taken
            self.wanted = LENGTH_SIZE           # the next reply begins with its length
            return used
        finally:
            self.parsing = False
            if self.over:
                self.begin()

    cdef Py_ssize_t step(
        self, ReplyReceiver receiver, const uint8_t *data, Py_ssize_t size
    ) except -2:
        """Parse one part of a reply. Returns its size, or -1 if more bytes are needed."""
        cdef Py_ssize_t held = size
        cdef Cursor cursor = self.cursor
        if self.state == RECORDS:
            return self.pass_records(receiver, data, min(<int64_t>size, self.records_left))
        if self.state != FRAME:
            held = min(<int64_t>size, self.reply_left)
        cursor.at, cursor.end = data, data + held
        try:
            self.read_unit(receiver, cursor)
        except MalformedReply:
            raise
        except MalformedMessage:
            if held > UNIT_SIZE_MAX or (self.state != FRAME and held == self.reply_left):
                raise
            self.wanted = size + 1
            return -1
        return cursor.at - data

    cdef Py_ssize_t pass_records(
        self, ReplyReceiver receiver, const uint8_t *data, Py_ssize_t size
    ) except -2:
        cdef Py_ssize_t taken = -1
        assert self.reply_left >= self.records_left, "records go beyond the end of their reply"
        if size > 0:
            taken = receiver.take_records(data, size, self.records_left)
        if taken < 0:
            self.wanted = -taken
            return -1
        assert taken <= size <= self.records_left, "records were consumed before they arrived"
        self.records_left -= taken
        self.reply_left -= taken
        if not self.records_left:
            self.state = PARTITION_TAGS
        return taken

    cdef int read_unit(self, ReplyReceiver receiver, Cursor cursor) except -1:
        """Parse the part that `state` names; fields change only if the whole part has arrived."""
        cdef const uint8_t *began = cursor.at
        cdef int state = self.state
        if state == FRAME:
            return self.read_frame(receiver, cursor)
        if state == TOPIC:
            topic_id = cursor.read_uuid()
            self.partitions_left = self.count(cursor, "partitions")
            self.topic_id = topic_id
            self.state = PARTITION if self.partitions_left else TOPIC_TAGS
        elif state == PARTITION:
            self.read_partition(receiver, cursor)
        elif state == PARTITION_TAGS:
            self.read_tags(receiver, cursor)
            self.partitions_left -= 1
            self.state = PARTITION if self.partitions_left else TOPIC_TAGS
        elif state == TOPIC_TAGS:
            cursor.skip_tags()
            self.topics_left -= 1
            self.state = TOPIC if self.topics_left else BODY_TAGS
        else:
            cursor.skip_tags()
            self.reply_left -= cursor.at - began
            if self.reply_left:
                raise MalformedReply(f"Fetch reply: {self.reply_left} bytes follow the last field")
            self.state, self.wanted = FRAME, LENGTH_SIZE
            return receiver.reply_ends()
        self.reply_left -= cursor.at - began
        return 0

    cdef int read_frame(self, ReplyReceiver receiver, Cursor cursor) except -1:
        """| length | correlation id | tags | throttle ms | error | session id | topics count |"""
        cdef const uint8_t *began
        cdef int64_t length = cursor.read_int32()
        cdef int32_t correlation_id, session_id
        cdef int16_t error
        if length < HEAD_SIZE_MIN:
            raise MalformedReply(
                f"Fetch reply: it has a size of {length} bytes, expected at least {HEAD_SIZE_MIN}")
        if not receiver.replies_due():
            raise MalformedReply(
                f"a Fetch reply of {length} bytes came, but every request has been answered")
        began = cursor.at
        correlation_id = cursor.read_int32()
        cursor.skip_tags()
        cursor.read_int32()
        error = cursor.read_int16()
        session_id = cursor.read_int32()
        self.reply_left = length
        topics = self.count(cursor, "topics")
        receiver.reply_begins(correlation_id, error, session_id)
        self.topics_left = topics
        self.reply_left = length - (cursor.at - began)
        self.state = TOPIC if self.topics_left else BODY_TAGS
        return 0

    cdef Py_ssize_t count(self, Cursor cursor, str what) except -1:
        """Read the length of an array; its elements may not have arrived yet."""
        cdef int64_t count = <int64_t>cursor.read_unsigned_varint() - 1
        if not 0 <= count <= self.reply_left:
            raise MalformedReply(
                f"Fetch reply: the number of {what} is {count}, expected 0 to {self.reply_left}"
                " (the number of remaining bytes)")
        return count

    cdef int read_partition(self, ReplyReceiver receiver, Cursor cursor) except -1:
        cdef const uint8_t *began = cursor.at
        cdef int32_t index = cursor.read_int32()
        cdef int16_t error = cursor.read_int16()
        cdef int64_t high_watermark = cursor.read_int64(), log_start, size, aborted
        cursor.read_int64()                             # last_stable_offset
        log_start = cursor.read_int64()
        aborted = <int64_t>cursor.read_unsigned_varint() - 1
        while aborted > 0:
            aborted -= 1
            cursor.take(16, "aborted transaction")
            cursor.skip_tags()
        cursor.read_int32()                             # preferred_read_replica
        size = max(<int64_t>cursor.read_unsigned_varint() - 1, 0)
        if size > self.reply_left - (cursor.at - began):
            raise MalformedReply(
                f"Fetch reply: {size} bytes of records, but only"
                f" {self.reply_left - (cursor.at - began)} bytes remain")
        receiver.partition_begins(self.topic_id, index, error, high_watermark, log_start)
        self.records_left = size
        self.state = RECORDS if size else PARTITION_TAGS
        return 0

    cdef int read_tags(self, ReplyReceiver receiver, Cursor cursor) except -1:
        """The tagged fields after a partition's records: tag 0 is where the logs diverge."""
        cdef uint32_t left = cursor.read_tag_count(), tag, size
        cdef const uint8_t *after
        cdef int32_t epoch = -1
        cdef int64_t end = -1
        while left > 0:
            left -= 1
            tag = cursor.read_unsigned_varint()
            size = cursor.read_unsigned_varint()
            after = cursor.take(size, "tagged field") + size
            if tag == 0 and size >= 12:
                cursor.at -= size
                epoch, end = cursor.read_int32(), cursor.read_int64()
                cursor.at = after
        return receiver.partition_ends(epoch, end)
