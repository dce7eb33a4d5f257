# One cleaner pass over a log, and the segment that it writes.

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.compaction.key_table cimport KeyOffsets
from ottla.log.files.batch_scan cimport BatchScan
from ottla.log.files.clock cimport Clock
from ottla.log.partition.segment cimport Segment
from ottla.wire.codec cimport Writer


cdef class CleanedSegment(Segment):
    cdef Writer pending                 # batches not yet written
    cdef int64_t written                # bytes in the file; `size` also counts those in `pending`

    cdef int add(self, const uint8_t *batch, Py_ssize_t size) except -1
    cdef int write_pending(self) except -1


cdef class Slice:
    cdef Clock clock
    cdef double deadline
    cdef int64_t work                   # bytes processed
    cdef int64_t looked                 # value of `work` at the last check of the clock

    cdef bint over(self) except -1


cdef struct Kept:                       # the records of a batch that are kept
    int32_t count
    bint tombstones                     # some of these records are tombstones
    int64_t max_timestamp
    Py_ssize_t size                     # bytes


cdef class BatchTask:
    cdef CleanerPass work
    cdef BatchScan scan                 # owns the bytes of the batch
    cdef const uint8_t *batch
    cdef Py_ssize_t size
    cdef bint indexes                   # True: index the keys; False: filter the records
    cdef public object error

    cdef int prepare(self, CleanerPass work, BatchScan scan, const uint8_t *batch,
                     bint indexes) except -1


cdef class CleanerPass:
    cdef readonly KeyOffsets keys
    cdef readonly int64_t first_dirty_offset
    cdef public int64_t end_offset      # the table has the keys of dirty records below it
    cdef public object transactions
    cdef dict producers                 # producer id to (last data offset or -1, epoch)
    cdef int64_t now_ms, delete_retention_ms
    cdef readonly int64_t bytes_read, bytes_written
    cdef public int64_t changes         # batches dropped or rewritten
    cdef Writer body, batch
    cdef object plain                   # keeps decompressed records alive
    cdef public BatchTask due           # a large batch to be processed in a thread
    cdef int outcome                    # what to do with the current batch
    cdef bint stays                     # the batch must stay, if necessary without records
    cdef bint over                      # an empty control batch, or a marker whose transaction
                                        #   has no batches left

    cdef const uint8_t *records_of(self, const uint8_t *batch, Py_ssize_t size,
                                   const uint8_t **end) except? NULL
    cdef int index_batch(self, BatchScan scan, const uint8_t *batch) except -1
    cdef int index_records(self, const uint8_t *batch, Py_ssize_t size) except -1
    cdef void put_keys(
        self, const uint8_t *batch, const uint8_t *at, const uint8_t *end) noexcept nogil
    cdef int clean_batch(self, BatchScan scan, const uint8_t *batch, CleanedSegment target,
                         bint is_last) except -1
    cdef int choose_records(self, const uint8_t *batch, Py_ssize_t size) except -1
    cdef int put_batch(
        self, const uint8_t *batch, Py_ssize_t size, CleanedSegment target) except -1
    cdef bint must_stay(self, const uint8_t *batch) except -1
    cdef int filter_records(self, const uint8_t *batch, const uint8_t *at, const uint8_t *end,
                            int64_t base_timestamp, Kept *kept) except -1
    cdef void copy_records(self, const uint8_t *batch, const uint8_t *at, const uint8_t *end,
                           int64_t base_timestamp, Kept *kept) noexcept nogil
    cdef int write_empty(self, const uint8_t *batch, CleanedSegment target) except -1
    cdef int rewrite(self, const uint8_t *batch, const Kept *kept, int64_t horizon_ms) except -1
