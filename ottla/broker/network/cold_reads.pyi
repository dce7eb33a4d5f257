"""Disk reads that must not block the loop."""

import asyncio
from collections.abc import Callable

from ottla.log.files.disk import File

def resident(file: File, position: int, size: int) -> bool: ...

class ColdReads:
    """Reads ranges of files into memory in a few threads; `begun` counts the reads."""

    begun: int
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None: ...
    def begin(
        self, file: File, position: int, size: int, done: Callable[[OSError | None], None]
    ) -> None: ...
    def close(self) -> None: ...
