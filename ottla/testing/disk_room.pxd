# A disk that takes only so many more bytes; see disk_room.pyx.

from libc.stdint cimport int64_t, uint8_t

from ottla.log.disk cimport File


cdef class Room:
    cdef public int64_t bytes_left      # -1: as many as the machine's own disk has


cdef class RoomyFile(File):
    cdef Room room
