"""A follower checks the batches of its leader, and divides them among its segments.

The leader has checked the records. A follower checks only headers and checksums, which show that
the bytes are the leader's. It writes consecutive whole batches with one call.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.files.index_file cimport ENTRIES_MAX
from ottla.log.partition.chain cimport SegmentChain
from ottla.log.partition.readable_log cimport ReadableLog
from ottla.log.partition.segment cimport Segment
cimport ottla.wire.batch as fields
from ottla.wire.checksum cimport crc32c
from ottla.wire.errors import CorruptMessage


cdef int64_t due_offset(ReadableLog log, const uint8_t *data, Py_ssize_t size) except -1:
    """The lowest base offset that the leader's next batch may have. Normally this is the end of the
    log. In a log without batches it may be lower: if DeleteRecords moved the log start into a
    batch, the leader sends this whole batch."""
    cdef int64_t end = log.log_end_offset
    if (size >= fields.HEADER_SIZE and fields.base_offset(data) < end <= fields.last_offset(data)
            and log.log_start_offset == end and not log.size_bytes):
        return max(<int64_t>0, fields.base_offset(data))
    return end


cdef Py_ssize_t checked_batches(
    const uint8_t *data, Py_ssize_t size, int64_t offset_min, int32_t epoch_min,
    int32_t epoch_max, bint more
) except -1:
    """Returns how many bytes at the start of `data` are whole and valid batches.

    The first batch must begin at `offset_min` or later; each further batch must begin after the end
    of the batch before it. Leader epochs must neither decrease nor exceed `epoch_max`. Raises
    CorruptMessage if the first batch is not valid. A later invalid batch ends the count. `more`
    says that the leader's data continue after `data`. If so, a last batch whose offset or epoch
    jumps is not counted: only the batch after it shows whether the jump is genuine.
    """
    cdef Py_ssize_t at = 0, batch_size
    cdef const uint8_t *batch
    cdef const uint8_t *jumped = NULL   # the previous batch, if its offset or its epoch jumped
    cdef int64_t due = offset_min
    cdef int32_t epoch = epoch_min
    cdef str problem
    while size - at >= fields.HEADER_SIZE:
        batch = data + at
        if jumped is not NULL and belies(batch, jumped, due, epoch):
            if jumped == data:
                raise CorruptMessage(
                    "one of two consecutive batches is damaged: the first has offset "
                    f"{fields.base_offset(jumped)} and leader epoch {fields.leader_epoch(jumped)}, "
                    f"the second has offset {fields.base_offset(batch)} and leader epoch "
                    f"{fields.leader_epoch(batch)}")
            return jumped - data
        batch_size = fields.total_size(batch)
        if batch_size > size - at and batch_size >= fields.HEADER_SIZE:
            return at
        problem = problem_of(batch, batch_size, offset_min, epoch_min, epoch_max)
        if problem is not None:
            if at:
                return at
            raise CorruptMessage(problem)
        jumped, due, epoch = NULL, offset_min, epoch_min
        if fields.base_offset(batch) > due or fields.leader_epoch(batch) > epoch:
            jumped = batch
        offset_min = fields.last_offset(batch) + 1
        epoch_min = fields.leader_epoch(batch)
        at += batch_size
    return jumped - data if jumped is not NULL and more else at


cdef bint belies(
    const uint8_t *batch, const uint8_t *jumped, int64_t due, int32_t epoch
) noexcept:
    """Whether `batch` shows that the offset or epoch of the batch before it, `jumped`, is damaged.
    The checksum covers neither field. After a genuine jump, from compaction or a change of leader,
    the offset and epoch of `batch` continue those of `jumped`."""
    if fields.magic(batch) != 2:
        return False
    if fields.base_offset(jumped) > due and (
            due <= fields.base_offset(batch) <= fields.last_offset(jumped)):
        return True
    return (fields.base_offset(batch) == fields.last_offset(jumped) + 1
            and epoch <= fields.leader_epoch(batch) < fields.leader_epoch(jumped))


cdef Py_ssize_t bytes_wanted(const uint8_t *data, Py_ssize_t size, int64_t left) noexcept:
    """How many bytes `checked_batches` needs to find a batch, after it found none in `data`. The
    leader's reply has `left` bytes of batches; `data` holds the first `size` of them."""
    cdef Py_ssize_t wanted = fields.HEADER_SIZE
    if size >= fields.LOG_OVERHEAD:
        wanted = fields.total_size(data)
    return wanted if wanted > size else min(<int64_t>wanted + fields.HEADER_SIZE, left)


cdef str problem_of(
    const uint8_t *batch, Py_ssize_t size, int64_t offset_min, int32_t epoch_min,
    int32_t epoch_max
):
    """What is wrong with a batch; None if nothing is wrong."""
    cdef int64_t base = fields.base_offset(batch)
    cdef int32_t epoch = fields.leader_epoch(batch)
    if size < fields.HEADER_SIZE:
        return f"a batch has {size} bytes, which is less than its header takes"
    if fields.magic(batch) != 2:
        return f"a batch has magic {fields.magic(batch)}, expected 2"
    if base < offset_min or fields.last_offset_delta(batch) < 0:
        return (f"a batch has offsets {base} to {fields.last_offset(batch)}, "
                f"expected ascending offsets from {offset_min} on")
    if not epoch_min <= epoch <= epoch_max:
        return (f"the batch at offset {base} has leader epoch {epoch}, "
                f"which is not between {epoch_min} and {epoch_max}")
    if crc32c(batch + fields.ATTRIBUTES_AT, size - fields.ATTRIBUTES_AT) != fields.crc(batch):
        return f"the batch at offset {base} does not match its checksum"
    return None


cdef Py_ssize_t run_in_segment(
    SegmentChain chain, const uint8_t *data, Py_ssize_t size, Py_ssize_t *entries
) except -1:
    """Returns how many bytes of these batches can be appended to the active segment with one write.

    The first batch is always counted: the caller has rolled the segment for it if necessary. The
    count ends before a later batch that may need a new segment. `entries` is set to the number of
    index entries that the counted batches may need.
    """
    cdef Segment segment = chain.active
    cdef const uint8_t *batch = data
    cdef int64_t first = segment.first_timestamp if segment.size else fields.max_timestamp(data)
    cdef int64_t span_ms = chain.segment_ms - chain.config.segment_jitter_ms
    cdef int64_t since, position = segment.size
    cdef Py_ssize_t room, batch_size
    if not segment.appendable:
        segment.prepare_append()
    since = segment.since_index
    room = min(<Py_ssize_t>ENTRIES_MAX, max(1, chain.index_entries_max - segment.index.count))
    entries[0] = 0
    while batch < data + size:
        batch_size = fields.total_size(batch)
        if batch != data and (
                position + batch_size > chain.segment_bytes
                or fields.last_offset(batch) - segment.base_offset > chain.offset_span_max
                or first < 0 or fields.max_timestamp(batch) - first > span_ms
                or entries[0] == room):
            break
        if since > segment.index_interval:
            entries[0] += 1
            since = 0
        since += batch_size
        position += batch_size
        batch += batch_size
    return batch - data
