# cython: boundscheck=False, wraparound=False
"""A follower's Fetch request. The version is 17; if consumers read from followers, it is 18, which
adds the follower's high watermark.
"""

from libc.stdint cimport int32_t, int64_t

from ottla.replication.fetch_settings cimport FetchSettings
from ottla.replication.partition cimport Partition
from ottla.wire.byteorder cimport store_int32
from ottla.wire.codec cimport Writer

cdef enum:
    LENGTH_SIZE = 4
    FETCH = 1
    VERSION = 17


cdef class FetchedPartition:
    pass


cdef bytes fetch_frame(
    FetchSettings settings, int64_t number, int32_t session_id, int32_t session_epoch, list named,
    list forgotten, int32_t node_id, int64_t broker_epoch
):
    """The whole frame of request `number`, which names the partitions `named` and removes the keys
    `forgotten` from the session."""
    cdef Writer frame = Writer()
    frame.write_int32(0)
    frame.write_int16(FETCH)
    frame.write_int16(VERSION + settings.tells_high_watermark)
    frame.write_int32(<int32_t>(number & 0x7fffffff))
    frame.write_string(settings.client_id, False)
    frame.write_no_tags(True)
    frame.write_int32(settings.wait_ms_max)
    frame.write_int32(settings.size_min)
    frame.write_int32(settings.size_max)
    frame.write_int8(0)                             # read_uncommitted
    frame.write_int32(session_id)
    frame.write_int32(session_epoch)
    write_topics(frame, settings, named)
    write_forgotten(frame, forgotten)
    frame.write_string("", True)                    # rack
    # One tagged field: tag 1, 13 bytes, replica_state (node, broker epoch, no tags).
    for byte in (1, 1, 13):
        frame.write_int8(byte)
    frame.write_int32(node_id)
    frame.write_int64(broker_epoch)
    frame.write_int8(0)
    store_int32(frame.data, <int32_t>(frame.size - LENGTH_SIZE))
    return (<const char *>frame.data)[:frame.size]


cdef int write_topics(Writer body, FetchSettings settings, list items) except -1:
    cdef FetchedPartition item
    cdef dict by_topic = {}
    for item in items:
        by_topic.setdefault(item.key[0], []).append(item)
    body.write_count(len(by_topic), True)
    for topic_id, partitions in by_topic.items():
        body.write_raw(<const char *><bytes>topic_id, 16)
        body.write_count(len(partitions), True)
        for item in partitions:
            body.write_int32(item.key[1])
            body.write_int32(item.told_epoch)
            body.write_int64(item.told_offset)
            body.write_int32(item.told_last_epoch)
            body.write_int64(item.told_start)
            body.write_int32(settings.partition_size_max)
            if settings.tells_high_watermark:
                # One tagged field: tag 1, 8 bytes, the follower's high watermark. If it is -1, the
                # leader answers at once.
                for byte in (1, 1, 8):
                    body.write_int8(byte)
                body.write_int64(
                    item.partition.high_watermark if item.partition.role.in_step else -1)
            else:
                body.write_no_tags(True)
        body.write_no_tags(True)
    return 0


cdef int write_forgotten(Writer body, list keys) except -1:
    cdef dict by_topic = {}
    for topic_id, index in keys:
        by_topic.setdefault(topic_id, []).append(index)
    body.write_count(len(by_topic), True)
    for topic_id, indexes in by_topic.items():
        body.write_raw(<const char *><bytes>topic_id, 16)
        body.write_count(len(indexes), True)
        for index in indexes:
            body.write_int32(index)
        body.write_no_tags(True)
    return 0
