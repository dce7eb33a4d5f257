# cython: boundscheck=False, wraparound=False
"""The lag of a group: in records, in bytes, and in seconds.

Bytes are the size of the batches on disk from the committed offset on. Seconds are the age of the
record that the group would read next. Its timestamp is interpolated between the first and the
newest timestamp of its batch, so that the batch need not be decompressed. The header of that batch
is read once: its position and the timestamp are cached until the group commits again. The group has
just read the neighbouring pages, so reading the header seldom needs a disk seek.
"""

from libc.stdint cimport INT64_MIN as ABSENT
from libc.stdint cimport int64_t, uint8_t

from typing import NamedTuple

cimport ottla.wire.batch as batch
from ottla.broker.http.exposition import escaped
from ottla.broker.http.partition_rows cimport PartitionRows, Row, WITHOUT_INDEX
from ottla.log.partition.chain cimport LogSlice
from ottla.log.partition.partition_log cimport PartitionLog
from ottla.log.partition.segment cimport Segment
from ottla.replication.partition cimport Partition
from ottla.wire.errors import ProtocolError

cdef int HEAD_SIZE = batch.MAX_TIMESTAMP_AT + 8
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
    """Where the record with `offset` is: its segment, and the position of its batch in the segment.
    `timestamp` is the record's, in ms; -1 if it has none."""
    cdef int64_t offset, position, timestamp
    cdef Segment segment


cdef class Lags:
    """The lags of all groups. `begin` starts a round, such as a scrape of the metrics. Places are
    cached from one round to the next: by group id, and then by (topic, partition index)."""

    cdef object broker
    cdef dict places, before, older
    cdef Row measured

    def __init__(self, broker):
        self.broker = broker
        self.places, self.before, self.older = {}, {}, {}

    def begin(self):
        """Start a new round: places that the previous round did not use are dropped."""
        # Older places are freed group by group (`read`): freeing all at once would block the loop.
        self.older, self.before, self.places = self.before, self.places, {}

    def of_group(self, shard, str group_id not None):
        """The group's lag in each partition for which it has committed an offset, sorted."""
        cdef Partition partition
        cdef tuple key
        for key, committed in sorted(shard.offsets.of_group(group_id).items()):
            topic, index = key
            partition = self.broker.replicas.partition(topic, index)
            if partition is not None:
                self.measure(
                    partition, self.known(self.before, group_id), self.known(self.places, group_id),
                    key, committed.offset, self.broker.clock.now_ms(), &self.measured)
                _, records, size, age = [self.measured.values[at] for at in range(4)]
                yield Lag(topic, index, committed.offset, records, size,
                          None if age == ABSENT else age / 1000)

    def read(self, PartitionRows rows not None, PartitionRows sums not None,
             str group_id not None, list offsets not None, dict numbers not None):
        """Append a row with the COLUMNS to `rows` for each of these committed offsets of a group.
        Add the first two columns to the topic's row in `sums`. `numbers` maps each topic that has a
        row in `sums` to the number of that row; `read` adds topics to it."""
        cdef Partition partition
        cdef Row *row
        cdef Row *of_topic
        cdef int64_t now_ms = self.broker.clock.now_ms()
        cdef dict by_name = self.broker.replicas.by_name
        self.older.pop(group_id, None)
        cdef dict before = self.known(self.before, group_id)
        cdef dict here = self.known(self.places, group_id)
        cdef list partitions
        cdef tuple key
        cdef str topic
        cdef Py_ssize_t index
        for key, committed in offsets:
            topic, index = key
            partitions = by_name.get(topic)
            if partitions is None or not 0 <= index < len(partitions):
                continue
            partition = partitions[index]
            if partition is None:
                continue
            number = numbers.get(topic)
            if number is None:
                number = numbers[topic] = new_topic(sums, group_id, topic)
            row = rows.add(<bytes>sums.heads[number], index)
            self.measure(partition, before, here, key, committed.offset, now_ms, row)
            of_topic = &sums.rows[<Py_ssize_t>number]
            of_topic.values[0] += row.values[0]
            of_topic.values[1] += row.values[1]

    cdef dict known(self, dict round_, str group_id):
        """The places of one group in a round, by (topic, partition index). A group without places
        gets an empty entry in `round_`."""
        cdef dict lags = round_.get(group_id)
        if lags is None:
            lags = round_[group_id] = {}
        return lags

    cdef int measure(self, Partition partition, dict before, dict here, tuple key,
                     int64_t committed, int64_t now_ms, Row *row) except -1:
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
        place = self.place(partition, before, here, key, committed)
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

    cdef Place place(self, Partition partition, dict before, dict here, tuple key,
                     int64_t committed):
        """Where the group reads next; None for a partition that cannot be read now."""
        cdef PartitionLog log = partition.log
        cdef int64_t offset = max(committed, log.log_start_offset)
        cdef Place place = here.get(key)
        cdef Py_ssize_t number
        if place is None:
            place = before.get(key)
        try:
            log.wake()
        except (OSError, ProtocolError):
            return None
        if place is not None:
            number = log.chain.number_of(place.segment.base_offset)
            if place.offset != offset or number < 0 or (
                    log.chain.segments[number] is not place.segment):
                place = None
        if place is None:
            place = look_up(log, offset)
        if place is not None:
            here[key] = place
        return place


cdef Py_ssize_t new_topic(PartitionRows sums, str group_id, str topic) except -1:
    """Add a row for a group's topic to `sums`; returns the row's number."""
    cdef bytes where = f'{{consumergroup="{escaped(group_id)}",topic="{escaped(topic)}"'.encode()
    cdef Row *row = sums.add(where, WITHOUT_INDEX)
    row.values[0] = row.values[1] = 0
    return sums.count - 1


cdef Place look_up(PartitionLog log, int64_t offset):
    """The place of the batch where reading from `offset` begins; None for a partition that cannot
    be read now."""
    cdef LogSlice start
    cdef Place place = Place.__new__(Place)
    cdef bytes head
    try:
        start = log.slice(offset, HEAD_SIZE)
        head = start.file.pread(HEAD_SIZE, start.position) if start.size else b""
    except (OSError, ProtocolError):
        return None
    if len(head) < HEAD_SIZE:
        return None
    place.offset, place.position, place.timestamp = offset, start.position, -1
    place.segment = start.segment
    if batch.magic(<const uint8_t *>head) >= 2:
        place.timestamp = timestamp_at(<const uint8_t *>head, offset)
    return place


cdef int64_t timestamp_at(const uint8_t *head, int64_t offset) noexcept:
    """An estimate of a record's timestamp, as if the batch's timestamps were evenly spread. The
    batch's first timestamp would not do: a batch of imported old records may span minutes."""
    cdef int64_t first = batch.base_timestamp(head), newest = batch.max_timestamp(head)
    cdef int64_t delta = offset - batch.base_offset(head), last = batch.last_offset_delta(head)
    if batch.attributes(head) & (batch.LOG_APPEND_TIME | batch.DELETE_HORIZON):
        return newest
    if first < 0 or newest <= first or delta <= 0 or last <= 0:
        return first
    return first + <int64_t>(<double>(newest - first) * min(delta, last) / last)
