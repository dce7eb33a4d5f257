# A disk that accepts only a given number of bytes; see disk_room.pyx.

from libc.stdint cimport int64_t, uint8_t

from ottla.log.files.disk cimport File


cdef class Room:
    cdef public int64_t bytes_left      # -1: no limit


cdef class RoomyFile(File):
    cdef Room room
