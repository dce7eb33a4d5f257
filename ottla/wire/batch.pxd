# Record batch, format v2, as stored and as sent (big-endian). The checksum does not cover
# base_offset and leader_epoch, so that the leader can set them without a new checksum.
#
#   0             8        12             16      17    21           23                  27
#   | base_offset | length | leader_epoch | magic | crc | attributes | last_offset_delta | ...
#                                                       '-------- crc32c covers from here to the end
#   27               35              43            51               53              57
#   | base_timestamp | max_timestamp | producer_id | producer_epoch | base_sequence | record_count |
#   61
#   | records ...
#
# length counts the bytes after itself: a batch takes 12 + length bytes. Attributes, from the
# lowest bit: 0-2 codec, 3 timestamp type (1 = LogAppendTime), 4 transactional, 5 control, 6 delete
# horizon set (then base_timestamp is the horizon).

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from ottla.wire.byteorder cimport (
    load_int16, load_int32, load_int64, store_int16, store_int32, store_int64,
)

cdef enum:
    LENGTH_AT = 8
    LEADER_EPOCH_AT = 12
    MAGIC_AT = 16
    CRC_AT = 17
    ATTRIBUTES_AT = 21
    LAST_OFFSET_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    PRODUCER_EPOCH_AT = 51
    BASE_SEQUENCE_AT = 53
    RECORD_COUNT_AT = 57
    RECORDS_AT = 61
    LOG_OVERHEAD = 12                   # base_offset and length, not included in length
    HEADER_SIZE = 61
    CODEC_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    DELETE_HORIZON = 0x40


cdef inline int64_t base_offset(const uint8_t *batch) noexcept nogil:
    return load_int64(batch)


cdef inline int32_t total_size(const uint8_t *batch) noexcept nogil:
    return load_int32(batch + LENGTH_AT) + LOG_OVERHEAD


cdef inline int32_t leader_epoch(const uint8_t *batch) noexcept nogil:
    return load_int32(batch + LEADER_EPOCH_AT)


cdef inline int8_t magic(const uint8_t *batch) noexcept nogil:
    return <int8_t>batch[MAGIC_AT]


cdef inline uint32_t crc(const uint8_t *batch) noexcept nogil:
    return <uint32_t>load_int32(batch + CRC_AT)


cdef inline int16_t attributes(const uint8_t *batch) noexcept nogil:
    return load_int16(batch + ATTRIBUTES_AT)


cdef inline int32_t last_offset_delta(const uint8_t *batch) noexcept nogil:
    return load_int32(batch + LAST_OFFSET_DELTA_AT)


cdef inline int64_t last_offset(const uint8_t *batch) noexcept nogil:
    return load_int64(batch) + load_int32(batch + LAST_OFFSET_DELTA_AT)


cdef inline int64_t base_timestamp(const uint8_t *batch) noexcept nogil:
    return load_int64(batch + BASE_TIMESTAMP_AT)


cdef inline int64_t max_timestamp(const uint8_t *batch) noexcept nogil:
    return load_int64(batch + MAX_TIMESTAMP_AT)


cdef inline int64_t producer_id(const uint8_t *batch) noexcept nogil:
    return load_int64(batch + PRODUCER_ID_AT)


cdef inline int16_t producer_epoch(const uint8_t *batch) noexcept nogil:
    return load_int16(batch + PRODUCER_EPOCH_AT)


cdef inline int32_t base_sequence(const uint8_t *batch) noexcept nogil:
    return load_int32(batch + BASE_SEQUENCE_AT)


cdef inline int32_t last_sequence(const uint8_t *batch) noexcept nogil:
    # Sequences wrap from 2^31 - 1 to 0.
    if base_sequence(batch) < 0:
        return base_sequence(batch)
    return <int32_t>((<int64_t>base_sequence(batch) + last_offset_delta(batch)) & 0x7fffffff)


cdef inline int32_t record_count(const uint8_t *batch) noexcept nogil:
    return load_int32(batch + RECORD_COUNT_AT)


cdef inline void set_base_offset(uint8_t *batch, int64_t offset) noexcept nogil:
    store_int64(batch, offset)


cdef inline void set_total_size(uint8_t *batch, int32_t size) noexcept nogil:
    store_int32(batch + LENGTH_AT, size - LOG_OVERHEAD)


cdef inline void set_leader_epoch(uint8_t *batch, int32_t epoch) noexcept nogil:
    store_int32(batch + LEADER_EPOCH_AT, epoch)


cdef inline void set_max_timestamp(uint8_t *batch, int64_t timestamp) noexcept nogil:
    store_int64(batch + MAX_TIMESTAMP_AT, timestamp)


cdef inline void set_attributes(uint8_t *batch, int16_t value) noexcept nogil:
    store_int16(batch + ATTRIBUTES_AT, value)


cdef inline void set_crc(uint8_t *batch, uint32_t value) noexcept nogil:
    store_int32(batch + CRC_AT, <int32_t>value)


cdef class BatchLimits:
    # A topic's limits for batches; one object may be used for any number of calls.
    cdef public int64_t batch_size_max
    cdef public int64_t decompressed_size_max
    cdef public int64_t now_ms
    cdef public int64_t timestamp_before_ms_max
    cdef public int64_t timestamp_after_ms_max
    cdef public bint log_append_time            # message.timestamp.type
    cdef public bint compacted                  # cleanup.policy compact: records need keys
    cdef public bint zstd                       # False for Produce below version 7
    # bytes of one record after decompression; uncompressed batches have no limit for records
    cdef public int32_t record_size_max
    cdef public int codec                       # compression.type; -1 keeps the producer's
    cdef public object level                    # compression level; None is the codec's default
    # Properties of the last checked batch; valid after check_batch has returned.
    cdef readonly int32_t offset_delta_of_max_timestamp
    cdef readonly int64_t max_timestamp
    # decompressed records, if the batch is to be recompressed
    cdef object plain

    cdef BatchLimits copy(self)
    cdef int64_t room_for(self, int32_t count)


cdef inline bint to_recompress(const uint8_t *batch, BatchLimits limits) noexcept:
    # Whether a checked batch has another codec than the topic requires.
    return limits.codec >= 0 and attributes(batch) & CODEC_MASK != limits.codec


cdef int check_crc(const uint8_t *batch, Py_ssize_t size) except -1
cdef Py_ssize_t one_batch(const uint8_t *records, Py_ssize_t size, bint zstd) except -1
cdef Py_ssize_t whole_batch(const uint8_t *batch, Py_ssize_t size) except -1
cdef int check_batch(uint8_t *batch, Py_ssize_t size, BatchLimits limits) except -1
cdef bytearray recompressed(const uint8_t *batch, Py_ssize_t size, BatchLimits limits)
cdef int restamp(uint8_t *batch, Py_ssize_t size, int64_t now_ms) except -1
