# cython: boundscheck=False, wraparound=False
"""The lag of a group: in records, in bytes, and in seconds.

Bytes are the size of the batches on disk from the committed offset on. Seconds are the age of the
batch that the group would read next. Its header is read once and cached until the group commits
again; a group has just read the pages around it, so the read seldom needs a disk seek.
"""

from libc.stdint cimport INT64_MIN as ABSENT
from libc.stdint cimport int64_t

from typing import NamedTuple

from ottla.broker.http.partition_rows cimport PartitionRows, Row
from ottla.log.chain cimport LogSlice
from ottla.log.partition_log cimport PartitionLog
from ottla.log.segment cimport Segment
from ottla.replication.partition cimport Partition
from ottla.wire.errors import ProtocolError

# | base offset 8 | length 4 | epoch 4 | magic 1 | crc 4 | attributes 2 | delta 4 | first time 8 |
cdef int TIME_AT = 27, MAGIC_AT = 16, HEAD_SIZE = 35
COLUMNS = ("committed", "records", "bytes", "milliseconds")


class Lag(NamedTuple):
    """A group's lag in one partition; `seconds` is None if no timestamp is known."""

    topic: str
    partition: int
    committed: int
    records: int
    size: int
    seconds: float | None


cdef class Place:
    """The place of an offset's record: segment, position in it, its batch's time in ms or -1."""
    cdef int64_t offset, position, timestamp
    cdef Segment segment


cdef class Lags:
    """The lags of all groups. Places are cached from one round to the next."""

    cdef object broker
    cdef dict places, before
    cdef Row measured

    def __init__(self, broker):
        self.broker = broker
        self.places, self.before = {}, {}

    def begin(self):
        """Start a new round: places that the previous round did not use are dropped."""
        self.before, self.places = self.places, {}

    def of_group(self, shard, str group_id not None):
        """The lag of each partition with an offset committed by the group, sorted."""
        cdef Partition partition
        for (topic, index), committed in sorted(shard.offsets.of_group(group_id).items()):
            partition = self.broker.replicas.partition(topic, index)
            if partition is not None:
                self.measure(partition, group_id, committed.offset, self.broker.clock.now_ms(),
                             &self.measured)
                _, records, size, age = [self.measured.values[at] for at in range(4)]
                yield Lag(topic, index, committed.offset, records, size,
                          None if age == ABSENT else age / 1000)

    def read(self, PartitionRows rows not None, str group_id not None, list offsets not None,
             dict heads not None, dict sums not None):
        """Append the COLUMNS of these committed offsets of a group to `rows`.

        `heads` are the labels of a topic's lines, and to `sums` the lag of each topic is added.
        """
        cdef Partition partition
        cdef Row *row
        cdef int64_t now_ms = self.broker.clock.now_ms()
        cdef dict by_name = self.broker.replicas.by_name
        cdef list partitions, total
        cdef Py_ssize_t index
        for (topic, at), committed in offsets:
            partitions, index = by_name.get(topic), at
            if partitions is None or not 0 <= index < len(partitions):
                continue
            partition = partitions[index]
            if partition is None:
                continue
            row = rows.add(heads[topic], index)
            self.measure(partition, group_id, committed.offset, now_ms, row)
            total = sums[topic]
            total[0] += row.values[0]
            total[1] += row.values[1]

    cdef int measure(self, Partition partition, str group_id, int64_t committed, int64_t now_ms,
                     Row *row) except -1:
        """Fill in the COLUMNS for one partition."""
        cdef Place place
        cdef int64_t size
        cdef Py_ssize_t at
        cdef list segments
        row.values[0] = committed
        row.values[1] = max(0, partition.high_watermark - committed)
        row.values[2] = row.values[3] = 0
        if row.values[1] == 0:
            return 0
        place = self.place(partition, group_id, committed)
        if place is None:
            row.values[3] = ABSENT
            return 0
        size = place.segment.size - place.position
        segments = partition.log.chain.segments
        for at in range(len(segments) - 1, -1, -1):
            if (<Segment>segments[at]).base_offset <= place.segment.base_offset:
                break
            size += (<Segment>segments[at]).size
        row.values[2] = max(0, size)
        row.values[3] = ABSENT if place.timestamp < 0 else max(0, now_ms - place.timestamp)
        return 0

    cdef Place place(self, Partition partition, str group_id, int64_t committed):
        """Where the group reads next; None for a partition that cannot be read now."""
        cdef PartitionLog log = partition.log
        cdef int64_t offset = max(committed, log.log_start_offset)
        cdef tuple key = (group_id, partition.topic, partition.index)
        cdef Place found = self.places.get(key)
        cdef Py_ssize_t number
        if found is None:
            found = self.before.get(key)
        log.awake()
        if found is not None:
            number = log.chain.number_of(found.segment.base_offset)
            if found.offset != offset or number < 0 or (
                    log.chain.segments[number] is not found.segment):
                found = None
        if found is None:
            found = look_up(log, offset)
        if found is not None:
            self.places[key] = found
        return found


cdef Place look_up(PartitionLog log, int64_t offset):
    """The place of the next batch; None for a partition that cannot be read now."""
    cdef LogSlice found
    cdef Place place = Place.__new__(Place)
    try:
        found = log.slice(offset, HEAD_SIZE)
        head = found.file.pread(HEAD_SIZE, found.position) if found.size else b""
    except (OSError, ProtocolError):
        return None
    if len(head) < HEAD_SIZE:
        return None
    place.offset, place.position, place.timestamp = offset, found.position, -1
    place.segment = found.segment
    if head[MAGIC_AT] >= 2:
        place.timestamp = int.from_bytes(head[TIME_AT:HEAD_SIZE], "big", signed=True)
    return place
