"""Limits how many segments have open files, so that a broker can have 100,000 partitions."""

from ottla.log.partition.index_rebuilds import IndexRebuilds

class Openable:
    """Something with descriptors that it can close and reopen by itself."""

class OpenFiles:
    """The segments that are open now, at most `limit` of them."""

    limit: int
    rebuilds: IndexRebuilds | None
    def __init__(self, limit: int = 300) -> None: ...
    def __len__(self) -> int: ...
    def close_one(self) -> None: ...
