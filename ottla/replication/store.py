"""What a store of metadata promises."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from ottla.log.files.flush import FlushTask
    from ottla.replication.metadata import MetadataImage, MetadataRecord


class MetadataWrite(Protocol):
    """A write in progress: `run` blocks, in any thread; `finish` completes it on the loop.

    Either raises OSError or StorageFailed if the records could not be kept; then none of them
    counts.
    """

    task: FlushTask | None
    """The sync that `run` does, for callers that do it in another way; None if nothing is to be
    synced."""

    def run(self) -> None:
        """Make the records survive a power cut."""
        ...

    def give_up(self, error: Exception) -> None:
        """Called instead of `finish` if `run` failed or was never begun."""
        ...

    def finish(self) -> None:
        """Record that they are durable."""
        ...


class Encoded(NamedTuple):
    """Encoded records, and those of the snapshot that replaces them, if any."""

    records: list[bytes]
    snapshot: list[bytes] | None = None


class MetadataStore(Protocol):
    """Keeps the metadata log. One writer at a time; the order is that of the appends."""

    def load(self) -> MetadataImage:
        """The image after everything appended so far."""
        ...

    def snapshot(self, records: int, image: MetadataImage) -> Iterable[MetadataRecord] | None:
        """The records of a snapshot of `image`, if it is time to replace this many records; else
        None."""
        ...

    def begin(
        self,
        records: Sequence[MetadataRecord],
        image: MetadataImage,
        encoded: Encoded | None = None,
    ) -> MetadataWrite:
        """Write `records`, which count once the write has run and finished.

        `image` is the image that includes them; what is not `encoded` yet is encoded here. Raises
        OSError or StorageFailed.
        """
        ...

    def close(self) -> None:
        """Close what the store holds open."""
        ...
