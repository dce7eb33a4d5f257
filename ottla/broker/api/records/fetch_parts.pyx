# cython: boundscheck=False, wraparound=False
"""A Fetch request, read in one pass: its fields, and an item for each partition."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from ottla.broker.api.records.fetch_sessions cimport FetchItem
from ottla.broker.api.records.reader cimport CONSUMER, FINAL_EPOCH, NO_SESSION, Fetch
from ottla.wire.codec cimport Cursor

from ottla.wire.errors import ErrorCode, MalformedMessage

cdef int16_t UNKNOWN_SERVER_ERROR = ErrorCode.UNKNOWN_SERVER_ERROR

cdef enum:
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
    HIGH_WATERMARK_SINCE = 18           # a replica sends its high watermark (KIP-1166)

cdef int64_t NOT_SENT = 0x7fffffffffffffff


cdef Fetch read_fetch(Cursor request, int version, int32_t size_max):
    """Read a whole request; its reply has at most `size_max` bytes of records."""
    cdef Fetch fetch = Fetch.__new__(Fetch)
    cdef bint flexible = version >= 12
    cdef int8_t isolation_level
    fetch.version = version
    fetch.replica_id = request.read_int32() if version < 15 else CONSUMER
    fetch.replica_epoch = -1
    fetch.wait_ms_max = request.read_int32()
    fetch.size_min = request.read_int32()
    fetch.size_max = size_max
    if version >= 3:
        fetch.size_max = min(request.read_int32(), fetch.size_max)
    fetch.size_min = min(fetch.size_min, fetch.size_max)
    if version >= 4:
        isolation_level = request.read_int8()
        fetch.committed_only = isolation_level == READ_COMMITTED
        if isolation_level != READ_COMMITTED and isolation_level != READ_UNCOMMITTED:
            fetch.error = UNKNOWN_SERVER_ERROR      # as in Kafka
    fetch.session_id, fetch.session_epoch = NO_SESSION, FINAL_EPOCH
    if version >= 7:
        fetch.session_id = request.read_int32()
        fetch.session_epoch = request.read_int32()
    fetch.items, fetch.forgotten = [], None
    read_topics(fetch, request)
    if version >= 7:
        read_forgotten(fetch, request)
    if version >= ANY_REPLICA_SINCE:
        fetch.rack = request.read_string(flexible) or None
    if flexible:
        read_tags(fetch, request)
    return fetch


cdef int read_topics(Fetch fetch, Cursor request) except -1:
    cdef bint flexible = fetch.version >= 12
    cdef bint twice = False
    cdef Py_ssize_t topics, partitions
    cdef list items = fetch.items
    cdef int32_t before
    cdef FetchItem item
    cdef set named = None
    topics = required(request.read_count(flexible, 3), "topics")
    if topics > 1:
        named = set()
    while topics > 0:
        topics -= 1
        topic = read_topic(request, fetch.version)
        if named is not None:
            twice |= topic in named
            named.add(topic)
        before = -1
        partitions = required(request.read_count(flexible, 16), "partitions")
        while partitions > 0:
            partitions -= 1
            item = read_item(request, fetch.version, topic)
            twice |= item.index <= before
            before = item.index
            items.append(item)
        if flexible:
            request.skip_tags()
    if twice:
        # Some partitions may be named twice: a topic is repeated, or the indexes of its partitions
        # do not ascend. Keep each partition once; the last one wins.
        fetch.items = list({
            ((<FetchItem>each).topic, (<FetchItem>each).index): each for each in fetch.items
        }.values())
    return 0


cdef object read_topic(Cursor request, int version):
    if version >= 13:
        return request.read_uuid()
    name = request.read_string(version >= 12)
    if name is None:
        raise MalformedMessage("Fetch: topic must not be null")
    return name


cdef FetchItem read_item(Cursor request, int version, object topic):
    cdef FetchItem item = FetchItem.__new__(FetchItem)
    item.topic = topic
    item.index = request.read_int32()
    item.current_leader_epoch = request.read_int32() if version >= 9 else -1
    item.fetch_offset = request.read_int64()
    item.last_fetched_epoch = request.read_int32() if version >= 12 else -1
    item.follower_start = request.read_int64() if version >= 5 else -1
    item.uncounted = True
    item.size_max = request.read_int32()
    item.sent_high_watermark = item.sent_log_start = item.preferred = -1
    if version >= HIGH_WATERMARK_SINCE:
        read_item_tags(item, request)
    elif version >= 12:
        request.skip_tags()
    return item


cdef int read_item_tags(FetchItem item, Cursor request) except -1:
    """Read the tagged fields of a partition; only a replica's high watermark is used (tag 1)."""
    cdef Cursor field = tagged(request, 1)
    if field is not None and field.end - field.at == 8:
        item.sent_high_watermark = field.read_int64()
    if item.sent_high_watermark == NOT_SENT:
        item.sent_high_watermark = -1
    return 0


cdef int read_forgotten(Fetch fetch, Cursor request) except -1:
    cdef bint flexible = fetch.version >= 12
    cdef Py_ssize_t topics, partitions
    topics = required(request.read_count(flexible, 3), "forgotten_topics_data")
    if topics > 0:
        fetch.forgotten = []
    while topics > 0:
        topics -= 1
        topic = read_topic(request, fetch.version)
        partitions = required(request.read_count(flexible, 4), "partitions")
        while partitions > 0:
            partitions -= 1
            fetch.forgotten.append((topic, request.read_int32()))
        if flexible:
            request.skip_tags()
    return 0


cdef int read_tags(Fetch fetch, Cursor request) except -1:
    """Read the tagged fields. Only `replica_state` is used (tag 1, from version 15 on): the id and
    the broker epoch of a replica."""
    cdef Cursor field = tagged(request, 1)
    if field is not None and fetch.version >= 15:
        fetch.replica_id, fetch.replica_epoch = field.read_int32(), field.read_int64()
    return 0


cdef Cursor tagged(Cursor request, uint32_t wanted):
    """Skip the tagged fields. Return the field with the tag `wanted`, or None."""
    cdef uint32_t left = request.read_tag_count()
    cdef uint32_t tag, size
    cdef const uint8_t *at
    cdef Cursor field = None
    while left > 0:
        left -= 1
        tag = request.read_unsigned_varint()
        size = request.read_unsigned_varint()
        at = request.take(size, "tagged field")
        if tag == wanted:
            field = Cursor()
            field.at, field.end = at, at + size
    return field


cdef Py_ssize_t required(Py_ssize_t count, str what) except -1:
    if count < 0:
        raise MalformedMessage(f"Fetch: {what} must not be null")
    return count
