"""Finds records by timestamp: the time index leads to a batch, whose records are examined."""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from ottla.log.files.batch_scan cimport BatchScan
from ottla.log.files.batch_scan import SegmentDamaged
from ottla.log.files.index_file import IndexDamaged
from ottla.log.partition.segment cimport Segment
cimport ottla.wire.batch as fields
from ottla.wire.compression import decompress, size_bound
from ottla.wire.errors import CorruptMessage
from ottla.wire.varint cimport read_varint, read_varlong

DECOMPRESSED_MAX = 128 * 1024 * 1024

cdef int64_t HIGHEST = INT64_MAX        # as a timestamp: search for the newest record


cdef enum:
    HEADERS_AT_ONCE = 200               # batch headers per step: each may need its own read
    # a larger compressed batch takes long, whatever its decompressed size
    SHORT_SIZE = 4096
    SHORT_PLAIN_SIZE = 1 << 20          # uncompressed bytes searched in a millisecond


cdef class RecordSearch:
    """One batch to be searched: `run` searches it, in any thread, and sets `record`."""

    cdef bytes batch
    cdef int64_t timestamp, offset_min
    cdef readonly tuple record

    @property
    def takes_long(self):
        """Whether `run` may take more than a millisecond, which is too long for the loop."""
        cdef const uint8_t *batch
        cdef int codec
        if self.batch is None:
            return False
        batch = self.batch
        codec = fields.attributes(batch) & fields.CODEC_MASK
        if not fields.record_count(batch) or is_plain(batch):
            return False
        if not codec:
            return len(self.batch) > SHORT_PLAIN_SIZE
        return len(self.batch) > SHORT_SIZE or size_bound(
            codec, self.batch[fields.RECORDS_AT:]) > SHORT_PLAIN_SIZE

    def run(self):
        """Searches the batch. Raises CorruptMessage."""
        if self.batch is not None:
            self.record = record_in(self.batch, len(self.batch), self.timestamp, self.offset_min)


cdef RecordSearch NOTHING_YET = RecordSearch()     # a step that has found no batch to search


cdef RecordSearch search_of(
        const uint8_t *batch, Py_ssize_t size, int64_t timestamp, int64_t offset_min):
    cdef RecordSearch search = RecordSearch.__new__(RecordSearch)
    search.batch = (<const char *>batch)[:size]
    search.timestamp, search.offset_min = timestamp, offset_min
    return search


def at_once(steps):
    """The result of a search; runs all its steps at once."""
    try:
        while True:
            next(steps).run()
    except StopIteration as end:
        return end.value


def first_at(
    list segments, int64_t start, int64_t end, int64_t timestamp, bint patient=False
):
    """The first record from `start` to `end` not older than `timestamp`, as a search in steps.

    Yields each RecordSearch that has to be run before the next step; returns (offset, timestamp,
    leader epoch), or None. Raises OSError.
    """
    cdef Segment segment
    cdef int64_t at = start, after
    while at < end and (segment := segment_at(segments, at)) is not None:
        if not segment.times_known:
            segment.load_times(patient)
            yield NOTHING_YET
            continue                        # retention may have removed the segment meanwhile
        after = segment.end_offset
        if segment.max_timestamp >= timestamp:
            record = yield from first_in(segment, timestamp, start, end, patient)
            if record is not None:
                return record
        at = after
    return None


cdef Segment segment_at(list segments, int64_t offset):
    """The segment that contains an offset, or the next one; None after the last. Searches call this
    for each step, because retention and compaction may change the list between two steps."""
    cdef Py_ssize_t low = 0, high = len(segments), middle
    while low < high:
        middle = (low + high) >> 1
        if (<Segment>segments[middle]).end_offset > offset:
            high = middle
        else:
            low = middle + 1
    return <Segment>segments[low] if low < len(segments) else None


