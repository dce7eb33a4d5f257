"""Finds records by timestamp: the time index leads to a batch, its records are looked at."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.partition_log cimport PartitionLog
from ottla.log.scan cimport BatchScan
from ottla.log.segment cimport Segment
from ottla.wire cimport batch as fields
from ottla.wire.compression import decompress
from ottla.wire.errors import CorruptMessage
from ottla.wire.varint cimport read_varint, read_varlong

DECOMPRESSED_MAX = 128 * 1024 * 1024


def first_at(PartitionLog log, int64_t timestamp):
    """The first record not older than this: (offset, timestamp, leader epoch), None without."""
    cdef Segment segment
    cdef BatchScan scan
    cdef const uint8_t *batch
    for segment in log.segments:
        if segment.end_offset <= log.log_start_offset:
            continue
        segment.load_times()
        if segment.max_timestamp < timestamp:
            continue
        scan = BatchScan(
            segment.data_file(), segment.position_of_timestamp(timestamp), segment.size, 16384)
        while True:
            batch = scan.next()
            if batch is NULL:
                break
            if (fields.max_timestamp(batch) >= timestamp
                    and fields.last_offset(batch) >= log.log_start_offset):
                found = record_in(batch, scan.size, timestamp, log.log_start_offset)
                if found is not None:
                    return found
    return None


def newest(PartitionLog log):
    """The first of the records with the highest timestamp, as `first_at` returns it."""
    cdef Segment segment
    cdef int64_t highest = -1
    for segment in log.segments:
        segment.load_times()
        if segment.end_offset > log.log_start_offset and segment.max_timestamp > highest:
            highest = segment.max_timestamp
    return first_at(log, highest) if highest >= 0 else None


cdef tuple record_in(const uint8_t *batch, Py_ssize_t size, int64_t timestamp, int64_t offset_min):
    """The first record of a batch from an offset on that is not older."""
    cdef int64_t base = fields.base_timestamp(batch), delta = 0
    cdef int32_t length = 0, offset_delta = 0, left = fields.record_count(batch)
    cdef const uint8_t *at = batch + fields.RECORDS_AT
    cdef const uint8_t *end = batch + size
    cdef const uint8_t *inside
    cdef bytes records
    cdef int codec = fields.attributes(batch) & fields.CODEC_MASK
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
        if base + delta >= timestamp and fields.base_offset(batch) + offset_delta >= offset_min:
            return (fields.base_offset(batch) + offset_delta, base + delta,
                    fields.leader_epoch(batch))
    return None
