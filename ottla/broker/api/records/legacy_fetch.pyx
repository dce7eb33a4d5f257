# cython: boundscheck=False, wraparound=False
"""Fetch (key 1) below version 10: stored batches in the formats and codecs that old clients know.

Versions 0 and 1 get message format v0, versions 2 and 3 get v1 (KIP-32). Apache Kafka did the same
up to 3.9 and refuses these versions since 4.0 (KIP-896). Versions 4 to 9 are of the time before
zstd (KIP-110): its batches reach them as gzip, where Apache Kafka sends what they cannot read. The
bytes are made anew and kept until they are sent, so all that one request makes us convert is
bounded.
"""

from libc.stdint cimport int64_t, uint8_t

from ottla.log.recovery.scan cimport BatchScan
cimport ottla.wire.batch as fields

from ottla.wire.batch import BatchView, batches
from ottla.wire.compression import Codec
from ottla.wire.legacy import down_convert

cdef enum:
    SCAN_SIZE = 4096
    ZSTD = 4

GZIP_LEVEL = 1
"""Of what is only sent, not kept: the fastest."""


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


cdef BatchScan scan_of(LogSlice stored, bint headers_only):
    return BatchScan(
        stored.file, stored.position, stored.position + stored.size, SCAN_SIZE, headers_only)


cdef bint has_zstd(LogSlice stored) except -1:
    cdef BatchScan scan = scan_of(stored, True)
    cdef const uint8_t *batch = scan.next()
    while batch is not NULL:
        if fields.attributes(batch) & fields.CODEC_MASK == ZSTD:
            return True
        batch = scan.next()
    return False


cdef bytes read_without_zstd(LogSlice stored, int64_t room):
    """The batches of a slice with gzip in the place of zstd; None if none of them has zstd.

    About `room` bytes are converted, the rest is fetched later: b"" where nothing may be.
    """
    cdef BatchScan scan
    cdef int64_t size = 0
    if not has_zstd(stored):
        return None
    scan = scan_of(stored, False)
    made = []
    while size < room:
        data = scan.batch()
        if data is None:
            break
        batch = BatchView(data)
        if batch.codec == ZSTD:
            data = batch.with_codec(Codec.GZIP, GZIP_LEVEL)
        made.append(data)
        size += len(data)
    return b"".join(made)
