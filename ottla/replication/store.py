"""What a store of metadata promises, be it a file beside the logs or a cluster's ZooKeeper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ottla.replication.metadata import MetadataImage, MetadataRecord


class MetadataWrite(Protocol):
    """Records on their way: `run` blocks, in any thread; `finish` ends it, on the loop.

    Each raises OSError or StorageFailed where the records could not be kept; then none count.
    """

    def run(self) -> None:
        """Make the records survive a power cut."""
        ...

    def give_up(self, error: Exception) -> None:
        """`run` did not come to its end, or was not even begun; instead of `finish`."""
        ...

    def finish(self) -> None:
        """Take note that they do."""
        ...


class MetadataStore(Protocol):
    """Keeps the metadata log. One writer at a time; order is what was appended first."""

    def load(self) -> MetadataImage:
        """The fold of everything appended so far."""
        ...

    def begin(self, records: Sequence[MetadataRecord], image: MetadataImage) -> MetadataWrite:
        """Write `records`, which count once the write has run and finished.

        `image` is the fold that includes them. Raises OSError or StorageFailed.
        """
        ...

    def close(self) -> None:
        """Let go of what the store holds open."""
        ...
