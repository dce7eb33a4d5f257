# The parts of one log that are not durable yet.
#
# Invariant: checkpoint_offset <= recovery_point <= the log's end, unless the log is damaged.

from libc.stdint cimport int64_t

from ottla.log.partition.chain cimport SegmentChain
from ottla.log.partition.segment cimport Segment


cdef class Unflushed:
    cdef readonly int64_t recovery_point        # all batches below are durable
    # all batches below and their leader epochs are durable: recovery may begin here
    cdef readonly int64_t checkpoint_offset
    # monotonic time of the last flush, or of the opening of the log
    cdef readonly int64_t flushed_ms
    cdef list sealed                            # Segments that were sealed since the last flush
    cdef list paths                             # other files to sync in the next flush
    # directories in which names have changed, to sync in the next flush
    cdef list directories
    cdef list tasks                             # flushes under way, in the order of their start
    cdef object epochs_file                     # an EpochsFile, None before the first flush
    cdef bint has_epochs_file                   # the file leader-epoch-checkpoint exists

    cdef int note_names(self, str directory) except -1
    cdef int note_directory(self, str path) except -1
    cdef int note_sealed(self, Segment segment) except -1
    cdef int forget(self, Segment segment) except -1
    cdef int forget_all(self) except -1
    cdef int lower(self, int64_t offset) except -1
    cdef int restart(self, int64_t offset) except -1
    cdef int reached(self, task, epochs, int64_t now_ms) except -1
    cdef list touched(self, SegmentChain chain)
    cdef list files_to_sync(self, SegmentChain chain)
    cdef bint epochs_are_due(self, SegmentChain chain, epochs) except -1
