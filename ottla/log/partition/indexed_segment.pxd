# One data file of a partition, and its two indexes, which say where its batches are.

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.files.aborted_index cimport AbortedIndex
from ottla.log.files.disk cimport File
from ottla.log.files.offset_index cimport OffsetIndex
from ottla.log.files.open_files cimport Openable, OpenFiles
from ottla.log.files.producers cimport Producers
from ottla.log.files.time_index cimport TimeIndex
from ottla.log.partition.offset_lookup cimport OffsetLookup


cdef class IndexedSegment(Openable):
    cdef readonly object disk
    cdef OpenFiles open_files
    cdef readonly str directory
    cdef readonly int64_t base_offset
    cdef readonly int64_t end_offset        # after the last batch, or where the next segment begins
    cdef readonly int64_t size              # bytes of whole batches in the file
    cdef readonly int64_t created_ms
    cdef readonly int64_t first_timestamp   # highest timestamp of the first batch, which segment.ms
                                            #   needs; -1 if there is none
    cdef readonly int64_t max_timestamp     # -1 if there is none
    cdef readonly int64_t max_timestamp_offset  # last offset of the batch with max_timestamp
    cdef bint times_known                   # the three fields above were read from the files
    cdef bint appendable                    # all files are open and the times are known
    cdef int64_t sealed_size                # the value of `size` at the last `seal`, or -1
    cdef int64_t since_index                # bytes since the last index entry
    cdef OffsetLookup lookup
    cdef readonly int64_t index_interval
    cdef readonly bint reserved             # disk space after the last batch is reserved
    cdef bint unindexed                     # last closed without index entries and index files
    cdef readonly AbortedIndex aborted      # the state of the segment's transaction index
    cdef object fault                       # the SegmentDamaged at which the indexes end, or None
    cdef File file
    cdef OffsetIndex index
    cdef TimeIndex times

    cdef File opened(self)
    cdef int open_indexes(self, bint patient) except -1
    cdef int open_index_files(self, bint fresh=*) except -1
    cdef int has_index_files(self) except -1
    cdef bint is_unindexed(self) except -1
    cdef int64_t position_for(
        self, int64_t offset, Py_ssize_t *batch_size, int64_t enough, bint patient) except -1
    cdef int64_t find(
        self, int64_t offset, Py_ssize_t *batch_size, int64_t enough, bint patient) except -1
    cdef int64_t bound_for(self, int64_t offset, bint patient) except -1
    cdef int64_t offset_after(self, int64_t position, bint patient) except -1
    cdef int64_t entry_from(self, int64_t position, bint patient) except -1
    cdef void forget_lookups(self) noexcept
    cdef bint ends_with_newest(self, bint patient) except -1
    cdef int64_t position_of_entry(
        self, int64_t timestamp, int64_t offset, bint patient) except -1
    cdef int note(self, const uint8_t *batch, int64_t position, Py_ssize_t size) except -1
    cdef int adopt(self, IndexedSegment built, fault) except -1
    cdef int forget_rebuild(self) except -1
    cdef object take_in(self, int64_t position, int64_t file_size, Producers producers, epochs,
                        aborted, bint checked)