def newest(list segments, int64_t start, int64_t end, bint patient=False):
    """The record with the highest timestamp from `start` to `end`; the first one if several have
    it. Searches in steps, like `first_at`."""
    cdef Segment segment
    cdef int64_t at = start
    best, known = None, []
    while at < end and (segment := segment_at(segments, at)) is not None:
        if segment.base_offset >= end:
            break
        if not segment.times_known:
            segment.load_times(patient)
            yield NOTHING_YET
            continue
        known.append(segment)
        at = segment.end_offset
    for segment in sorted(known, key=highest_of, reverse=True):
        if segment.max_timestamp < 0 or best is not None and segment.max_timestamp < best[1]:
            break
        if segment not in segments:         # removed, or replaced by a cleaned one
            return (yield from newest(segments, start, end, patient))
        candidate = yield from newest_in(segment, start, end, patient)
        best = better(best, candidate)
    return best


def highest_of(Segment segment not None):
    """A segment's highest timestamp."""
    return segment.max_timestamp


cdef object better(one, other):
    """The newer of two records, or the one with the lower offset if their timestamps are equal."""
    if one is None or other is None:
        return one or other
    return other if (other[1], -other[0]) > (one[1], -one[0]) else one


def newest_in(Segment segment not None, int64_t start, int64_t end, bint patient):
    """Like `newest`, for the records of one segment."""
    position = 0
    record = yield from first_in(segment, segment.max_timestamp, start, end, patient)
    if record is not None:
        return record
    # The segment's newest record is outside of `start` to `end`, or compaction removed it. The time
    # index has the highest timestamp up to some offset before `end`. Batches after that offset are
    # examined.
    entry = newest_before(segment, end, patient)
    if entry is not None:
        record = yield from first_in(segment, entry[0], start, end, patient)
        if record is not None:
            position = segment.position_of(entry[1] + 1, patient)
    scan = BatchScan(segment.data_file(), position, segment.size, 4096, True)
    while True:
        search = next_newer(segment, scan, start, end, record)
        if search is None:
            return record
        yield search
        record = better(record, search.record)


cdef int64_t start_of(Segment segment, int64_t timestamp, bint patient) except -1:
    """A position at or before the first batch that has a record not older than `timestamp`."""
    cdef Py_ssize_t entry
    for again in (False, True):
        segment.open_indexes(patient)
        try:
            entry = segment.times.find(timestamp)
            return 0 if entry < 0 else segment.position_of_entry(
                segment.times.key_of(entry), segment.times.offset_of(entry), patient)
        except IndexDamaged:
            if again:
                raise
            segment.rebuild_indexes(patient)


cdef tuple newest_before(Segment segment, int64_t offset, bint patient):
    """The last entry of the time index before `offset`, or None."""
    for again in (False, True):
        segment.open_indexes(patient)
        try:
            entry = segment.times.before(offset)
            if entry is not None:
                segment.position_of_entry(entry[0], entry[1], patient)
            return entry
        except IndexDamaged:
            if again:
                raise
            segment.rebuild_indexes(patient)


cdef const uint8_t *next_in(BatchScan scan) except? NULL:
    """The next batch, NULL at the end. Raises SegmentDamaged: a search that continued with the next
    segment would miss records."""
    cdef const uint8_t *batch = scan.next()
    if batch is NULL and scan.problem is not None:
        raise SegmentDamaged(
            f"{scan.file.path} at byte {scan.position}: {scan.problem}", scan.position)
    return batch


cdef RecordSearch next_newer(Segment segment, BatchScan scan, int64_t start, int64_t end, best):
    """The next batch that may have a newer record than `best`, by a scan of headers. NOTHING_YET if
    there is none among the next HEADERS_AT_ONCE batches; None at the end of the scan."""
    cdef const uint8_t *batch
    cdef BatchScan whole
    for _ in range(HEADERS_AT_ONCE):
        batch = next_in(scan)
        if batch is NULL or fields.base_offset(batch) >= end:
            return None
        if (fields.last_offset(batch) >= start and fields.record_count(batch)
                and (best is None or fields.max_timestamp(batch) > best[1])):
            whole = BatchScan(segment.data_file(), scan.position, segment.size, 16384)
            batch = whole.next()
            return search_of(batch, whole.size, HIGHEST, start)
    return NOTHING_YET


