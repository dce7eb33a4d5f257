# cython: boundscheck=False, wraparound=False
"""Message formats v0 and v1, converted to record batches (v2) when produced and back when fetched.

Clients before 0.11 know only these formats; the log holds only v2. v0 and v1 have no record
headers, producer ids or transactions, so these are missing from fetched records, as in Kafka. v0
has no timestamps either.

    | offset int64 | size int32 | crc | magic int8 | attributes int8 | timestamp int64, only in v1
    | key length int32 | key | value length int32 | value |

crc is CRC-32 from magic to the end. Attributes, from the lowest bit: 0-2 codec, 3 timestamp type. A
compressed set is the value of one message, which has the offset of the last message inside. In v0
the offsets inside are absolute; in v1 they count from 0. zstd is newer than both formats (KIP-110).
Kafka refuses zstd batches for these clients with error 76; Ottla sends the records as gzip, which
all these clients support. References: KIP-31, KIP-32; KAFKA-3160.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.pyport cimport PY_SSIZE_T_MAX
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from ottla.wire.byteorder cimport load_int32, load_int64, store_int32, store_int64
from ottla.wire.checksum cimport crc32
from ottla.wire.codec cimport Writer
from ottla.wire.records cimport Record

from ottla.wire.batch import DECOMPRESSED_SIZE_MAX, TimestampType, batches
from ottla.wire.compression import Codec, compress, decompress
from ottla.wire.errors import CorruptMessage, InvalidRecord, UnsupportedCompression
from ottla.wire.legacy_lz4 import with_right_checksum, with_wrong_checksum
from ottla.wire.records import build_batch

cdef enum:
    LOG_OVERHEAD = 12           # bytes of offset and size; the value of size excludes them
    MESSAGE_CRC_AT = 12
    MESSAGE_MAGIC_AT = 16
    MESSAGE_ATTRIBUTES_AT = 17
    MESSAGE_TIMESTAMP_AT = 18
    OVERHEAD_V0 = 14            # crc, magic, attributes and two lengths
    TIMESTAMP_SIZE = 8
    CODEC_BITS = 0x07
    APPEND_TIME_BIT = 0x08
    LZ4 = 3
    RECORDS_A_TURN = 1000       # then a thread lets other threads use the interpreter


cdef struct Message:
    int64_t offset
    int64_t timestamp           # -1 in v0
    int magic
    int attributes
    const uint8_t *key
    int32_t key_size            # -1 for null
    const uint8_t *value
    int32_t value_size
    const uint8_t *end


# --- reading ----------------------------------------------------------------------------------


cdef const uint8_t *read_bytes(
    const uint8_t *at, const uint8_t *end, const uint8_t **data, int32_t *size
) except NULL:
    if end - at < 4:
        raise InvalidRecord("a message is cut off inside its key or value")
    size[0] = load_int32(at)
    data[0] = at + 4
    if size[0] < -1 or size[0] > end - at - 4:
        raise InvalidRecord(f"a key or value claims {size[0]} bytes, but {end - at - 4} remain")
    return at + 4 + max(size[0], 0)


cdef bint read_message(const uint8_t *at, const uint8_t *end, Message *message) except -1:
    """Reads and checks the message at `at`; False if it is not complete."""
    cdef int32_t size
    if end - at < LOG_OVERHEAD:
        return False
    message.offset = load_int64(at)
    size = load_int32(at + 8)
    if size < OVERHEAD_V0:
        raise CorruptMessage(f"a message has {size} bytes, but the minimum is {int(OVERHEAD_V0)}")
    if size > end - at - LOG_OVERHEAD:
        return False
    end = at + LOG_OVERHEAD + size
    message.end = end
    if crc32(at + MESSAGE_MAGIC_AT, end - at - MESSAGE_MAGIC_AT) != <uint32_t>load_int32(
            at + MESSAGE_CRC_AT):
        raise CorruptMessage(f"message with offset {message.offset} does not match its checksum")
    message.magic = <int8_t>at[MESSAGE_MAGIC_AT]
    message.attributes = at[MESSAGE_ATTRIBUTES_AT]
    message.timestamp = -1
    if not 0 <= message.magic <= 1:
        raise CorruptMessage(f"a message has format v{message.magic}, expected v0 or v1")
    at += MESSAGE_TIMESTAMP_AT
    if message.magic == 1:
        if size < OVERHEAD_V0 + TIMESTAMP_SIZE:
            raise InvalidRecord(
                f"a message v1 has {size} bytes, but the minimum is "
                f"{int(OVERHEAD_V0 + TIMESTAMP_SIZE)}")
        message.timestamp = load_int64(at)
        at += TIMESTAMP_SIZE
    at = read_bytes(at, end, &message.key, &message.key_size)
    at = read_bytes(at, end, &message.value, &message.value_size)
    if at != end:
        raise InvalidRecord(f"{end - at} bytes follow a message's value")
    return True


cdef object copied(const uint8_t *data, int32_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char *>data, size)


cdef Record record_of(Message *message):
    cdef Record record = Record.__new__(Record)
    record.offset = message.offset
    record.timestamp = message.timestamp
    record.key = copied(message.key, message.key_size)
    record.value = copied(message.value, message.value_size)
    record.headers = ()
    return record


cdef list unpack(Message *wrapper, int64_t size_max):
    """The records inside a compressed message, with their offsets in the log."""
    cdef int codec = wrapper.attributes & CODEC_BITS
    cdef Message inner
    cdef Record record
    cdef const uint8_t[::1] view
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef list records = []
    if codec > LZ4:
        raise UnsupportedCompression(
            f"message format v{wrapper.magic} does not support codec {codec}")
    packed = copied(wrapper.value, wrapper.value_size)
    if not packed:
        raise InvalidRecord("a compressed message has no value")
    if codec == LZ4 and wrapper.magic == 0:
        packed = with_right_checksum(packed)
    view = plain = decompress(codec, packed, size_max)
    if not plain:
        raise InvalidRecord("a compressed message decompresses to no bytes")
    at = &view[0]
    end = at + view.shape[0]
    while at < end:
        if not read_message(at, end, &inner):
            raise InvalidRecord("a compressed message set is cut off inside a message")
        if inner.magic != wrapper.magic or inner.attributes & CODEC_BITS:
            raise InvalidRecord(
                f"a message v{inner.magic} with attributes {inner.attributes:#x} is inside a "
                f"compressed message v{wrapper.magic}, which may hold only uncompressed messages "
                "of its own format")
        if wrapper.attributes & APPEND_TIME_BIT:
            inner.timestamp = wrapper.timestamp
        records.append(record_of(&inner))
        at = inner.end
    assert at == end and records, "the messages do not fill the compressed set"
    if wrapper.magic == 1:
        for record in records:
            record.offset += wrapper.offset - inner.offset
    return records


cdef tuple unpack_produced(const uint8_t[::1] data, int64_t size_max):
    """A produced set's records and codec, and whether its timestamps are append times."""
    cdef const uint8_t *at = &data[0] if data.shape[0] else NULL
    cdef const uint8_t *end = at + data.shape[0]
    cdef Message message
    cdef int codec = 0, attributes = 0, magic = -1
    cdef list records = []
    while at < end and read_message(at, end, &message):
        if magic >= 0 and message.magic != magic:
            raise InvalidRecord(
                f"a message set has messages v{magic} and v{message.magic}, but may have only one "
                "format")
        if codec or records and message.attributes & CODEC_BITS:
            raise InvalidRecord("a message set has a compressed message and other messages")
        magic = message.magic
        codec = message.attributes & CODEC_BITS
        if magic == 1:
            attributes |= message.attributes
        if codec:
            records = unpack(&message, size_max)
        else:
            records.append(record_of(&message))
        at = message.end
    return records, codec, attributes & APPEND_TIME_BIT != 0


