# cython: boundscheck=False, wraparound=False
"""Fetch (key 1) below version 10: stored batches in the formats and codecs that old clients know.

Versions 0 and 1 get message format v0, versions 2 and 3 get v1 (KIP-32). Apache Kafka did the same
up to 3.9 and refuses these versions since 4.0 (KIP-896). Versions 4 to 9 are older than zstd
(KIP-110): its batches are sent to them as gzip, where Apache Kafka sends batches that they cannot
read. The converted bytes are kept until they are sent, so the conversions of one request are
bounded. Long ones are done by a thread, one partition after the other, while the request waits.
"""

from libc.stdint cimport int64_t, uint8_t

from ottla.log.files.batch_scan cimport BatchScan
cimport ottla.wire.batch as fields

from ottla.wire.batch import batches
from ottla.wire.compression import Codec, size_bound
from ottla.wire.legacy import down_convert

cdef enum:
    SCAN_SIZE = 4096
    ZSTD = 4
    WITHOUT_ZSTD = 2                # instead of an older message format: format v2 without zstd
    RECORDS_ON_LOOP_MAX = 500
    PLAIN_ON_LOOP_MAX = 1 << 15

GZIP_LEVEL = 1
"""The fastest level, since the result is sent once and not stored."""


cdef int share_conversion(list items) except -1:
    """Divide the conversion limit evenly among partitions: below version 3 clients always name them
    in the same order, and the last ones would starve."""
    cdef FetchItem item
    cdef Py_ssize_t share = CONVERSION_SIZE_MAX // max(len(items), 1)
    for found in items:
        item = <FetchItem>found
        item.size_max = min(<Py_ssize_t>item.size_max, share)
    return 0


cdef class Conversion:
    @property
    def takes_long(self):
        """Whether it may take more than a millisecond, too long for the loop."""
        cdef int64_t records = 0, plain = 0
        for batch in batches(self.data):
            records += batch.record_count
            plain += batch.size
            if batch.codec and records <= RECORDS_ON_LOOP_MAX:
                plain += size_bound(batch.codec, bytes(batch.data[<int>fields.RECORDS_AT:]))
            if records > RECORDS_ON_LOOP_MAX or plain > PLAIN_ON_LOOP_MAX:
                return True
        return False

    def run(self):
        """Convert, in a thread that uses no other data of the broker."""
        try:
            if self.magic == WITHOUT_ZSTD:
                self.made, self.records = without_zstd(self.data, self.enough)
            else:
                self.made = down_convert(
                    self.data, self.magic, first_offset=self.first_offset, enough=self.enough)
                self.records = sum([batch.record_count for batch in batches(self.data)])
            for batch in batches(self.data):
                self.next_offset = batch.next_offset
        except Exception as error:
            self.error = error
        self.data, self.done = None, True

    cdef bytes result(self):
        """The result. Raises what `down_convert` raises."""
        if self.error is not None:
            raise self.error
        return self.made


cdef Conversion conversion_of(
    bytes data, int magic, int64_t offset, int64_t first_offset, Py_ssize_t enough
):
    cdef Conversion made = Conversion.__new__(Conversion)
    made.data, made.magic, made.offset, made.first_offset = data, magic, offset, first_offset
    made.enough = enough
    return made


cdef bytes convert(FetchItem item, Conversion conversion):
    """Run a conversion at once if it is short; None if it needs a thread."""
    item.conversion = conversion
    if conversion.takes_long:
        return None
    conversion.run()
    return conversion.result()


cdef Py_ssize_t count_converted(FetchItem item) except -1:
    """Note the records that were converted for an answer; returns the size of the result."""
    if item.conversion is not None:
        item.partition.fetch_conversions += (<Conversion>item.conversion).records
    return len(item.converted)


cdef object unfinished(FetchItem item):
    """The Conversion that this item's answer has to wait for, or None."""
    cdef Conversion conversion = item.conversion
    return None if conversion is None or conversion.done else conversion


cdef int forget_conversions(list items) except -1:
    """Drop the conversions of a request that waits for more records."""
    for item in items:
        (<FetchItem>item).conversion = None
    return 0


cdef bytes read_converted(
    Partition partition, FetchItem item, int version, int64_t room, bint at_least_one
):
    """Converted records from the item's offset on, b"" at the end; None while a thread has to do
    `item.conversion`. Raises OffsetOutOfRange.

    Below version 3 requests have limits for each partition only; each gets at least one batch: a
    client with too small a limit makes progress, where Kafka stops it with an error.
    """
    cdef int64_t offset = item.fetch_offset
    cdef Py_ssize_t size_max = max(min(<int64_t>item.size_max, room), 0)
    cdef LogSlice stored
    cdef Conversion known = item.conversion
    cdef bytes messages
    if version < 3 and room > 0:
        at_least_one = True
    if known is not None:
        if not known.done:
            return None
        messages = known.result()
        if messages:
            return messages
        offset = known.next_offset
    while True:
        stored = partition.log.read(
            offset, size_max, at_least_one, partition.readable_end(False), True)
        if stored.size == 0:
            return b""
        messages = convert(item, conversion_of(
            stored.read(), 0 if version < 2 else 1, offset, item.fetch_offset, max(size_max, 1)))
        if messages is None or messages:
            return messages
        # Only markers or empty batches: without going on, the client would stay here for ever.
        offset = (<Conversion>item.conversion).next_offset


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


cdef bytes read_without_zstd(FetchItem item, LogSlice stored, int64_t room):
    """The batches of a slice with gzip instead of zstd; None if none of them has zstd, or while a
    thread has to do `item.conversion`.

    About `room` bytes are converted, the rest is fetched later: b"" if there is no room.
    """
    cdef BatchScan scan
    cdef int64_t size = 0
    cdef Conversion known = item.conversion
    if known is not None:
        return known.result() if known.done else None
    if not has_zstd(stored):
        return None
    scan = scan_of(stored, False)
    found = []
    while size < room:
        data = scan.batch()
        if data is None:
            break
        found.append(data)
        size += len(data)
    if not found:
        return b""
    return convert(item, conversion_of(
        b"".join(found), WITHOUT_ZSTD, item.fetch_offset, item.fetch_offset, room))


cdef tuple without_zstd(bytes stored, Py_ssize_t enough):
    """The batches with gzip instead of zstd, and the number of records in those."""
    cdef Py_ssize_t size = 0
    cdef int64_t records = 0
    made = []
    for batch in batches(stored):
        if size >= enough:
            break
        if batch.codec == ZSTD:
            data = batch.with_codec(Codec.GZIP, GZIP_LEVEL)
            records += batch.record_count
        else:
            data = bytes(batch.data)
        made.append(data)
        size += len(data)
    return b"".join(made), records
