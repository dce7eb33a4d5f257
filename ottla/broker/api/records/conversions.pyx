# cython: boundscheck=False, wraparound=False
"""Converts stored batches to the formats and codecs that clients of Fetch below version 10 know.

The converted bytes stay in memory until they are sent, so each request may convert only a limited
number of bytes. A thread does long conversions, one partition after the other, while the request
waits.
"""

from libc.stdint cimport int64_t

cimport ottla.wire.batch as fields

from ottla.wire.batch import batches
from ottla.wire.compression import Codec, size_bound
from ottla.wire.legacy import down_convert

cdef enum:
    RECORDS_ON_LOOP_MAX = 500
    PLAIN_ON_LOOP_MAX = 1 << 15

GZIP_LEVEL = 1
"""The fastest level, since the result is sent once and not stored."""


cdef int share_conversion(list items) except -1:
    """Divide the conversion limit evenly among partitions. Otherwise the last partitions would
    starve, since clients below version 3 always name the partitions in the same order."""
    cdef FetchItem item
    cdef Py_ssize_t share = CONVERSION_SIZE_MAX // max(len(items), 1)
    for each in items:
        item = <FetchItem>each
        item.size_max = min(<Py_ssize_t>item.size_max, share)
    return 0


cdef class Conversion:
    @property
    def takes_long(self):
        """Whether the conversion may take more than a millisecond, which is too long for the
        loop."""
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
        """Convert the batches. This uses no other data of the broker, so any thread may do it."""
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
        """The converted batches. Raises the error of the conversion, if any."""
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
    """Run a conversion now if it is short, and return its result. Return None if a thread has to
    run it."""
    item.conversion = conversion
    if conversion.takes_long:
        return None
    conversion.run()
    return conversion.result()


cdef Py_ssize_t count_converted(FetchItem item) except -1:
    """Count the converted records of an answer; returns the size of the converted bytes."""
    if item.conversion is not None:
        item.partition.counters.fetch_conversions += (<Conversion>item.conversion).records
    return len(item.converted)


cdef object unfinished(FetchItem item):
    """The Conversion that this item's answer has to wait for, or None."""
    cdef Conversion conversion = item.conversion
    return None if conversion is None or conversion.done else conversion


cdef tuple without_zstd(bytes stored, Py_ssize_t enough):
    """Replace zstd by gzip; returns the batches, and the number of recompressed records."""
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
