from ottla.wire.errors import CorruptMessage

class FileRange:
    @property
    def after(self) -> int: ...

class Reply:
    def __init__(self) -> None: ...

class RangeLost(CorruptMessage):
    """A file no longer has the bytes that a reply has announced."""
