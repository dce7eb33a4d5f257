"""The interface of a store of metadata."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from ottla.log.files.flush import FlushTask
    from ottla.replication.metadata import MetadataImage, MetadataRecord


class MetadataWrite(Protocol):
    """A write in progress. `run` blocks and may run in any thread; `finish` completes the write on
    the event loop.

    Either method raises OSError or StorageFailed if the records could not be stored. In that case,
    no record takes effect.
    """

    task: FlushTask | None
    """The sync that `run` performs, for callers that perform it in another way; None if there is
    nothing to sync."""

    def run(self) -> None:
        """Make the records survive a power cut."""
        ...

    def give_up(self, error: Exception) -> None:
        """Called instead of `finish` if `run` failed or was never begun."""
        ...

    def finish(self) -> None:
        """Note that the records are durable."""
        ...


class Encoded(NamedTuple):
    """Encoded records, and the encoded snapshot to write instead of them, if any."""

    records: list[bytes]
    snapshot: list[bytes] | None = None


class MetadataStore(Protocol):
    """Keeps the metadata log, in the order of the appends. There is one writer at a time."""

    def load(self) -> MetadataImage:
        """The image after everything appended so far."""
        ...

    def snapshot(self, records: int, image: MetadataImage) -> Iterable[MetadataRecord] | None:
        """The records of a snapshot of `image`, to be written instead of `records` new records;
        None if no snapshot is due."""
        ...

    def begin(
        self,
        records: Sequence[MetadataRecord],
        image: MetadataImage,
        encoded: Encoded | None = None,
    ) -> MetadataWrite:
        """Write `records`, which take effect once the write has run and finished.

        `image` is the image that includes them. Without `encoded`, the records are encoded here.
        Raises OSError or StorageFailed.
        """
        ...

    def close(self) -> None:
        """Close what the store holds open."""
        ...
