# cython: boundscheck=False, wraparound=False
"""Reads records from batches, and builds new batches.

Coordinators, the metadata log, conversions of old message formats, tools and tests use this module;
produced batches of format v2 are stored without being rebuilt. References: KIP-98 for message
format v2 and control records; KIP-534 for the delete horizon.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t

cimport ottla.wire.batch as header
from ottla.wire.byteorder cimport store_int16, store_int32, store_int64
from ottla.wire.checksum cimport crc32c
from ottla.wire.codec cimport Writer
from ottla.wire.record_walk cimport SOUND, Flaw, Walk, flaw_text, walk_records
from ottla.wire.varint cimport read_varint, read_varlong

from enum import IntEnum

from ottla.wire.batch import DECOMPRESSED_SIZE_MAX, TimestampType
from ottla.wire.errors import CorruptMessage, InvalidRecord


class ControlType(IntEnum):
    """The effect of a control record on its producer's transaction."""

    ABORT = 0
    COMMIT = 1


cdef class Record:
    """One record: offset, timestamp in ms (-1 none), key and value (None is null), headers.

    If the offset is -1, `build_batch` gives the record the offset after the previous record's.
    """

    def __init__(
        self, int64_t offset=-1, int64_t timestamp=-1, bytes key=None, bytes value=None, headers=()
    ):
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = tuple(headers)

    cdef tuple fields(self):
        return self.offset, self.timestamp, self.key, self.value, self.headers

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return self.fields() == (<Record>other).fields()

    def __hash__(self):
        return hash(self.fields())

    def __repr__(self):
        return "Record(offset={}, timestamp={}, key={!r}, value={!r}, headers={!r})".format(
            *self.fields())


# --- reading ----------------------------------------------------------------------------------


cdef int check_stored(const uint8_t *at, Py_ssize_t size) except -1:
    """Checks that this is one whole batch of format v2 with a valid checksum."""
    cdef Py_ssize_t wanted
    if size < header.HEADER_SIZE:
        raise CorruptMessage(f"{size} bytes are too few for a record batch")
    wanted = header.total_size(at)
    if wanted != size:
        raise CorruptMessage(f"a batch declares a size of {wanted} bytes, but has {size} bytes")
    if header.magic(at) != 2:
        raise CorruptMessage(
            f"the message format is v{header.magic(at)}, expected a record batch (v2)")
    header.check_crc(at, size)
    if header.record_count(at) < 0 or header.last_offset_delta(at) < 0:
        raise InvalidRecord(
            f"the batch at offset {header.base_offset(at)} has record count "
            f"{header.record_count(at)} and last offset delta {header.last_offset_delta(at)}: "
            "neither may be negative")
    return 0


cdef object take_bytes(const uint8_t **cursor, const uint8_t *end):
    """The next bytes with a length prefix, which `walk_records` has checked."""
    cdef int32_t length
    cursor[0] = read_varint(cursor[0], end, &length)
    if length < 0:
        return None
    cursor[0] += length
    return PyBytes_FromStringAndSize(<const char *>(cursor[0] - length), length)


cdef tuple take_headers(const uint8_t **cursor, const uint8_t *end):
    cdef int32_t count, length
    cdef list headers = []
    cdef str key
    cursor[0] = read_varint(cursor[0], end, &count)
    while count:
        count -= 1
        cursor[0] = read_varint(cursor[0], end, &length)
        key = PyUnicode_DecodeUTF8(<const char *>cursor[0], length, "surrogateescape")
        cursor[0] += length
        headers.append((key, take_bytes(cursor, end)))
    return tuple(headers)


cdef enum:
    RECORDS_A_TURN = 1000


