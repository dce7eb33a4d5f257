# cython: boundscheck=False, wraparound=False
"""Adds the new leader to NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH errors in replies to
Produce and Fetch (KIP-951). Clients continue with that leader without requesting Metadata.

If leadership moves while a produce request waits for other replicas, its reply is already written.
The new leader is then inserted into the reply, as in Apache Kafka.
"""

from libc.stdint cimport int16_t, int32_t, int64_t

from ottla.broker.network.promises cimport AckPromise, PendingReply
from ottla.replication.partition cimport Partition
from ottla.wire.byteorder cimport store_int32
from ottla.wire.codec cimport Writer

from ottla.wire.errors import ErrorCode, NotLeaderOrFollower, UnknownTopicOrPartition

cdef int16_t NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
cdef int16_t FENCED = ErrorCode.FENCED_LEADER_EPOCH

cdef enum:
    LEADER_SIZE = 9                     # leader id int32, leader epoch int32, no tags
    DIVERGING_SIZE = 13                 # epoch int32, end offset int64, no tags
    # Bytes from the error code of an acknowledged batch to its tags: error code, base offset,
    # append time, log start, no record errors, no message.
    TO_TAGS = 2 + 8 + 8 + 8 + 1 + 1


cdef object absent(object partitions, int32_t index):
    """The error for a partition without a replica here. `partitions` is the list of its topic's
    partitions, None for an unknown topic."""
    if isinstance(partitions, list) and 0 <= index < len(<list>partitions):
        # As in Kafka: the client's metadata are outdated, and it has to refresh them.
        return NotLeaderOrFollower("the partition has no replica on this broker")
    return UnknownTopicOrPartition("partition not found on this broker")


cdef object new_leader(object image, object topic, int32_t index):
    """(leader, leader epoch) of a partition whose topic is given by name or id; None if there is
    no leader."""
    topic_image = image.topic_by_id(topic) if isinstance(topic, bytes) else image.topics.get(topic)
    if topic_image is None or not 0 <= index < len(topic_image.partitions):
        return None
    state = topic_image.partitions[index]
    return None if state.leader < 0 else (state.leader, image.leader_epoch(topic_image, state))


cdef object fetch_leader(object image, int16_t error, object topic, int32_t index):
    """Return the new leader if a Fetch reply with this error names the leader, otherwise None."""
    return new_leader(image, topic, index) if error in (NOT_LEADER, FENCED) else None


cdef int write_leader(Writer reply, int tag, object leader) except -1:
    """Write the tagged fields of a partition: current_leader and no others."""
    leader_id, leader_epoch = leader
    reply.write_int8(1)
    reply.write_int8(tag)
    reply.write_int8(LEADER_SIZE)
    reply.write_int32(leader_id)
    reply.write_int32(leader_epoch)
    reply.write_int8(0)
    return 0


cdef int write_fetch_tags(
    Writer reply, object leader, int32_t diverging_epoch, int64_t diverging_end
) except -1:
    """Write the tagged fields of a fetched partition: current_leader (tag 1), or diverging_epoch
    (tag 0)."""
    if leader is not None:
        return write_leader(reply, 1, leader)
    if diverging_epoch < 0:
        return reply.write_no_tags(True)
    reply.write_int8(1)
    reply.write_int8(0)
    reply.write_int8(DIVERGING_SIZE)
    reply.write_int32(diverging_epoch)
    reply.write_int64(diverging_end)
    reply.write_int8(0)
    return 0


cdef int write_endpoints(Writer reply, object image, object leaders, str listener) except -1:
    """Write the tagged fields of a reply: node_endpoints (tag 0), the endpoints of `leaders` for
    clients of this listener."""
    cdef Writer field
    endpoints = []
    for node_id in dict.fromkeys(leaders or ()):
        broker = image.brokers.get(node_id)
        endpoint = None if broker is None else broker.endpoint(listener)
        if endpoint is not None:
            endpoints.append((node_id, endpoint, broker.rack))
    if not endpoints:
        return reply.write_no_tags(True)
    field = Writer()
    field.write_count(len(endpoints), True)
    for node_id, endpoint, rack in endpoints:
        field.write_int32(node_id)
        field.write_string(endpoint.host, True)
        field.write_int32(endpoint.port)
        field.write_string(rack, True)
        field.write_no_tags(True)
    reply.write_int8(1)
    reply.write_int8(0)
    reply.write_unsigned_varint(field.size)
    reply.write_raw(field.data, field.size)
    return 0


cdef class ProduceReply(PendingReply):
    cdef int move_to(self, Writer frame, Py_ssize_t start) except -1:
        self.endpoints_at -= start
        return PendingReply.move_to(self, frame, start)

    cdef int complete(self) except -1:
        """Insert the new leaders of the partitions that have moved."""
        cdef Writer frame = Writer()
        cdef AckPromise promise
        cdef Py_ssize_t at = 0, tags_at
        image = self.broker.image
        leaders = list(self.leaders or ())
        for promise in sorted(self.moved, key=place):
            leader = leader_now(promise.partition, image, self.broker.node_id)
            if leader is None:
                continue
            tags_at = promise.error_at + TO_TAGS
            frame.write_raw(self.frame.data + at, tags_at - at)
            write_leader(frame, 0, leader)
            leaders.append(leader[0])
            at = tags_at + 1                            # skips the tag count, which was 0
        if at == 0:
            return 0
        frame.write_raw(self.frame.data + at, self.endpoints_at - at)
        write_endpoints(frame, image, leaders, self.listener)
        store_int32(frame.data, <int32_t>(frame.size - 4))
        self.frame = frame
        return 0


def place(AckPromise promise not None):
    """The position of the partition in the reply."""
    return promise.error_at


cdef object leader_now(Partition partition, object image, int32_t node_id):
    """(leader, leader epoch) of a partition that this broker no longer leads; None if not known.

    The partition's role is checked first, since the role changes before the new image is visible.
    """
    if partition.role.following:
        return partition.leader_id, partition.leader_epoch
    leader = new_leader(image, partition.topic, partition.index)
    return None if leader is None or leader[0] == node_id else leader
