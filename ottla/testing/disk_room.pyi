from ottla.log.disk import Disk, File

class Room:
    """How many more bytes the files of one disk take; -1 for as many as there is room for."""

    bytes_left: int

class RoomyFile(File): ...

class RoomyDisk(Disk):
    """The machine's disk, but full whenever a test wants it to be."""

    room: Room