cdef list decode(const uint8_t *batch, const uint8_t *at, const uint8_t *end):
    cdef int32_t count = header.record_count(batch), delta
    cdef int64_t timestamp
    cdef bint appended = (header.attributes(batch) & header.LOG_APPEND_TIME) != 0
    cdef Record record
    cdef list records = []
    while count:
        count -= 1
        if count % RECORDS_A_TURN == 0:
            with nogil:
                pass            # lets other threads run: many records take long
        at = read_varint(at, end, &delta)                   # the record's length
        at = read_varlong(at + 1, end, &timestamp)
        at = read_varint(at, end, &delta)
        record = Record.__new__(Record)
        record.offset = header.base_offset(batch) + delta
        record.timestamp = header.base_timestamp(batch) + timestamp
        if appended:
            record.timestamp = header.max_timestamp(batch)
        record.key = take_bytes(&at, end)
        record.value = take_bytes(&at, end)
        record.headers = take_headers(&at, end)
        records.append(record)
    assert at == end, "the checked records did not end at the end of the batch"
    return records


def read_records(const uint8_t[::1] data not None, int64_t size_max=DECOMPRESSED_SIZE_MAX):
    """The records of exactly one batch, of any codec, as a list."""
    cdef Py_ssize_t size = data.shape[0]
    cdef const uint8_t *batch = &data[0] if size else NULL
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef const uint8_t[::1] plain
    cdef Walk walk
    cdef Flaw flaw
    check_stored(batch, size)
    at, end = batch + header.RECORDS_AT, batch + size
    if header.attributes(batch) & header.CODEC_MASK and header.record_count(batch):
        from ottla.wire.compression import decompress
        plain = decompress(
            header.attributes(batch) & header.CODEC_MASK,
            PyMemoryView_FromMemory(<char *>at, end - at, PyBUF_READ), size_max)
        at = &plain[0] if plain.shape[0] else NULL
        end = at + plain.shape[0]
    walk.base_timestamp = header.base_timestamp(batch)
    walk.check_timestamps = walk.compacted = False
    walk.gaps = True
    walk.size_max = INT32_MAX
    walk.last_offset_delta = header.last_offset_delta(batch)
    flaw = walk_records(at, end, header.record_count(batch), &walk)
    if flaw != SOUND:
        raise InvalidRecord(
            f"batch at offset {header.base_offset(batch)}, record {walk.index} of "
            f"{header.record_count(batch)}: {flaw_text(flaw)}")
    return decode(batch, at, end)


# --- building ---------------------------------------------------------------------------------


cdef int write_bytes(Writer writer, bytes value) except -1:
    if value is None:
        return writer.write_varlong(-1)
    writer.write_varlong(len(value))
    return writer.write_raw(<const char *>value, len(value))


cdef int write_record(
    Writer writer, Writer scratch, Record record, int64_t timestamp_delta, int64_t offset_delta
) except -1:
    scratch.size = 0
    scratch.write_int8(0)                                   # attributes, none are defined
    scratch.write_varlong(timestamp_delta)
    scratch.write_varlong(offset_delta)
    write_bytes(scratch, record.key)
    write_bytes(scratch, record.value)
    scratch.write_varlong(len(record.headers))
    for key, value in record.headers:
        write_bytes(scratch, (<str>key).encode("utf-8", "surrogateescape"))
        write_bytes(scratch, value)
    writer.write_varlong(scratch.size)
    return writer.write_raw(scratch.data, scratch.size)


