# cython: boundscheck=False, wraparound=False
"""Figures of many partitions, written as lines of the Prometheus text format.

A scrape of 100,000 partitions is two million lines: all figures of a partition are read at once and
kept as plain integers, and each line is put together without an object.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MIN as ABSENT
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from ottla.log.partition_log cimport PartitionLog
from ottla.replication.partition cimport Partition

TRAFFIC = (
    "messages_in", "bytes_in", "bytes_out", "produces", "fetches", "failed_produces",
    "failed_fetches", "isr_shrinks", "isr_expands",
)
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
    """A row of figures for each partition."""

    def __cinit__(self):
        self.room = ROOM_AT_FIRST
        self.rows = <Row *>malloc(self.room * sizeof(Row))
        if self.rows == NULL:
            raise MemoryError()
        self.heads = []

    def __dealloc__(self):
        free(self.rows)

    def __len__(self):
        return self.count

    cdef Row *add(self, bytes head, int32_t index) except NULL:
        """A new row, whose values are to be filled in."""
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

    def sum(self, str figure not None):
        """The sum of one of the FIGURES over all partitions that have it."""
        cdef int column = FIGURES.index(figure)
        cdef int64_t total = 0
        for at in range(self.count):
            if self.rows[at].values[column] != ABSENT:
                total += self.rows[at].values[column]
        return total

    def lines(self, str name not None, int column, Py_ssize_t first, Py_ssize_t after,
              bint thousandths=False):
        """The lines of a column's rows from `first` up to `after`; `thousandths` are written with
        three digits after the point."""
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
            room += (after - first) * (PyBytes_GET_SIZE(metric) + 2 * DIGITS_MAX + 8)
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
            at = put_number(at, self.rows[at_row].index)
            at = put(at, b'"} ', 3)
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


def read_partitions(PartitionRows rows not None, bytes head not None, list partitions not None,
                    list sums not None):
    """Append the FIGURES of these partitions to `rows`, and add their TRAFFIC to `sums`."""
    cdef Partition partition
    cdef PartitionLog log
    cdef Row *row
    cdef int64_t traffic[9]
    cdef int64_t replicas, in_sync
    cdef bint led
    for number in range(9):
        traffic[number] = sums[number]
    for partition in partitions:
        traffic[0] += partition.messages_in
        traffic[1] += partition.bytes_in
        traffic[2] += partition.bytes_out
        traffic[3] += partition.produces
        traffic[4] += partition.fetches
        traffic[5] += partition.failed_produces
        traffic[6] += partition.failed_fetches
        traffic[7] += partition.isr_shrinks
        traffic[8] += partition.isr_expands
        log = partition.log
        led = partition.led_here
        replicas = in_sync = 1
        if partition.replicated:
            replicas, in_sync = len(partition.replicas), len(partition.isr)
        row = rows.add(head, partition.index)
        row.values[0] = log.size_bytes
        row.values[1] = log.log_start_offset
        row.values[2] = log.log_end_offset
        row.values[3] = log.segment_count
        # As Kafka's brokers do, only the leader reports what is in sync.
        row.values[4] = partition.under_min_isr
        row.values[5] = in_sync if led else 0
        row.values[6] = replicas if led else 0
        row.values[7] = partition.high_watermark - partition.readable_end(True)
        if not led:
            for number in range(8, 15):
                row.values[number] = ABSENT
            row.values[15] = 0
            continue
        row.values[8] = partition.high_watermark
        row.values[9] = log.log_start_offset
        row.values[10] = in_sync
        row.values[11] = partition.leader_id
        row.values[12] = not partition.replicated or partition.replicas[0] == partition.leader_id
        row.values[13] = replicas
        row.values[14] = in_sync < replicas
        row.values[15] = in_sync == min(<int64_t>log.config.min_insync_replicas, replicas)
    for number in range(9):
        sums[number] = traffic[number]