def read_message_set(const uint8_t[::1] data not None, *, int64_t size_max=DECOMPRESSED_SIZE_MAX):
    """The records of a message set v0 or v1, with their offsets in the log."""
    cdef const uint8_t *at = &data[0] if data.shape[0] else NULL
    cdef const uint8_t *end = at + data.shape[0]
    cdef Message message
    cdef list records = []
    while at < end and read_message(at, end, &message):
        if message.attributes & CODEC_BITS:
            records += unpack(&message, size_max)
        else:
            records.append(record_of(&message))
        at = message.end
    return records


def codec_of(const uint8_t[::1] data not None):
    """The codec of a produced message set v0 or v1; a compressed set is a single message."""
    return data[MESSAGE_ATTRIBUTES_AT] & CODEC_BITS if data.shape[0] > MESSAGE_ATTRIBUTES_AT else 0


def up_convert(data, *, size_max=DECOMPRESSED_SIZE_MAX, codec=None, level=None):
    """A produced message set as one record batch whose offsets start at 0."""
    cdef Record record
    if len(data) > MESSAGE_MAGIC_AT and data[MESSAGE_MAGIC_AT] == 2:
        return bytes(data)
    records, sent_codec, appended = unpack_produced(data, size_max)
    if not records:
        return b""
    for record in records:
        record.offset = -1                                  # the client's value is ignored
    return build_batch(
        records, codec=sent_codec if codec is None else codec, level=level,
        timestamp_type=TimestampType.LOG_APPEND_TIME if appended else TimestampType.CREATE_TIME)


