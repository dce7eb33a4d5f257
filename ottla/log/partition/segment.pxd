# One data file of a partition. Offsets in it are base_offset and above.

from libc.stdint cimport int64_t, uint8_t

from ottla.log.files.open_files cimport OpenFiles
from ottla.log.files.producers cimport Producers
from ottla.log.partition.indexed_segment cimport IndexedSegment


cdef class Segment(IndexedSegment):
    cdef int configure(self, int64_t index_interval) except -1
    cdef int renamed(self, str directory) except -1
    cdef int share(self, OpenFiles open_files) except -1
    cdef int prepare_append(self, bint patient=*) except -1
    cdef int append(self, const uint8_t *batch, Py_ssize_t size) except -1
    cdef int append_run(
        self, const uint8_t *batches, Py_ssize_t size, Py_ssize_t entries) except -1
    cdef int find_end(self, Producers producers, epochs, bint patient) except -1
