class FileRange:
    @property
    def after(self) -> int: ...

class Reply:
    def __init__(self) -> None: ...

class RangeLost(Exception):
    """A file no longer has the bytes that a reply has announced."""