# --- writing ----------------------------------------------------------------------------------


cdef uint8_t *write_bytes(uint8_t *at, bytes data) noexcept:
    cdef Py_ssize_t size
    if data is None:
        store_int32(at, -1)
        return at + 4
    size = len(data)
    store_int32(at, <int32_t>size)
    memcpy(at + 4, <const char *>data, size)
    return at + 4 + size


cdef int write_message(
    Writer writer, int magic, int attributes, int64_t offset, int64_t timestamp, bytes key,
    bytes value
) except -1:
    cdef Py_ssize_t size = OVERHEAD_V0 + (TIMESTAMP_SIZE if magic else 0)
    cdef uint8_t *message
    cdef uint8_t *at
    size += 0 if key is None else len(key)
    size += 0 if value is None else len(value)
    message = writer.more(LOG_OVERHEAD + size)
    store_int64(message, offset)
    store_int32(message + 8, <int32_t>size)
    message[MESSAGE_MAGIC_AT] = magic
    message[MESSAGE_ATTRIBUTES_AT] = attributes
    at = message + MESSAGE_TIMESTAMP_AT
    if magic:
        store_int64(at, timestamp)
        at += TIMESTAMP_SIZE
    at = write_bytes(write_bytes(at, key), value)
    assert at == message + LOG_OVERHEAD + size, "the message is not as long as its size field says"
    store_int32(message + MESSAGE_CRC_AT, <int32_t>crc32(
        message + MESSAGE_MAGIC_AT, LOG_OVERHEAD + size - MESSAGE_MAGIC_AT))
    return 0


cdef int pack(Writer writer, list records, int magic, int codec, int attributes) except -1:
    """Writes these records as a compressed message, which has the offset of the last record."""
    cdef Writer inner = Writer()
    cdef Record record, last = records[len(records) - 1]
    cdef int64_t base = (<Record>records[0]).offset if magic == 1 else 0
    cdef int64_t latest = -1
    for at, record in enumerate(records):
        if at % RECORDS_A_TURN == 0:
            with nogil:
                pass
        write_message(
            inner, magic, attributes, record.offset - base, record.timestamp, record.key,
            record.value)
        latest = max(latest, record.timestamp)
    packed = compress(codec, inner.getvalue())
    if codec == LZ4 and magic == 0:
        packed = with_wrong_checksum(packed)
    return write_message(writer, magic, attributes | codec, last.offset, latest, None, packed)


def down_convert(
    data, int magic, *, int64_t first_offset=0, size_max=DECOMPRESSED_SIZE_MAX,
    Py_ssize_t enough=PY_SSIZE_T_MAX
):
    """Stored batches as a message set v0 or v1."""
    cdef Writer writer = Writer()
    cdef Record record
    cdef int attributes, codec
    cdef list records
    if not 0 <= magic <= 1:
        raise ValueError(f"message format v{magic} is not supported: only v0 and v1 can be written")
    for batch in batches(data):
        if writer.size >= enough:
            break
        if batch.control:
            continue
        records = batch.records(size_max)
        # Compaction may have removed the batch's last records. If all that are left are below
        # first_offset, an answer with only this batch would not let the client advance.
        if not records or records[len(records) - 1].offset < first_offset:
            continue
        codec = batch.codec if batch.codec <= LZ4 else Codec.GZIP
        attributes = APPEND_TIME_BIT if magic and batch.timestamp_type else 0
        if codec:
            pack(writer, records, magic, codec, attributes)
            continue
        for at, record in enumerate(records):
            if at % RECORDS_A_TURN == 0:
                with nogil:
                    pass
            if record.offset >= first_offset:
                write_message(
                    writer, magic, attributes, record.offset, record.timestamp, record.key,
                    record.value)
    return writer.getvalue()
