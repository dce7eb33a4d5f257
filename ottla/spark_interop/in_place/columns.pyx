# cython: boundscheck=False, wraparound=False
"""Record batches as columns: Arrow's buffers, filled without a Python object per record.

A batch is verified (checksum, every length) before its records are read. Only the requested columns
are copied. Buffers grow as batches are added. `take` returns and empties them, so the caller's
limit on rows and bytes bounds the memory.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

cimport ottla.wire.batch as header
from ottla.wire.record_walk cimport SOUND, Flaw, Walk, flaw_text, walk_records
from ottla.wire.varint cimport read_varint, read_varlong

from ottla.wire.compression import decompress
from ottla.wire.errors import CorruptMessage

DECOMPRESSED_MAX = 128 * 1024 * 1024


cdef class Buffer:
    """Bytes that grow at their end."""

    cdef uint8_t *data
    cdef Py_ssize_t size, room

    def __dealloc__(self):
        free(self.data)

    cdef uint8_t *more(self, Py_ssize_t count) except NULL:
        cdef Py_ssize_t room
        cdef uint8_t *grown
        if self.room - self.size < count:
            room = max(2 * self.room, self.size + count, 4096)
            grown = <uint8_t *>realloc(self.data, room)
            if grown is NULL:
                raise MemoryError(f"out of memory: a column needs {room} bytes")
            self.data, self.room = grown, room
        self.size += count
        return self.data + self.size - count

    cdef int add_int32(self, int32_t value) except -1:
        (<int32_t *>self.more(4))[0] = value
        return 0

    cdef int add_int64(self, int64_t value) except -1:
        (<int64_t *>self.more(8))[0] = value
        return 0

    cdef int add(self, const uint8_t *at, Py_ssize_t count) except -1:
        if count > 0:
            memcpy(self.more(count), at, count)
        return 0

    cdef bytes take(self):
        cdef bytes result = PyBytes_FromStringAndSize(<char *>self.data, self.size)
        self.size = 0
        return result


cdef class Strings:
    """Arrow's layout of byte strings: int32 offsets, bytes, and a bit for each row, 0 for null."""

    cdef Buffer offsets, data, bits
    cdef Py_ssize_t rows, nulls

    def __init__(self):
        self.offsets, self.data, self.bits = Buffer(), Buffer(), Buffer()
        self.start()

    cdef int start(self) except -1:
        self.rows = self.nulls = 0
        self.offsets.add_int32(0)
        return 0

    cdef int add(self, const uint8_t *at, int32_t length) except -1:
        if self.rows % 8 == 0:
            self.bits.more(1)[0] = 0
        if length >= 0:
            self.bits.data[self.rows // 8] |= 1 << (self.rows % 8)
            self.data.add(at, length)
        else:
            self.nulls += 1
        self.rows += 1
        self.offsets.add_int32(<int32_t>self.data.size)
        return 0

    cdef tuple take(self):
        result = (self.rows, self.nulls, self.bits.take(), self.offsets.take(), self.data.take())
        self.start()
        return result


cdef class Columns:
    """The columns of some records: `add` batches, `take` the buffers.

    `wanted` names some of key, value, offset, timestamp, timestampType and headers. `take` returns
    the buffers by column name. offset and timestamp (microseconds) are bytes of int64 numbers,
    timestampType is bytes of int32 numbers. key and value are tuples (rows, nulls, bitmap, offsets,
    data). headers is a tuple (list bitmap, nulls, list offsets, keys, values), whose keys and
    values are tuples like the column key.
    """

    cdef bint key, value, offset, timestamp, kind, header
    cdef Strings keys, values, header_keys, header_values
    cdef Buffer offsets, timestamps, kinds, header_bits, header_offsets
    cdef Py_ssize_t header_nulls
    cdef readonly Py_ssize_t rows

    def __init__(self, wanted):
        self.key, self.value, self.offset = "key" in wanted, "value" in wanted, "offset" in wanted
        self.timestamp, self.kind = "timestamp" in wanted, "timestampType" in wanted
        self.header = "headers" in wanted
        self.keys, self.values = Strings(), Strings()
        self.header_keys, self.header_values = Strings(), Strings()
        self.offsets, self.timestamps, self.kinds = Buffer(), Buffer(), Buffer()
        self.header_bits, self.header_offsets = Buffer(), Buffer()
        self.rows = self.header_nulls = 0
        self.header_offsets.add_int32(0)

    @property
    def size(self):
        """Bytes of keys, values and headers so far."""
        return (self.keys.data.size + self.values.data.size + self.header_keys.data.size
                + self.header_values.data.size)

    def add(self, const uint8_t[::1] data not None, int64_t start, int64_t end):
        """Add those records of one whole batch that have start <= offset < end; returns how many.

        Raises CorruptMessage if the batch is damaged.
        """
        cdef const uint8_t *batch
        cdef const uint8_t *at
        cdef const uint8_t *stop
        cdef const uint8_t[::1] plain
        cdef Walk walk
        cdef Flaw flaw
        cdef Py_ssize_t before = self.rows
        cdef int codec
        if data.shape[0] < header.HEADER_SIZE or header.total_size(&data[0]) != data.shape[0]:
            raise CorruptMessage(f"the {data.shape[0]} bytes are not exactly one record batch")
        batch = &data[0]
        codec = header.attributes(batch) & header.CODEC_MASK
        header.check_crc(batch, data.shape[0])
        if not header.record_count(batch):
            return 0
        at, stop = batch + header.RECORDS_AT, batch + data.shape[0]
        if codec:
            plain = decompress(codec, PyMemoryView_FromMemory(
                <char *>at, stop - at, PyBUF_READ), DECOMPRESSED_MAX)
            at = &plain[0] if plain.shape[0] else NULL
            stop = at + plain.shape[0]
        memset(&walk, 0, sizeof(walk))
        walk.base_timestamp = header.base_timestamp(batch)
        walk.gaps = True
        walk.size_max = INT32_MAX
        walk.last_offset_delta = header.last_offset_delta(batch)
        flaw = walk_records(at, stop, header.record_count(batch), &walk)
        if flaw != SOUND:
            raise CorruptMessage(
                f"record {walk.index} of the batch at offset {header.base_offset(batch)}: "
                f"{flaw_text(flaw)}")
        self.fill(batch, at, stop, start, end)
        return self.rows - before

    cdef int fill(self, const uint8_t *batch, const uint8_t *at, const uint8_t *stop,
                  int64_t start, int64_t end) except -1:
        # `add` has checked every length (`walk_records`), so reads cannot go beyond `stop`.
        cdef int64_t base = header.base_offset(batch), delta = 0, offset
        cdef int64_t base_time = header.base_timestamp(batch)
        cdef int32_t left = header.record_count(batch), length = 0, offset_delta = 0
        cdef bint append_time = (header.attributes(batch) & header.LOG_APPEND_TIME) != 0
        cdef const uint8_t *record_end
        while left:
            left -= 1
            at = read_varint(at, stop, &length)
            record_end = at + length
            at = read_varlong(at + 1, record_end, &delta)
            at = read_varint(at, record_end, &offset_delta)
            offset = base + offset_delta
            if offset < start or offset >= end:
                at = record_end
                continue
            if self.offset:
                self.offsets.add_int64(offset)
            if self.timestamp:
                self.timestamps.add_int64(
                    1000 * (header.max_timestamp(batch) if append_time else base_time + delta))
            if self.kind:
                self.kinds.add_int32(append_time)
            at = read_varint(at, record_end, &length)
            if self.key:
                self.keys.add(at, length)
            at += max(length, 0)
            at = read_varint(at, record_end, &length)
            if self.value:
                self.values.add(at, length)
            at += max(length, 0)
            if self.header:
                self.add_headers(at, record_end)
            at = record_end
            self.rows += 1
        return 0

    cdef int add_headers(self, const uint8_t *at, const uint8_t *end) except -1:
        cdef int32_t count = 0, length = 0
        at = read_varint(at, end, &count)
        if self.rows % 8 == 0:
            self.header_bits.more(1)[0] = 0
        if count:                               # no headers: null, as in Spark's own source
            self.header_bits.data[self.rows // 8] |= 1 << (self.rows % 8)
        else:
            self.header_nulls += 1
        while count:
            count -= 1
            at = read_varint(at, end, &length)
            self.header_keys.add(at, length)
            at += length
            at = read_varint(at, end, &length)
            self.header_values.add(at, length)
            at += max(length, 0)
        self.header_offsets.add_int32(<int32_t>self.header_keys.rows)
        return 0

    def take(self):
        """The number of rows, and the buffers of the columns by name; empties the columns."""
        columns = {}
        if self.offset:
            columns["offset"] = self.offsets.take()
        if self.timestamp:
            columns["timestamp"] = self.timestamps.take()
        if self.kind:
            columns["timestampType"] = self.kinds.take()
        if self.key:
            columns["key"] = self.keys.take()
        if self.value:
            columns["value"] = self.values.take()
        if self.header:
            columns["headers"] = (self.header_bits.take(), self.header_nulls,
                                  self.header_offsets.take(), self.header_keys.take(),
                                  self.header_values.take())
            self.header_offsets.add_int32(0)
        rows, self.rows, self.header_nulls = self.rows, 0, 0
        return rows, columns
