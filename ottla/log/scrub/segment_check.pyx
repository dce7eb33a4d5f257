"""Checks one sealed segment: every checksum, and that offsets and epochs are in order.

`read` reads the next slice, in a thread; `check` examines it, on the loop, which takes a fraction
of a millisecond. A batch may be larger than a slice: its checksum is computed across slices, so
that a damaged length field cannot exhaust the memory.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from ottla.log.files.disk cimport File
cimport ottla.wire.batch as fields
from ottla.wire.checksum cimport CRC32C_START, crc32c_part


cdef class SegmentScrub:
    """One pass over the first `size` bytes of a segment that begins with `base_offset`.

    `next_base` is where the next segment begins, or -1 if it may follow a gap in the offsets.
    """

    def __init__(self, File file, int64_t size, int64_t base_offset, int64_t next_base=-1,
                 Py_ssize_t slice_bytes=1 << 20):
        self.file, self.size, self.next_base = file, size, next_base
        self.end_offset = self.base_offset = base_offset
        self.epoch = -1
        self.room = slice_bytes
        self.buffer = <uint8_t *>malloc(slice_bytes)
        if self.buffer is NULL:
            raise MemoryError(
                f"out of memory: the check of {file.path} needs a buffer of {slice_bytes} bytes")

    def __dealloc__(self):
        free(self.buffer)

    @property
    def done(self):
        """Whether the end was reached, or a fault was found."""
        return self.problem is not None or self.position >= self.size

    def read(self):
        """Reads the next slice; in any thread. Raises OSError."""
        self.expected = min(<int64_t>self.room, self.size - self.position)
        self.buffered = self.file.read_in_passing(self.buffer, self.expected, self.position)

    def check(self):
        """Examines the slice that was read."""
        cdef const uint8_t *at = self.buffer
        cdef const uint8_t *end = at + self.buffered
        cdef Py_ssize_t part
        cdef str problem
        while at < end:
            if self.header_filled < fields.HEADER_SIZE:
                part = min(fields.HEADER_SIZE - self.header_filled, end - at)
                memcpy(self.header + self.header_filled, at, part)
                self.header_filled += part
                at += part
                if self.header_filled < fields.HEADER_SIZE:
                    break
                problem = self.problem_of_header()
                if problem is not None:
                    return self.note_fault(problem, self.batch_position, self.end_offset)
                self.left = fields.total_size(self.header) - fields.HEADER_SIZE
                self.crc = crc32c_part(
                    CRC32C_START, self.header + fields.ATTRIBUTES_AT,
                    fields.HEADER_SIZE - fields.ATTRIBUTES_AT)
            part = min(self.left, <int64_t>(end - at))
            self.crc = crc32c_part(self.crc, at, part)
            self.left -= part
            at += part
            if self.left == 0 and self.end_batch():
                return
        self.position += self.buffered
        if self.buffered < self.expected:
            self.note_fault(f"the file ends at byte {self.position}, expected {self.size} bytes",
                            self.batch_position, self.end_offset)
        elif self.position == self.size:
            if self.header_filled:
                self.note_fault("the last batch is cut off", self.batch_position, self.end_offset)
            elif self.next_base >= 0 and self.next_base != self.end_offset:
                problem = (f"it ends at offset {self.end_offset},"
                           f" but the next segment begins at {self.next_base}")
                if not self.blame_the_last(
                        self.jumped and self.end_offset > self.next_base >= self.jump_offset):
                    self.batch_position = self.size
                self.note_fault(problem, self.batch_position, self.end_offset)

    cdef str problem_of_header(self):
        """What is wrong with the header of the batch that begins at `batch_position`."""
        cdef const uint8_t *batch = self.header
        cdef int64_t size = fields.total_size(batch)
        cdef int32_t delta = fields.last_offset_delta(batch), count = fields.record_count(batch)
        if fields.magic(batch) != 2:
            return f"magic is {fields.magic(batch)}, not 2"
        if size < fields.HEADER_SIZE or size > self.size - self.batch_position:
            return f"the batch claims an impossible size of {size} bytes"
        if delta < 0 or count < 0 or count > <int64_t>delta + 1:
            return f"record count {count} contradicts last offset delta {delta}"
        if fields.leader_epoch(batch) < self.epoch:
            self.blame_the_last(
                self.epoch_began and fields.leader_epoch(batch) >= self.jump_epoch)
            return f"leader epoch falls from {self.epoch} to {fields.leader_epoch(batch)}"
        if fields.base_offset(batch) < self.end_offset:
            problem = (f"base offset is {fields.base_offset(batch)},"
                       f" but the previous batch ends with offset {self.end_offset - 1}")
            self.blame_the_last(self.jumped and fields.base_offset(batch) >= self.jump_offset)
            return problem
        return None

    cdef bint blame_the_last(self, bint fits_without) noexcept:
        """Moves a fault to the previous batch if the current batch would be correct without the
        previous one; returns whether it was moved.

        The checksum does not cover base offset and epoch. If they jump forward at a batch and the
        next batch continues from before the jump, the batch with the jump is damaged.
        """
        if not fits_without:
            return False
        self.batch_position, self.end_offset = self.jump_position, self.jump_offset
        self.epoch = self.jump_epoch
        return True

    cdef int end_batch(self) except -1:
        """Ends the current batch; returns 1 if its checksum is wrong."""
        if self.crc ^ <uint32_t>0xffffffff != fields.crc(self.header):
            self.note_fault(
                "checksum does not match the bytes", self.batch_position, self.end_offset)
            return 1
        self.jumped = fields.base_offset(self.header) > self.end_offset
        self.epoch_began = fields.leader_epoch(self.header) > self.epoch
        self.jump_position, self.jump_offset = self.batch_position, self.end_offset
        self.jump_epoch = self.epoch
        self.batch_position += fields.total_size(self.header)
        self.end_offset = fields.last_offset(self.header) + 1
        self.epoch = fields.leader_epoch(self.header)
        self.header_filled = 0
        return 0

    cdef int note_fault(self, str problem, int64_t position, int64_t offset) except -1:
        self.problem, self.fault_position, self.fault_offset = problem, position, offset
        return 0

    def refused(self, error):
        """Notes an error of the disk as a fault of the batch in which the next slice begins."""
        self.note_fault(f"it cannot be read: {error}", self.batch_position, self.end_offset)

    def look_again(self):
        """Goes back to the batch that looked wrong, because only a fault that is found twice is
        reported. If the segment's end looked wrong, any batch may have been misread, so the check
        begins again."""
        if self.batch_position >= self.size:
            self.batch_position, self.end_offset, self.epoch = 0, self.base_offset, -1
        self.position = self.batch_position
        self.problem, self.header_filled, self.left = None, 0, 0
        self.jumped = self.epoch_began = False
        self.buffered = self.expected = 0
