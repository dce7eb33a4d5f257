# cython: boundscheck=False, wraparound=False
"""Fetch (key 1), versions 0-3: stored batches in the message formats that old clients know.

Versions 0 and 1 get format v0, versions 2 and 3 get v1 (KIP-32). Apache Kafka did the same up to
3.9 and refuses these versions since 4.0 (KIP-896). The bytes are made anew and kept until they are
sent, so all that one request makes us convert is bounded.
"""

from libc.stdint cimport int64_t

from ottla.log.partition_log cimport LogSlice

from ottla.wire.batch import batches
from ottla.wire.legacy import down_convert

cdef enum:
    CONVERSION_SIZE_MAX = 1 << 20       # bytes that one request converts, which holds up the loop


cdef int share_conversion(list items) except -1:
    """Give every partition the same share of what may be converted: below version 3 clients name
    them always in the same order, and the last ones would starve."""
    cdef FetchItem item
    cdef Py_ssize_t share = CONVERSION_SIZE_MAX // max(len(items), 1)
    for found in items:
        item = <FetchItem>found
        item.size_max = min(<Py_ssize_t>item.size_max, share)
    return 0


cdef bytes read_converted(
    Partition partition, FetchItem item, int version, int64_t room, bint at_least_one
):
    """What there is for old clients from the item's offset on, b"" at the end. Raises
    OffsetOutOfRange.

    Below version 3 a request says only how much it wants of a partition, and each gives at least
    one batch: a client that asked for too little gets on, where Kafka stops it with an error.
    """
    cdef int64_t offset = item.fetch_offset
    cdef Py_ssize_t size_max = max(min(<int64_t>item.size_max, room), 0)
    cdef LogSlice stored
    if version < 3 and room > 0:
        at_least_one = True
    while True:
        stored = partition.log.read(offset, size_max, at_least_one, partition.readable_end(False))
        if stored.size == 0:
            return b""
        data = stored.read()
        messages = down_convert(
            data, 0 if version < 2 else 1, first_offset=item.fetch_offset,
            enough=max(size_max, 1))
        if messages:
            return messages
        # Only transaction markers, or what compaction left empty. The client would never get past.
        for batch in batches(data):
            offset = batch.next_offset
