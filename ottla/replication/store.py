"""What a store of metadata promises, whether it is a file beside the logs or a cluster's
ZooKeeper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ottla.replication.metadata import MetadataImage, MetadataRecord


class MetadataStore(Protocol):
    """Keeps the metadata log. One writer at a time; order is what was appended first."""

    def load(self) -> MetadataImage:
        """The fold of everything appended so far."""
        ...

    def append(self, records: Sequence[MetadataRecord], image: MetadataImage) -> None:
        """Keep `records`; on return they survive a power cut. `image` is the fold that includes
        them.

        Raises OSError or StorageFailed where they could not be kept; then none of them count.
        """
        ...

    def close(self) -> None:
        """Let go of what the store holds open."""
        ...
