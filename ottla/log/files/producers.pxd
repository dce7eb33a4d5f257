# The state of a partition's idempotent and transactional producers.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

cdef enum:
    WINDOW = 5                          # batches that a producer may have in flight (KIP-98)


cdef class ProducerState:
    cdef readonly int64_t producer_id
    cdef readonly int16_t epoch
    # of the last transaction marker, -1 before the first marker
    cdef readonly int32_t coordinator_epoch
    cdef readonly int64_t last_timestamp
    cdef readonly int64_t transaction_start     # first offset of the open transaction, -1 for none
    cdef readonly int64_t marked_at             # offset of the newest marker read or written since
                                                #   the log was opened, or -1
    cdef bint restored                          # the window comes from a snapshot, which has only
                                                #   the last batch
    cdef readonly int kept                      # batches in the window, the newest last
    cdef int32_t last_sequences[WINDOW]
    cdef int64_t last_offsets[WINDOW]
    cdef int32_t offset_deltas[WINDOW]
    cdef int64_t timestamps[WINDOW]

    cdef void push(self, int32_t last_sequence, int64_t last_offset, int32_t offset_delta,
                   int64_t timestamp) noexcept


cdef class Producers:
    cdef dict states                            # producer id to ProducerState
    cdef dict open_transactions                 # producer id to first offset, oldest first
    cdef dict unwritten                         # producer id to (epoch, first sequence, timestamp)
                                                #   of its earliest refused batch
    cdef int64_t repeated_timestamp             # timestamp of the last duplicate found by `check`
    # (first offset, marker's offset) of transactions whose markers may not be replicated yet
    cdef list unreplicated

    cdef int64_t check(self, const uint8_t *batch) except -2
    cdef int64_t check_unknown(self, const uint8_t *batch) except -2
    cdef int note_unwritten(self, const uint8_t *batch) except -1
    cdef int take_unwritten(self, Producers other) except -1
    cdef int64_t check_transactional(self, const uint8_t *batch, ProducerState state) except -2
    cdef tuple update(self, const uint8_t *batch, Py_ssize_t size)
    cdef tuple end_transaction(self, const uint8_t *batch, Py_ssize_t size, ProducerState state)
    cdef int64_t first_unstable(self, int64_t high_watermark) except -2
    cdef int64_t first_open(self) except -2
    cdef int64_t first_known(self, int64_t producer_id) except -2
