# Figures of many partitions, written as lines of the Prometheus text format.

from libc.stdint cimport int32_t, int64_t

cdef enum:
    COLUMNS = 16
    ROOM_AT_FIRST = 256
    WITHOUT_INDEX = -1

cdef struct Row:
    int32_t index                       # of the partition; WITHOUT_INDEX for a topic
    int64_t values[16]                  # one for each of COLUMNS; INT64_MIN if there is no value


cdef class PartitionRows:
    cdef Row *rows
    cdef Py_ssize_t count, room
    cdef list heads                     # each row's labels, without the partition: b'{topic="t"'

    cdef Row *add(self, bytes head, int32_t index) except NULL
