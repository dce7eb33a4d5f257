# cython: boundscheck=False, wraparound=False
"""Figures of many partitions, written as lines of the Prometheus text format.

A scrape of 100,000 partitions has two million lines. So all figures of a partition are read at once
and kept as plain integers, and each line is written without creating a Python object.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MIN as ABSENT
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from ottla.log.partition.partition_log cimport PartitionLog
from ottla.replication.counters cimport COUNTERS
from ottla.replication.partition cimport Partition
from ottla.replication.roles.follower_replica cimport FollowerReplica

from ottla.broker.http.exposition import escaped

LED = COUNTERS
"""The index of the column with the number of a topic's partitions that are led here. It follows the
columns of the counters."""
FIGURES = (
    "size", "start", "end", "segments", "under_min_isr", "in_sync", "replicas", "stable_lag",
    "led_end", "led_start", "led_in_sync", "leader", "preferred", "led_replicas",
    "under_replicated", "at_min_isr",
)
DIGITS_MAX = 20


cdef inline char *put(char *at, const char *data, Py_ssize_t size) noexcept nogil:
    memcpy(at, data, size)
    return at + size


cdef inline char *put_number(char *at, int64_t value) noexcept nogil:
    cdef char digits[24]
    cdef int count = 0
    cdef uint64_t left = <uint64_t>value
    if value < 0:
        at[0] = c'-'
        at += 1
        left = -left
    while True:
        digits[count] = c'0' + <char>(left % 10)
        left //= 10
        count += 1
        if left == 0:
            break
    while count:
        count -= 1
        at[0] = digits[count]
        at += 1
    return at


cdef class PartitionRows:
    """Rows of figures: one for each partition, or one for each topic, which has no partition index.

    `room` is the expected number of rows. Enlarging the memory copies it, which takes a millisecond
    for each megabyte.
    """

    def __cinit__(self, Py_ssize_t room=0):
        self.room = max(room, ROOM_AT_FIRST)
        self.rows = <Row *>malloc(self.room * sizeof(Row))
        if self.rows == NULL:
            raise MemoryError()
        self.heads = []

    def __dealloc__(self):
        free(self.rows)

    def __len__(self):
        return self.count

    cdef Row *add(self, bytes head, int32_t index) except NULL:
        """Append a row; the caller fills in the values."""
        cdef Row *more
        if self.count == self.room:
            more = <Row *>realloc(self.rows, 2 * self.room * sizeof(Row))
            if more == NULL:
                raise MemoryError()
            self.rows, self.room = more, 2 * self.room
        self.heads.append(head)
        self.count += 1
        self.rows[self.count - 1].index = index
        return &self.rows[self.count - 1]

    def sum(self, int column):
        """The sum of a column over all rows that have a value in it."""
        cdef int64_t total = 0
        if not 0 <= column < COLUMNS:
            raise ValueError(f"there is no column {column}")
        for at in range(self.count):
            if self.rows[at].values[column] != ABSENT:
                total += self.rows[at].values[column]
        return total

    def max(self, int column):
        """The largest value of a column, at least 0."""
        cdef int64_t largest = 0
        if not 0 <= column < COLUMNS:
            raise ValueError(f"there is no column {column}")
        for at in range(self.count):
            largest = max(largest, self.rows[at].values[column])
        return largest

    def lines(self, str name not None, int column, Py_ssize_t first, Py_ssize_t after,
              bint thousandths=False):
        """The lines of a column for the rows from `first` up to `after`. If `thousandths` is true,
        the values are thousandths, and are written with three decimals."""
        cdef bytes metric = name.encode()
        cdef bytes head
        cdef Py_ssize_t at_row, room = 0
        cdef int64_t value
        cdef char *buffer
        cdef char *at
        if not 0 <= column < COLUMNS:
            raise ValueError(f"there is no column {column}")
        first, after = max(first, 0), min(after, self.count)
        for at_row in range(first, after):
            head = self.heads[at_row]
            room += PyBytes_GET_SIZE(head)
        if after > first:
            room += (after - first) * (PyBytes_GET_SIZE(metric) + 2 * DIGITS_MAX + 20)
        buffer = <char *>malloc(room + 1)
        if buffer == NULL:
            raise MemoryError()
        at = buffer
        for at_row in range(first, after):
            value = self.rows[at_row].values[column]
            if value == ABSENT:
                continue
            head = <bytes>self.heads[at_row]
            at = put(at, PyBytes_AS_STRING(metric), PyBytes_GET_SIZE(metric))
            at = put(at, PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head))
            if self.rows[at_row].index != WITHOUT_INDEX:
                at = put(at, b',partition="', 12)
                at = put_number(at, self.rows[at_row].index)
                at = put(at, b'"} ', 3)
            else:
                at = put(at, b'} ', 2)
            if thousandths:
                at = put_number(at, value // 1000)
                at[0] = c'.'
                at[1] = c'0' + <char>(value // 100 % 10)
                at[2] = c'0' + <char>(value // 10 % 10)
                at[3] = c'0' + <char>(value % 10)
                at += 4
            else:
                at = put_number(at, value)
            at[0] = c'\n'
            at += 1
        try:
            return buffer[:at - buffer].decode()
        finally:
            free(buffer)


cdef class Reading:
    """Reads all partitions that exist at the beginning, a few at a time.

    `partitions` gets a row of FIGURES for each partition, and `topics` a row of counters and LED
    for each topic. `followed` gets a row for each partition that another broker leads, with the
    number of committed records that this broker has not copied yet.
    """

    cdef readonly PartitionRows partitions, topics, followed
    cdef list names, ends, flat
    cdef Py_ssize_t topic, at
    cdef bytes head

    def __init__(self, dict by_name not None):
        # One list for all partitions: a list for each of many topics would trigger full garbage
        # collections.
        self.names, self.ends, self.flat = list(by_name), [], []
        for partitions in by_name.values():
            self.flat.extend(partitions)
            self.ends.append(len(self.flat))
        self.topic, self.at = -1, 0
        self.partitions, self.topics = PartitionRows(len(self.flat)), PartitionRows(len(by_name))
        self.followed = PartitionRows()

    def read_more(self, int most):
        """Read up to `most` more partitions or topics; returns whether some may be left."""
        cdef Partition partition
        while most > 0:
            most -= 1
            if self.topic < 0 or self.at == <Py_ssize_t>self.ends[self.topic]:
                if self.topic + 1 == len(self.names):
                    return False
                self.begin_topic()
                continue
            partition = self.flat[self.at]
            self.at += 1
            if partition is not None:
                self.read(partition, &self.topics.rows[self.topics.count - 1])
        return True

    cdef int begin_topic(self) except -1:
        cdef Row *row
        self.topic += 1
        self.head = f'{{topic="{escaped(self.names[self.topic])}"'.encode()
        row = self.topics.add(self.head, WITHOUT_INDEX)
        memset(row.values, 0, sizeof(row.values))
        return 0

    cdef int read(self, Partition partition, Row *of_topic) except -1:
        cdef PartitionLog log = partition.log
        cdef Row *row = self.partitions.add(self.head, partition.index)
        cdef int64_t replicas = 1, in_sync = 1
        cdef bint led = partition.led_here
        cdef FollowerReplica role
        partition.counters.add_to(of_topic.values)
        of_topic.values[COUNTERS] += led
        if partition.role.replicated:
            replicas, in_sync = len(partition.replicas), len(partition.isr)
        row.values[0] = log.size_bytes
        row.values[1] = log.log_start_offset
        row.values[2] = log.log_end_offset
        row.values[3] = log.segment_count
        # As in Kafka, only the leader reports the replicas in sync.
        row.values[4] = partition.role.under_min_isr
        row.values[5] = in_sync if led else 0
        row.values[6] = replicas if led else 0
        row.values[7] = partition.high_watermark - partition.readable_end(True)
        if not led:
            for number in range(8, 15):
                row.values[number] = ABSENT
            row.values[15] = 0
            if partition.role.following:
                role = partition.role
                row = self.followed.add(
                    b'{clientId="ReplicaFetcherThread-0-%d",' % partition.leader_id
                    + self.head[1:], partition.index)
                row.values[0] = max(0, role.leader_high_watermark - log.log_end_offset)
            return 0
        row.values[8] = partition.high_watermark
        row.values[9] = log.log_start_offset
        row.values[10] = in_sync
        row.values[11] = partition.leader_id
        row.values[12] = (
            not partition.role.replicated or partition.replicas[0] == partition.leader_id)
        row.values[13] = replicas
        # As in Kafka, replicas that a reassignment adds do not count as missing.
        row.values[14] = in_sync < replicas - partition.adding
        row.values[15] = in_sync == min(<int64_t>log.config.min_insync_replicas, replicas)
        return 0