def first_in(
    Segment segment not None, int64_t timestamp, int64_t start, int64_t end, bint patient
):
    """The first record of a segment from `start` to `end` that is not older than `timestamp`."""
    scan = BatchScan(
        segment.data_file(), start_of(segment, timestamp, patient), segment.size, 16384)
    while True:
        search = next_due(scan, timestamp, start, end)
        if search is None:
            return None
        yield search
        if search.record is not None:
            return search.record


cdef RecordSearch next_due(BatchScan scan, int64_t timestamp, int64_t start, int64_t end):
    """The next batch of a scan that may have a record not older than `timestamp`. NOTHING_YET if
    there is none among the next HEADERS_AT_ONCE batches; None at the end of the scan."""
    cdef const uint8_t *batch
    for _ in range(HEADERS_AT_ONCE):
        batch = next_in(scan)
        if batch is NULL or fields.base_offset(batch) >= end:
            return None
        if fields.max_timestamp(batch) >= timestamp and fields.last_offset(batch) >= start:
            return search_of(batch, scan.size, timestamp, start)
    return NOTHING_YET


cdef bint is_plain(const uint8_t *batch):
    """Whether the header alone answers a search: all records have the same timestamp, and none was
    compacted away, so that each offset of the batch has a record."""
    return bool(fields.attributes(batch) & fields.LOG_APPEND_TIME) and (
        fields.record_count(batch) == fields.last_offset(batch) - fields.base_offset(batch) + 1)


cdef tuple record_in(const uint8_t *batch, Py_ssize_t size, int64_t timestamp, int64_t offset_min):
    """The first record from `offset_min` on with at least `timestamp`; for HIGHEST, the newest."""
    cdef int64_t newest = -1, newest_offset = -1, offset
    cdef bint cut_off = False
    cdef bint one_time = (fields.attributes(batch) & fields.LOG_APPEND_TIME) != 0
    cdef int64_t base = fields.base_timestamp(batch), delta = 0
    cdef int32_t length = 0, offset_delta = 0, left = fields.record_count(batch)
    cdef const uint8_t *at = batch + fields.RECORDS_AT
    cdef const uint8_t *end = batch + size
    cdef const uint8_t *inside
    cdef bytes records
    cdef int codec = fields.attributes(batch) & fields.CODEC_MASK
    if not left:
        return None                                         # compaction removed its records
    if is_plain(batch):
        return (max(fields.base_offset(batch), offset_min), fields.max_timestamp(batch),
                fields.leader_epoch(batch))
    if codec:
        records = decompress(codec, (<const char *>at)[:end - at], DECOMPRESSED_MAX)
        at = <const uint8_t *>records
        end = at + len(records)
    if one_time:
        base = fields.max_timestamp(batch)
    with nogil:
        while left:
            left -= 1
            inside = NULL
            at = read_varint(at, end, &length)
            if at is not NULL and 1 <= length <= end - at:
                inside = read_varlong(at + 1, at + length, &delta)
                if inside is not NULL:
                    inside = read_varint(inside, at + length, &offset_delta)
            if inside is NULL:
                cut_off = True
                break
            at += length
            if one_time:
                delta = 0
            offset = fields.base_offset(batch) + offset_delta
            if offset < offset_min:
                continue
            if timestamp == HIGHEST and base + delta > newest or base + delta >= timestamp:
                newest, newest_offset = base + delta, offset
                if timestamp != HIGHEST:
                    break
    if cut_off:
        raise CorruptMessage(
            f"a record of the batch at offset {fields.base_offset(batch)} is cut off")
    if newest_offset < 0:
        return None
    return newest_offset, newest, fields.leader_epoch(batch)
