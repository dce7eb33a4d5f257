# A file of ascending entries of equal size; the newest stay in memory until they fill a page.

from libc.stdint cimport int64_t, uint8_t

from ottla.log.files.disk cimport File

cdef enum:
    PAGE = 3072                         # whole entries of 8 and of 12 bytes
    ENTRIES_MAX = 256                   # that `make_room` has room for


cdef class IndexFile:
    cdef object disk
    cdef readonly str path
    cdef File file                      # None until it is read or written
    cdef readonly int64_t base_offset   # the segment's: entries hold offsets relative to it
    cdef readonly Py_ssize_t count      # entries, in the file and in the tail
    cdef Py_ssize_t written             # entries in the file; invariant: written <= count
    cdef readonly int entry_size
    # the file's size was not a multiple of that when it was opened
    cdef bint torn
    cdef Py_ssize_t page_number         # which page of the file is in `page`, -1 for none
    cdef Py_ssize_t page_filled         # entries of that page that the file had when it was read
    cdef uint8_t tail[PAGE]
    cdef uint8_t page[PAGE]

    cdef const uint8_t *entry(self, Py_ssize_t index) except NULL
    cdef int64_t key_of(self, Py_ssize_t index) except? -1
    cdef Py_ssize_t page_start(self) noexcept
    cdef Py_ssize_t find(self, int64_t key) except -2
    cdef int make_room(self, Py_ssize_t entries=*) except -1
    cdef uint8_t *add_entry(self) except NULL
