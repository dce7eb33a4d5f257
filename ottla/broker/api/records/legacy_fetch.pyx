# cython: boundscheck=False, wraparound=False
"""Fetch (key 1) below version 10: the formats and codecs that old clients know.

Versions 0 and 1 get message format v0, versions 2 and 3 get v1 (KIP-32). Apache Kafka did the same
up to 3.9 and refuses these versions since 4.0 (KIP-896). Versions 4 to 9 are older than zstd
(KIP-110): these clients get zstd batches recompressed with gzip, while Apache Kafka does not
recompress them.
"""

from libc.stdint cimport int64_t, uint8_t

from ottla.broker.api.records.conversions cimport (
    WITHOUT_ZSTD, ZSTD, Conversion, conversion_of, convert,
)
from ottla.broker.api.records.fetch_sessions cimport FetchItem
from ottla.broker.api.records.reader cimport Fetch, RecordFormat
from ottla.log.files.batch_scan cimport BatchScan
from ottla.log.partition.chain cimport LogSlice
cimport ottla.wire.batch as fields

cdef enum:
    SCAN_SIZE = 4096


cdef class ConvertedFormat(RecordFormat):
    """A format that requires conversions; `item.conversion` exists until the reply is written."""

    cdef int forget(self, Fetch fetch) except -1:
        for item in fetch.items if fetch.session is None else fetch.session.items.values():
            (<FetchItem>item).conversion = None
        return 0


cdef class WithoutZstd(ConvertedFormat):
    """Batches as they are stored, but with gzip instead of zstd: Fetch 4 to 9."""

    cdef int read(
        self, Fetch fetch, FetchItem item, int64_t room, bint at_least_one
    ) except -1:
        RecordFormat.read(self, fetch, item, room, at_least_one)
        if item.slice is not None and item.slice.size > 0:
            item.converted = self.recoded(item, fetch.conversion_left)
            if item.converted is not None and not item.converted:
                item.converted = item.slice = None      # no room: left to the next fetch
        return 0

    cdef bytes recoded(self, FetchItem item, int64_t room):
        """The batches of a slice with gzip instead of zstd. None if no batch uses zstd, or while a
        thread has to run `item.conversion`.

        Converts about `room` bytes; the client fetches the rest later. Returns b"" if `room` is 0
        or negative.
        """
        cdef BatchScan scan
        cdef int64_t size = 0
        cdef Conversion known = item.conversion
        if known is not None:
            return known.result() if known.done else None
        if not has_zstd(item.slice):
            return None
        scan = scan_of(item.slice, False)
        batches = []
        while size < room:
            data = scan.batch()
            if data is None:
                break
            batches.append(data)
            size += len(data)
        if not batches:
            return b""
        return convert(item, conversion_of(
            b"".join(batches), WITHOUT_ZSTD, item.fetch_offset, item.fetch_offset, room))


cdef class MessageSets(ConvertedFormat):
    """Message formats v0 and v1: Fetch 0 to 3."""

    cdef int read(
        self, Fetch fetch, FetchItem item, int64_t room, bint at_least_one
    ) except -1:
        item.converted = self.messages(item, fetch.version, room, at_least_one)
        return 0

    cdef bytes messages(self, FetchItem item, int version, int64_t room, bint at_least_one):
        """Converted records from the item's offset on, b"" at the end of the log; None while a
        thread has to run `item.conversion`. Raises OffsetOutOfRange.

        Below version 3, a request has no limit for the whole reply, but one for each partition.
        Each partition gets at least one batch, so a client whose limit is smaller than a batch
        makes progress. Kafka answers such a client with an error.
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
            stored = item.partition.log.read(
                offset, size_max, at_least_one, item.partition.readable_end(False), True)
            if stored.size == 0:
                return b""
            messages = convert(item, conversion_of(
                stored.read(), 0 if version < 2 else 1, offset, item.fetch_offset,
                max(size_max, 1)))
            if messages is None or messages:
                return messages
            # There were only markers or empty batches: go on, or the client never gets beyond them.
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
