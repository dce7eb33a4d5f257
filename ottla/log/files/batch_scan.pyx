"""Reads the record batches of a log file one by one, without trusting any field."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from ottla.log.files.disk cimport File
from ottla.log.files.producers cimport Producers
cimport ottla.wire.batch as fields
from ottla.wire.checksum cimport crc32c
from ottla.wire.errors import CorruptMessage
from ottla.wire.wording import counted

cdef enum:
    ASIDE_BYTES = 65536                 # reads of at least this size release the GIL


class SegmentDamaged(CorruptMessage):
    """A log file has an invalid batch at `position`."""

    def __init__(self, message, position):
        super().__init__(message)
        self.position = position


cdef class BatchScan:
    """The complete batches between two positions of a file, one by one.

    The scan ends at the first bytes that cannot be a batch, with the reason in `problem`. `chunk`
    bytes are read at a time, or more for a batch that is larger. With `headers_only`, only the
    header of the current batch is certain to be in the buffer.
    """

    def __init__(self, File file, int64_t position, int64_t end, Py_ssize_t chunk=262144,
                 bint headers_only=False):
        self.file, self.end = file, end
        self.position = self.next_position = self.buffer_position = position
        self.headers_only = headers_only
        self.grow(max(chunk, fields.HEADER_SIZE))

    def __dealloc__(self):
        free(self.buffer)

    cdef int grow(self, Py_ssize_t room) except -1:
        cdef uint8_t *grown = <uint8_t *>realloc(self.buffer, room)
        if grown is NULL:
            raise MemoryError(
                f"out of memory: a batch of {self.file.path} needs a buffer of {room} bytes")
        self.buffer, self.room = grown, room
        return 0

    cdef const uint8_t *hold(self, Py_ssize_t size) except NULL:
        """Returns at least `size` bytes from `position` on. The caller has checked that
        `position + size <= end`."""
        cdef Py_ssize_t start = self.position - self.buffer_position
        cdef Py_ssize_t kept, wanted
        if start >= 0 and start + size <= self.buffered:
            return self.buffer + start
        kept = self.buffered - start if 0 <= start < self.buffered else 0
        if kept:
            memmove(self.buffer, self.buffer + start, kept)
        self.buffer_position, self.buffered = self.position, kept
        if size > self.room:
            self.grow(size)
        wanted = min(<int64_t>self.room, self.end - self.position) - kept
        if wanted < ASIDE_BYTES:
            self.buffered += self.file.read_at(self.buffer + kept, wanted, self.position + kept)
        else:
            self.buffered += self.file.read_aside(
                self.buffer + kept, wanted, self.position + kept)
        assert self.buffered <= self.room
        if self.buffered < size:
            raise EOFError(
                f"{self.file.path} was truncated below {self.end} bytes while it was read")
        return self.buffer

    cdef const uint8_t *next(self) except? NULL:
        cdef int64_t left
        cdef const uint8_t *batch
        cdef int64_t size
        self.position = self.next_position
        left = self.end - self.position
        if left == 0:
            return NULL
        if left < fields.HEADER_SIZE:
            self.problem = f"a batch header does not fit into the last {counted(left, 'byte')}"
            return NULL
        batch = self.hold(fields.HEADER_SIZE)
        size = <int64_t>fields.total_size(batch)
        if fields.magic(batch) != 2:
            self.problem = f"magic is {fields.magic(batch)}, not 2"
            return NULL
        if size < fields.HEADER_SIZE:
            self.problem = f"length is {size - fields.LOG_OVERHEAD}, too small for a batch"
            return NULL
        if size > left:
            self.problem = f"the batch takes {size} bytes, but only {left} are left"
            return NULL
        if not self.headers_only:
            batch = self.hold(size)
        self.size = size
        self.next_position = self.position + size
        return batch

    cpdef bint holds_next(self) noexcept:
        """Whether `next` can return without a read: the batch is in memory, or there is none."""
        cdef int64_t left = self.end - self.next_position, size = fields.HEADER_SIZE
        cdef int64_t held = self.buffer_position + self.buffered - self.next_position
        if left < fields.HEADER_SIZE:
            return True
        if held >= size and self.next_position >= self.buffer_position:
            size = fields.total_size(self.buffer + (self.next_position - self.buffer_position))
            return size > left or size <= held
        return False

    def read_on(self):
        """Fills the buffer, beginning with the batch that `next` will return, and checks the
        checksums.

        For a thread: the call blocks, mostly without the GIL, and nothing else may use the scan
        until it returns. Raises OSError, EOFError.
        """
        cdef const uint8_t *batch
        while not self.holds_next():
            self.position = self.next_position
            batch = self.hold(fields.HEADER_SIZE)
            batch = self.hold(min(
                max(<int64_t>fields.HEADER_SIZE, fields.total_size(batch)),
                self.end - self.position))
            self.check_held(batch)

    cdef void check_held(self, const uint8_t *batch) noexcept:
        """Checks the checksums of all whole batches in memory, from the one at `position` on.

        Checks them all at once and without the GIL, because several logs are recovered at a time.
        """
        with nogil:
            self.checked = self.position + fitting(
                batch, self.buffer_position + self.buffered - self.position)

    cdef bint checksum_fits(self, const uint8_t *batch) noexcept:
        """Whether the batch that `next` returned matches its checksum."""
        if self.checked < self.next_position:
            self.check_held(batch)
        return self.checked >= self.next_position

    def batch(self):
        """The next batch as bytes (only its header with `headers_only`), None at the end."""
        cdef const uint8_t *at = self.next()
        if at is NULL:
            return None
        return PyBytes_FromStringAndSize(
            <const char *>at, fields.HEADER_SIZE if self.headers_only else self.size)


cdef bint fits(const uint8_t *batch, Py_ssize_t size) noexcept nogil:
    """Whether a whole batch matches its own checksum."""
    return fields.crc(batch) == crc32c(
        batch + fields.ATTRIBUTES_AT, size - fields.ATTRIBUTES_AT)


cdef Py_ssize_t fitting(const uint8_t *batch, Py_ssize_t held) noexcept nogil:
    """How many of the `held` bytes, from the start, are whole batches with valid checksums."""
    cdef Py_ssize_t done = 0
    cdef int64_t size
    while held - done >= fields.HEADER_SIZE:
        size = fields.total_size(batch + done)
        if size < fields.HEADER_SIZE or size > held - done or not fits(batch + done, size):
            break
        done += size
    return done


cdef str problem_of(
        const uint8_t *batch, bint checksum_fits, int64_t offset_min, int32_t epoch_min):
    """What is wrong with a whole batch, None if nothing is wrong.

    `offset_min` and `epoch_min` are the lowest base offset and leader epoch that are allowed.
    """
    cdef int32_t delta = fields.last_offset_delta(batch)
    cdef int32_t count = fields.record_count(batch)
    if not checksum_fits:
        return "the checksum does not match the bytes"
    if fields.base_offset(batch) < offset_min:
        return f"base offset is {fields.base_offset(batch)}, expected {offset_min} or more"
    # Compaction keeps a batch's last offset but may remove records, so the last offset delta may
    # be larger than the record count suggests.
    if delta < 0 or count < 0 or count > <int64_t>delta + 1:
        return f"record count {count} contradicts last offset delta {delta}"
    if fields.leader_epoch(batch) < epoch_min:
        return f"leader epoch falls from {epoch_min} to {fields.leader_epoch(batch)}"
    return None


cdef class CheckedBatches:
    """The batches of a scan, up to the first batch that cannot follow those before it."""

    def __init__(self, BatchScan scan not None, int64_t end_offset, bint checked):
        self.scan, self.end_offset, self.checked, self.epoch = scan, end_offset, checked, -1

    cdef const uint8_t *next(self) except? NULL:
        cdef const uint8_t *batch = self.scan.next()
        if batch is NULL:
            self.problem = self.scan.problem
            return NULL
        self.problem = problem_of(
            batch, not self.checked or self.scan.checksum_fits(batch), self.end_offset, self.epoch)
        if self.problem is None and (fields.base_offset(batch) > self.end_offset
                                     or fields.leader_epoch(batch) > self.epoch):
            self.problem = contradiction_of(self.scan, batch, self.end_offset, self.epoch)
        if self.problem is not None:
            return NULL
        self.end_offset, self.epoch = fields.last_offset(batch) + 1, fields.leader_epoch(batch)
        return batch


def last_in(BatchScan scan not None, Producers producers=None, epochs=None):
    """The last batch's base offset and position, and the offset after that batch. All three are -1
    if there is no batch.

    `producers` and `epochs`, if given, are updated from all batches. Raises SegmentDamaged.
    """
    cdef int64_t offset = -1, position = -1, end = -1
    cdef int32_t epoch = -1
    cdef const uint8_t *batch = scan.next()
    while batch is not NULL:
        offset, position = fields.base_offset(batch), scan.position
        end = fields.last_offset(batch) + 1
        if producers is not None and fields.producer_id(batch) >= 0:
            producers.update(batch, scan.size)
        if epochs is not None and fields.leader_epoch(batch) != epoch:
            epoch = fields.leader_epoch(batch)
            epochs.assign(epoch, offset)
        batch = scan.next()
    if scan.problem is not None:
        raise SegmentDamaged(
            f"{scan.file.path} at byte {scan.position}: {scan.problem}", scan.position)
    return offset, position, end


def newest_in(BatchScan scan not None):
    """The highest timestamp of a scan, the last offset of the first batch that has it, and the
    problem that ended the scan early. The problem is None if the scan reached its end."""
    cdef int64_t newest = -1, offset = -1
    cdef const uint8_t *batch = scan.next()
    while batch is not NULL:
        if fields.max_timestamp(batch) > newest:
            newest, offset = fields.max_timestamp(batch), fields.last_offset(batch)
        batch = scan.next()
    return newest, offset, scan.problem


def replay(BatchScan scan not None, Producers producers not None, int64_t from_offset):
    """Updates `producers` from the batches that have a producer id, from `from_offset` on."""
    cdef const uint8_t *batch = scan.next()
    while batch is not NULL:
        if fields.producer_id(batch) >= 0 and fields.base_offset(batch) >= from_offset:
            producers.update(batch, scan.size)
        batch = scan.next()


cdef str contradiction_of(
        BatchScan scan, const uint8_t *batch, int64_t end_offset, int32_t epoch):
    """The evidence that the offset or epoch of a batch is damaged, None if there is none.

    The batches before it end at `end_offset` and have leader epochs up to `epoch`; `batch` jumps
    beyond one of these values. The checksum of a batch does not cover its base offset and leader
    epoch. So the only evidence of damage is the batch after `batch`: its offset or epoch continues
    from the values before the jump.
    """
    cdef uint8_t[fields.HEADER_SIZE] following
    if scan.next_position + fields.HEADER_SIZE > scan.end:
        return None
    scan.file.read_at(following, fields.HEADER_SIZE, scan.next_position)
    if fields.magic(following) != 2:
        return None
    if (end_offset < fields.base_offset(batch)
            and end_offset <= fields.base_offset(following) <= fields.last_offset(batch)):
        return (f"base offset jumps to {fields.base_offset(batch)}, but the next batch's is "
                f"{fields.base_offset(following)}")
    if (fields.base_offset(following) == fields.last_offset(batch) + 1
            and epoch <= fields.leader_epoch(following) < fields.leader_epoch(batch)):
        return (f"leader epoch jumps to {fields.leader_epoch(batch)}, but the next batch's is "
                f"{fields.leader_epoch(following)}")
    return None


def producer_id_max(BatchScan scan not None):
    """The highest producer id of the batches, -1 if none has one."""
    cdef const uint8_t *batch
    cdef int64_t highest = -1
    while True:
        batch = scan.next()
        if batch is NULL:
            return highest
        highest = max(highest, fields.producer_id(batch))


def find_valid_batch(file, int64_t position, int64_t end, int64_t offset_min):
    """The position of the first valid batch at or after `position`, None if there is none.

    If a valid batch follows damage, the damage is in the middle of the file; otherwise the end of
    the file is torn. `end` is the file's size. A batch whose offset is below `offset_min` does not
    count: it may be old data of reused disk blocks.
    """
    cdef BatchScan scan = BatchScan(file, position, end)
    cdef const uint8_t *batch
    cdef int64_t size
    while end - scan.position >= fields.HEADER_SIZE:
        batch = scan.hold(fields.HEADER_SIZE)
        size = fields.total_size(batch)
        if (batch[fields.MAGIC_AT] == 2 and fields.HEADER_SIZE <= size <= end - scan.position
                and fields.base_offset(batch) >= offset_min):
            batch = scan.hold(size)
            if problem_of(batch, fits(batch, size), offset_min, -1) is None:
                return scan.position
        scan.position += 1
    return None


def note_epochs(File file, int64_t size, epochs):
    """Enter the start offset of each leader epoch into `epochs`, from the batches' headers."""
    cdef const uint8_t *batch
    cdef int32_t epoch = -1
    cdef BatchScan scan = BatchScan(file, 0, size, 65536, True)
    while True:
        batch = scan.next()
        if batch is NULL:
            return
        if fields.leader_epoch(batch) != epoch:
            epoch = fields.leader_epoch(batch)
            epochs.assign(epoch, fields.base_offset(batch))
