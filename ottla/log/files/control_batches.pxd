# The record of a control batch that ends a transaction, after the batch header. Varints are zigzag:
#
#   | length varint | attributes 1 | timestamp delta varint | offset delta varint
#   | key length varint | version int16 | type int16           0 abort, 1 commit
#   | value length varint | version int16 | coordinator epoch int32
#   | headers varint |

from libc.stdint cimport int32_t, uint8_t

cdef struct Marker:
    bint valid                          # False for other control records and for invalid ones
    bint commits
    int32_t coordinator_epoch

cdef Marker read_marker(const uint8_t *batch, Py_ssize_t size) noexcept
