from ottla.log.files.disk import Disk, File

class Room:
    """How many more bytes the files of one disk accept; -1: only the disk itself limits them."""

    bytes_left: int

class RoomyFile(File): ...

class RoomyDisk(Disk):
    """The machine's disk, which a test can make full."""

    room: Room
