# One partition's log: the end grows by whole batches, the start moves forward as segments go.
#
# Invariant: log_start_offset <= log_end_offset, recovery_point <= log_end_offset.

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.clock cimport Clock
from ottla.log.disk cimport File
from ottla.log.open_files cimport OpenFiles
from ottla.log.producers cimport Producers
from ottla.log.segment cimport Segment


cdef class LogSlice:
    cdef readonly File file             # held open by the slice, even when the segment is deleted
    cdef readonly int64_t position      # of the first byte in the file
    cdef readonly Py_ssize_t size       # in bytes, 0 when there is nothing to read
    cdef readonly int64_t first_offset  # the one that was asked for
    cdef readonly bint ends_segment     # it stops where the segment does, not the log


cdef class PartitionLog:
    cdef readonly object disk
    cdef readonly Clock clock
    cdef readonly object config
    cdef OpenFiles open_files
    cdef readonly str directory
    cdef readonly bytes topic_id                # None where it is not known
    cdef readonly int64_t log_start_offset
    cdef readonly int64_t log_end_offset
    cdef readonly int64_t recovery_point        # all batches below are on the medium
    cdef readonly int64_t checkpoint_offset     # and their leader epochs: where recovery may begin
    cdef public int64_t first_dirty_offset      # below, a cleaner has seen every key
    cdef readonly int32_t latest_epoch          # -1 without
    cdef readonly bint duplicate                # whether the last append was a repetition
    cdef readonly str offline                   # why it takes no writes, None while it does
    cdef public object on_failure               # called with the reason once the log goes offline
    cdef readonly object damage                 # what recovery or a scrub found, None if nothing
    cdef int64_t readable_end                   # damage begins there; far away without
    cdef readonly int64_t flush_messages        # offsets that may be without a flush
    cdef readonly int64_t flushed_ms            # when the last flush ended, or the log was opened
    cdef bint at_rest                           # closed cleanly, and not read since: all below is
    cdef int64_t resting_bytes                  #   empty; its size then,
    cdef Py_ssize_t resting_segments            #   the number of its segments, which may be none,
    cdef int64_t resting_first_ms               #   and the first one's highest timestamp
    cdef list _segments                         # of Segment, ascending
    cdef object _epochs
    cdef Producers _producers
    cdef Segment active                         # the last of segments, None in an empty log
    cdef int64_t segment_bytes, segment_ms, offset_span_max
    cdef Py_ssize_t index_entries_max
    cdef bint changed                           # since the last seal
    cdef list unsynced                          # sealed segments not yet on the medium
    cdef bint has_epochs_file                   # there is a leader-epoch-checkpoint
    cdef list unsynced_files                    # paths of others that the next flush takes along
    cdef set unsynced_directories
    cdef public list unwritten                  # (segment, aborted transaction): no room yet
    cdef list flushes                           # that are under way
    cdef dict snapshots                         # offsets of those on disk, ascending

    cdef int awake(self) except -1
    cdef int64_t append(self, uint8_t *batch, Py_ssize_t size, int32_t leader_epoch) except -2
    cdef int append_as_follower(self, uint8_t *batch, Py_ssize_t size) except -1
    cdef int write(self, const uint8_t *batch, Py_ssize_t size, int64_t last_offset) except -1
    cdef bint must_roll(self, const uint8_t *batch, Py_ssize_t size, int64_t last_offset) except -1
    cdef LogSlice read(self, int64_t offset, Py_ssize_t size_max, bint at_least_one,
                       int64_t upto_offset)
    cdef Py_ssize_t segment_number(self, int64_t offset) except -2
    cdef int begin_epoch(self, int32_t epoch, int64_t start_offset=*) except -1
    cdef checked(self, bytearray batch)
    cpdef int64_t stable_offset(self, int64_t high_watermark) except -1
