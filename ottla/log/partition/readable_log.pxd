# The state of one partition's log. Only this class and its subclasses assign it.
#
# Invariant: log_start_offset <= log_end_offset; recovery_point <= log_end_offset, unless the log is
# damaged.

from libc.stdint cimport int32_t, int64_t

from ottla.log.files.clock cimport Clock
from ottla.log.files.open_files cimport OpenFiles
from ottla.log.files.producers cimport Producers
from ottla.log.partition.chain cimport LogSlice, SegmentChain
from ottla.log.partition.health cimport LogHealth
from ottla.log.partition.rest_state cimport RestState
from ottla.log.partition.unflushed cimport Unflushed


cdef class ReadableLog:
    cdef readonly object disk
    cdef readonly Clock clock
    cdef readonly object config
    cdef OpenFiles open_files
    cdef readonly str directory
    cdef readonly bytes topic_id                # None if it is not known
    cdef readonly int64_t log_start_offset
    cdef readonly int64_t log_end_offset
    cdef readonly int64_t first_dirty_offset    # a cleaner has processed everything below
    cdef readonly int32_t latest_epoch          # -1 if there is none
    cdef readonly bint copied_gaps              # a leader's compaction has left gaps in the offsets
    cdef readonly bint duplicate                # whether the last `append` got a duplicate
    cdef readonly int64_t flush_messages        # how many offsets may be appended without a flush
    cdef readonly LogHealth health
    cdef readonly object expected_aborted       # sizes of the transaction indexes, from the last
                                                #   checkpoint
    cdef object reread                          # the Reread that `wake` has asked for, or None
    # None once the files have been read; until then, the objects from `chain` on are None
    cdef RestState at_rest
    cdef SegmentChain chain
    cdef object _epochs
    cdef Producers _producers
    cdef object snapshots                       # SnapshotFiles
    cdef Unflushed unflushed
    cdef bint changed                           # whether the log has changed since the last `seal`

    cpdef int wake(self, bint patient=*) except -1
    cdef bint appends_at_once(self) noexcept
    cdef int load(self, checkpoint, bint clean, bint patient) except -1
    cdef int64_t durable_offset(self) noexcept
    cdef int check_offsets(self) except -1
    cdef int64_t forgotten_ms(self) except? -1
    cdef LogSlice read(self, int64_t offset, Py_ssize_t size_max, bint at_least_one,
                       int64_t upto_offset, bint patient)
    cdef int begin_epoch(self, int32_t epoch, int64_t start_offset=*) except -1
    cpdef int64_t stable_offset(self, int64_t high_watermark) except -1
