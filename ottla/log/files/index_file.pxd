# A file of ascending entries of equal size; new entries stay in memory until they fill a page.

from libc.stdint cimport int64_t, uint8_t

from ottla.log.files.disk cimport File

cdef enum:
    PAGE = 3072                         # bytes; a multiple of both entry sizes, 8 and 12
    ENTRIES_MAX = 256                   # entries of 12 bytes in a page


cdef class IndexFile:
    cdef object disk
    cdef readonly str path
    cdef File file                      # None while there is no file
    cdef readonly int64_t base_offset   # of the segment; entries hold offsets relative to it
    cdef readonly Py_ssize_t count      # entries, in the file and in the tail
    cdef Py_ssize_t written             # entries in the file; invariant: written <= count
    cdef readonly int entry_size
    # when the file was opened, its size was not a multiple of entry_size
    cdef bint torn
    cdef Py_ssize_t page_number         # which page of the file is in `page`, -1 for none
    cdef Py_ssize_t page_filled         # entries in `page`; the file may have more by now
    cdef uint8_t tail[PAGE]
    cdef uint8_t page[PAGE]

    cdef const uint8_t *entry(self, Py_ssize_t index) except NULL
    cdef int64_t key_of(self, Py_ssize_t index) except? -1
    cdef Py_ssize_t page_start(self) noexcept
    cdef Py_ssize_t find(self, int64_t key) except -2
    cdef int make_room(self, Py_ssize_t entries=*) except -1
    cdef uint8_t *add_entry(self) except NULL
