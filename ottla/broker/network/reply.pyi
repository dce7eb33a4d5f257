class FileRange:
    @property
    def after(self) -> int: ...

class Reply:
    def __init__(self) -> None: ...

class RangeLost(Exception):
    """A file does not have what a reply has promised of it."""
