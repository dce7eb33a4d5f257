"""Finds records by timestamp: the time index leads to a batch, its records are looked at."""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from ottla.log.recovery.scan cimport BatchScan
from ottla.log.segment cimport Segment
cimport ottla.wire.batch as fields
from ottla.wire.compression import decompress
from ottla.wire.errors import CorruptMessage
from ottla.wire.varint cimport read_varint, read_varlong

DECOMPRESSED_MAX = 128 * 1024 * 1024

cdef int64_t HIGHEST = INT64_MAX        # instead of a timestamp


def first_at(list segments, int64_t start, int64_t end, int64_t timestamp):
    """The first record from `start` to `end` that is not older than `timestamp`: (offset,
    timestamp, leader epoch), None without."""
    cdef Segment segment
    for segment in segments:
        if segment.end_offset <= start:
            continue
        segment.load_times()
        if segment.max_timestamp >= timestamp:
            found = first_in(segment, timestamp, start, end)
            if found is not None:
                return found
    return None


def newest(list segments, int64_t start, int64_t end):
    """The first of the records from `start` to `end` with the highest timestamp, as `first_at`
    returns it."""
    cdef Segment segment
    best, within = None, []
    for segment in segments:
        if segment.end_offset > start and segment.base_offset < end:
            segment.load_times()
            within.append(segment)
    for segment in sorted(within, key=highest_of, reverse=True):
        if segment.max_timestamp < 0 or best is not None and segment.max_timestamp < best[1]:
            break
        best = better(best, newest_in(segment, start, end))
    return best


def highest_of(Segment segment not None):
    return segment.max_timestamp


cdef object better(one, other):
    """The newer of two findings, of equal ones the first."""
    if one is None or other is None:
        return one or other
    return other if (other[1], -other[0]) > (one[1], -one[0]) else one


cdef object newest_in(Segment segment, int64_t start, int64_t end):
    """The first record from `start` to `end` with the highest timestamp that is there."""
    cdef BatchScan scan
    cdef const uint8_t *batch
    cdef Py_ssize_t size
    cdef int64_t position = 0
    found = first_in(segment, segment.max_timestamp, start, end)
    if found is not None:
        return found
    # It was deleted, cannot be read yet, or was compacted away. What the index had before `end`
    # is the highest up to there; the batches behind that have to be looked at.
    entry = segment.newest_before(end)
    if entry is not None:
        found = first_in(segment, entry[0], start, end)
        if found is not None:
            position = segment.position_for(entry[1] + 1, &size)
    scan = BatchScan(segment.data_file(), position, segment.size, 4096, True)
    while True:
        batch = scan.next()
        if batch is NULL or fields.base_offset(batch) >= end:
            return found
        if (fields.last_offset(batch) < start or not fields.record_count(batch)
                or found is not None and fields.max_timestamp(batch) <= found[1]):
            continue
        found = better(found, newest_of_batch(segment, scan.position, start))


cdef object newest_of_batch(Segment segment, int64_t position, int64_t start):
    cdef BatchScan scan = BatchScan(segment.data_file(), position, segment.size, 16384)
    cdef const uint8_t *batch = scan.next()
    return record_in(batch, scan.size, HIGHEST, start)


cdef object first_in(Segment segment, int64_t timestamp, int64_t start, int64_t end):
    """The first record of a segment from `start` to `end` that is not older than this."""
    cdef BatchScan scan = BatchScan(
        segment.data_file(), segment.position_of_timestamp(timestamp), segment.size, 16384)
    cdef const uint8_t *batch
    while True:
        batch = scan.next()
        if batch is NULL or fields.base_offset(batch) >= end:
            return None
        if fields.max_timestamp(batch) >= timestamp and fields.last_offset(batch) >= start:
            found = record_in(batch, scan.size, timestamp, start)
            if found is not None:
                return found


cdef tuple record_in(const uint8_t *batch, Py_ssize_t size, int64_t timestamp, int64_t offset_min):
    """The first record of a batch from an offset on that is not older; with HIGHEST the newest."""
    cdef tuple found = None
    cdef int64_t newest = -1
    cdef int64_t base = fields.base_timestamp(batch), delta = 0
    cdef int32_t length = 0, offset_delta = 0, left = fields.record_count(batch)
    cdef const uint8_t *at = batch + fields.RECORDS_AT
    cdef const uint8_t *end = batch + size
    cdef const uint8_t *inside
    cdef bytes records
    cdef int codec = fields.attributes(batch) & fields.CODEC_MASK
    if not left:
        return None                                         # compaction took its records
    if fields.attributes(batch) & fields.LOG_APPEND_TIME:
        return (max(fields.base_offset(batch), offset_min), fields.max_timestamp(batch),
                fields.leader_epoch(batch))
    if codec:
        records = decompress(codec, (<const char *>at)[:end - at], DECOMPRESSED_MAX)
        at = <const uint8_t *>records
        end = at + len(records)
    while left:
        left -= 1
        at = read_varint(at, end, &length)
        if at is NULL or length < 1 or length > end - at:
            raise CorruptMessage(f"a record of the batch at {fields.base_offset(batch)} is cut off")
        inside = read_varlong(at + 1, at + length, &delta)
        if inside is not NULL:
            inside = read_varint(inside, at + length, &offset_delta)
        if inside is NULL:
            raise CorruptMessage(f"a record of the batch at {fields.base_offset(batch)} is cut off")
        at += length
        if fields.base_offset(batch) + offset_delta < offset_min:
            continue
        if timestamp == HIGHEST and base + delta > newest or base + delta >= timestamp:
            newest = base + delta
            found = (fields.base_offset(batch) + offset_delta, newest, fields.leader_epoch(batch))
            if timestamp != HIGHEST:
                break
    return found
