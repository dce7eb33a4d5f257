"""The machine's disk, which a test can make full.

Writes fail with ENOSPC as they do on a full file system: what fits is written, the rest is not.
Reads, deletions and renames still work. Overwriting counts like appending. Truncating a file frees
room; deleting a file does not.
"""

import errno
import os

from libc.stdint cimport int64_t, uint8_t

from ottla.log.files.disk import Disk

from ottla.log.files.disk cimport File


cdef class Room:
    """How many more bytes the files of one disk accept."""

    def __init__(self):
        self.bytes_left = -1


cdef class RoomyFile(File):
    """A file of a RoomyDisk."""

    def __init__(self, int fd, str path, Room room not None):
        super().__init__(fd, path)
        self.room = room

    cdef int write_at(self, const uint8_t *data, Py_ssize_t size, int64_t position) except -1:
        cdef Room room = self.room
        cdef Py_ssize_t fits = size
        if room.bytes_left >= 0:
            fits = min(<int64_t>size, room.bytes_left)
            room.bytes_left -= fits
        File.write_at(self, data, fits, position)
        if fits < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        return 0

    def truncate(self, size):
        cut = self.size() - size
        super().truncate(size)
        if self.room.bytes_left >= 0:
            self.room.bytes_left += max(cut, 0)

    def reserve(self, size):
        if self.room.bytes_left >= 0 and size > self.size() + self.room.bytes_left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        super().reserve(size)


class RoomyDisk(Disk):
    """The machine's disk; a test sets `room.bytes_left`."""

    def __init__(self):
        self.room = Room()

    def open(self, path, create=False):
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RoomyFile(os.open(path, flags, 0o644), path, self.room)

    def free_bytes(self, path):
        free, size = super().free_bytes(path)
        return free if self.room.bytes_left < 0 else min(free, self.room.bytes_left), size
