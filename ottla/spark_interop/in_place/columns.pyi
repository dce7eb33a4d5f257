"""Record batches as columns: Arrow's buffers, filled without a Python object per record."""

from collections.abc import Collection
from typing import Any

DECOMPRESSED_MAX: int

class Columns:
    """The columns of some records: `add` batches, `take` the buffers."""

    def __init__(self, wanted: Collection[str]) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def size(self) -> int: ...
    def add(self, data: bytes | memoryview, start: int, end: int) -> int: ...
    def take(self) -> tuple[int, dict[str, Any]]: ...
