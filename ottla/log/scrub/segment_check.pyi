"""Checks one sealed segment: every checksum, and that offsets and epochs are in order."""

from ottla.log.files.disk import File

class SegmentScrub:
    """One pass over the first `size` bytes of a segment that begins with `base_offset`."""

    file: File
    size: int
    position: int
    problem: str | None
    fault_position: int
    fault_offset: int
    end_offset: int
    def __init__(
        self,
        file: File,
        size: int,
        base_offset: int,
        next_base: int = -1,
        slice_bytes: int = 1 << 20,
    ) -> None: ...
    @property
    def done(self) -> bool: ...
    def read(self) -> None: ...
    def check(self) -> None: ...
    def refused(self, error: Exception) -> None: ...
    def look_again(self) -> None: ...