def build_batch(
    records, *, int64_t base_offset=0, int codec=0, level=None, int64_t producer_id=-1,
    int16_t producer_epoch=-1, int32_t base_sequence=-1, bint transactional=False,
    bint control=False, int32_t leader_epoch=-1, int timestamp_type=TimestampType.CREATE_TIME,
    last_offset=None, max_timestamp=None, delete_horizon_ms=None,
):
    """One batch of these records, as bytes."""
    cdef Writer writer = Writer(), scratch = Writer()
    cdef Record record
    cdef int64_t base_timestamp = -1, latest = -1, delta = -1, offset
    cdef int32_t count = 0
    cdef uint8_t *batch
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    for record in records:
        if count == 0 and delete_horizon_ms is None:
            base_timestamp = record.timestamp
        offset = base_offset + delta + 1 if record.offset < 0 else record.offset
        if not delta < offset - base_offset <= 0x7fffffff:
            raise ValueError(
                f"record offset {offset} does not follow offset {base_offset + delta}")
        delta = offset - base_offset
        latest = max(latest, record.timestamp)
        write_record(writer, scratch, record, record.timestamp - base_timestamp, delta)
        count += 1
    if last_offset is not None:
        if not delta <= last_offset - base_offset <= 0x7fffffff:
            raise ValueError(
                f"last offset {last_offset} is below record offset {base_offset + delta}")
        delta = last_offset - base_offset
    elif count == 0:
        raise ValueError("a batch without records needs a last offset")
    assert count <= delta + 1, "the batch has more records than offsets"
    body = writer.getvalue()
    if codec and count:
        from ottla.wire.compression import compress
        body = compress(codec, body, level)
    writer.size = 0
    batch = writer.more(header.HEADER_SIZE)
    header.set_base_offset(batch, base_offset)
    store_int32(batch + header.LENGTH_AT, header.HEADER_SIZE - header.LOG_OVERHEAD + len(body))
    header.set_leader_epoch(batch, leader_epoch)
    batch[header.MAGIC_AT] = 2
    header.set_attributes(
        batch, codec | timestamp_type << 3 | transactional << 4 | control << 5
        | (delete_horizon_ms is not None) << 6)
    store_int32(batch + header.LAST_OFFSET_DELTA_AT, delta)
    store_int64(batch + header.BASE_TIMESTAMP_AT, base_timestamp)
    header.set_max_timestamp(batch, latest if max_timestamp is None else max_timestamp)
    store_int64(batch + header.PRODUCER_ID_AT, producer_id)
    store_int16(batch + header.PRODUCER_EPOCH_AT, producer_epoch)
    store_int32(batch + header.BASE_SEQUENCE_AT, base_sequence)
    store_int32(batch + header.RECORD_COUNT_AT, count)
    writer.write_raw(<const char *>(<bytes>body), len(body))
    assert header.total_size(writer.data) == writer.size, "the length field is wrong"
    header.set_crc(writer.data, crc32c(
        writer.data + header.ATTRIBUTES_AT, writer.size - header.ATTRIBUTES_AT))
    return writer.getvalue()


# --- control records --------------------------------------------------------------------------
# key:   | version int16 | type int16 |
# value: | version int16 | coordinator epoch int32 |


def build_marker(
    control_type, *, int64_t producer_id, int16_t producer_epoch, int32_t coordinator_epoch,
    int64_t timestamp, int64_t base_offset=0, int32_t leader_epoch=-1,
):
    """The batch that ends a producer's transaction in one partition."""
    cdef bytes key = (0).to_bytes(2, "big") + int(control_type).to_bytes(2, "big")
    cdef bytes value = (0).to_bytes(2, "big") + coordinator_epoch.to_bytes(4, "big", signed=True)
    return build_batch(
        [Record(-1, timestamp, key, value)], base_offset=base_offset, producer_id=producer_id,
        producer_epoch=producer_epoch, transactional=True, control=True, leader_epoch=leader_epoch)


def control_type(Record record not None):
    """The type of a control batch's record; None for a type unrelated to transactions."""
    if record.key is None or len(record.key) < 4:
        raise InvalidRecord(f"the control record at offset {record.offset} has no type")
    if record.key[2:4] == b"\x00\x00":
        return ControlType.ABORT
    return ControlType.COMMIT if record.key[2:4] == b"\x00\x01" else None


def coordinator_epoch(Record record not None):
    """The epoch of the coordinator that wrote this transaction marker."""
    if record.value is None or len(record.value) < 6:
        raise InvalidRecord(f"the marker at offset {record.offset} has no coordinator epoch")
    return int.from_bytes(record.value[2:6], "big", signed=True)
