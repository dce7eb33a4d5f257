# Checks the records of a batch, above all every length, without creating Python objects.

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum Flaw:
    SOUND, LENGTH, NUMBER, OFFSET, HEADERS, EXCESS, TRAILING, TIMESTAMP, NULL_KEY, TOO_LARGE


cdef struct Walk:
    # in
    int64_t base_timestamp
    int64_t earliest            # bounds of timestamps; -1 (no timestamp) is always allowed
    int64_t latest
    bint check_timestamps
    bint compacted              # every record needs a key
    int32_t last_offset_delta
    int32_t size_max            # of a record, without its length field
    bint gaps                   # offsets may be missing, as after compaction
    # out
    int64_t max_timestamp
    int32_t max_timestamp_at    # offset delta of the first record that has it
    int32_t index               # of the record at which the check stopped
    int64_t timestamp           # of that record, if its flaw is TIMESTAMP
    bint without_timestamp      # at least one record has none


cdef Flaw walk_records(
    const uint8_t *at, const uint8_t *end, int32_t count, Walk *walk) noexcept nogil
cdef str flaw_text(Flaw flaw)
