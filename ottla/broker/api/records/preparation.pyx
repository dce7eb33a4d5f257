# cython: boundscheck=False, wraparound=False
"""Prepares a partition's produced records for the log: checks them, and converts them to format v2
and to the topic's codec.

Small batches are prepared on the loop. A thread does whatever may take longer than LOOP_US_MAX
microseconds. The codecs release the interpreter lock, so other clients are served meanwhile, and
several cores can compress. Passing a batch to a thread and back costs about 100 µs. The
uncompressed size of a batch is known only during its decompression. If the size reaches the loop's
limit, the decompression on the loop stops, and a thread prepares the batch.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t

from ottla.wire.batch cimport (
    BatchLimits, CODEC_MASK, HEADER_SIZE, MAGIC_AT, attributes, check_batch, magic, recompressed,
    to_recompress,
)

from ottla.wire.compression import LZ4_LEVEL_DEFAULT, Codec, TooMuchInside
from ottla.wire.errors import InvalidRecord, MessageTooLarge
from ottla.wire.legacy import codec_of, up_convert

cdef enum:
    LEGACY_BELOW = 3            # Produce versions below this one have message sets v0 and v1
    LEGACY_ATTRIBUTES_AT = 17
    PACKED_ON_LOOP_MAX = 262_144    # a larger compressed batch is not tried on the loop

LATER = object()
"""The result of prepare_on_loop for batches that need a thread."""
LOOP_US_MAX = 500

NS_PER_BYTE = {
    "gzip": ((6, 20), (9, 70)),
    "snappy": ((None, 3),),
    "lz4": ((None, 3),),
    "zstd": ((5, 5), (12, 30), (22, 500)),
}
"""For each codec, pairs (level, ns): at this level or below, the compression of one byte of records
takes `ns` nanoseconds. The level None stands for all levels."""
NS_PER_BYTE_OF_LZ4_HC = 80
"""The nanoseconds that it takes to compress one byte of records with lz4 at any level but the
default. The default level selects the fast compressor (KIP-390)."""


cdef int codec_of_topic(config) except -2:
    """The codec of a topic's compression.type, -1 for the producer's codec."""
    if config.compression_type == "producer":
        return -1
    if config.compression_type == "uncompressed":
        return 0
    return Codec[config.compression_type.upper()]


cdef object level_of_topic(config):
    """The compression level of the topic's codec, None if the codec has no levels."""
    return getattr(config, f"compression_{config.compression_type}_level", None)


def room_on_loop(config):
    """The number of bytes of records that can be compressed on the loop in LOOP_US_MAX."""
    level = level_of_topic(config)
    cost = 1                            # ns per byte to decompress and check records
    if config.compression_type == "lz4" and level != LZ4_LEVEL_DEFAULT:
        cost = NS_PER_BYTE_OF_LZ4_HC
    else:
        for level_max, cost in NS_PER_BYTE.get(config.compression_type, ()):
            if level is None or level_max is None or level <= level_max:
                break
    return LOOP_US_MAX * 1000 // cost


cdef class TopicLimits:
    def __init__(self, config):
        self.config = config
        self.room_on_loop = room_on_loop(config)
        self.limits = BatchLimits(
            batch_size_max=config.max_message_bytes,
            record_size_max=config.max_decompressed_message_bytes,
            timestamp_before_ms_max=config.message_timestamp_before_max_ms,
            timestamp_after_ms_max=config.message_timestamp_after_max_ms,
            log_append_time=config.message_timestamp_type == "LogAppendTime",
            compacted=config.compacts,
            codec=codec_of_topic(config), level=level_of_topic(config))


cdef bytearray prepared(uint8_t *records, Py_ssize_t size, int version, BatchLimits limits):
    """Check a partition's produced records. Returns the bytes to store instead of them, or None to
    store the records as they are. Raises the errors of check_batch and up_convert.
    """
    if version >= LEGACY_BELOW or (size > MAGIC_AT and magic(records) == 2):
        check_batch(records, size, limits)
        return recompressed(records, size, limits) if to_recompress(records, limits) else None
    return prepared_set(records, size, limits)


cdef bytearray prepared_set(uint8_t *records, Py_ssize_t size, BatchLimits limits):
    """Convert a message set v0 or v1 to one batch, then check and compress the batch.

    max.message.bytes limits the sent and the stored size, not the uncompressed size in between.
    """
    cdef int64_t size_max = limits.batch_size_max
    cdef int codec = limits.codec
    cdef object level = limits.level
    cdef bytearray made
    cdef uint8_t[::1] view
    message_set = <bytes>(<const char *>records)[:size]
    sent_codec = codec_of(message_set)
    if sent_codec and size > size_max:
        raise MessageTooLarge(
            f"a message has {size} bytes, but max.message.bytes allows only {size_max}")
    made = bytearray(up_convert(message_set, codec=0, size_max=limits.decompressed_size_max))
    if not made:
        raise InvalidRecord("the message set does not contain a complete message")
    if codec < 0:
        limits.codec, limits.level = sent_codec, None
    view = made
    try:
        if limits.codec:
            limits.batch_size_max = INT64_MAX
        check_batch(&view[0], view.shape[0], limits)
        limits.batch_size_max = size_max
        if to_recompress(&view[0], limits):
            return recompressed(&view[0], view.shape[0], limits)
        return made
    finally:
        limits.batch_size_max, limits.codec, limits.level = size_max, codec, level


cdef class Preparation:
    def run(self):
        """Prepare the records in a thread; this uses no other data of the broker."""
        try:
            self.stored = prepared(self.records, self.size, self.version, self.limits)
        except Exception as error:
            self.error = error

    cdef int raise_error(self) except -1:
        if self.error is not None:
            raise self.error
        return 0


cdef bint is_packed(const uint8_t *records, Py_ssize_t size) noexcept:
    """Whether the records are compressed, in any format; false for malformed records."""
    if size <= LEGACY_ATTRIBUTES_AT or (magic(records) == 2 and size < HEADER_SIZE):
        return False
    if magic(records) == 2:
        return attributes(records) & CODEC_MASK != 0
    return records[LEGACY_ATTRIBUTES_AT] & CODEC_MASK != 0


cdef object prepare_on_loop(
    uint8_t *records, Py_ssize_t size, int version, TopicLimits topic
):
    """Return the bytes to store instead of the records. Return None to store the records as they
    are, and LATER if a thread is needed."""
    cdef BatchLimits limits = topic.limits
    cdef int64_t room = topic.room_on_loop, size_max = limits.decompressed_size_max
    cdef bint packed = is_packed(records, size)
    if not packed and limits.codec <= 0:
        return prepared(records, size, version, limits)
    if size > room or (packed and size > PACKED_ON_LOOP_MAX):
        return LATER
    limits.decompressed_size_max = min(room, size_max)
    try:
        return prepared(records, size, version, limits)
    except TooMuchInside:
        return LATER
    finally:
        limits.decompressed_size_max = size_max
