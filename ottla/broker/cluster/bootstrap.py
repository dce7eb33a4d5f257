"""Metadata records that `kafka-storage format --add-scram` prepares before the first start.

The command writes them into a file beside `meta.properties`. The first start applies the records
and removes that file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.replication.metadata import Decision, MetadataImage, MetadataRecord
from ottla.replication.records import UnreadableMetadata, decode_record, encode_record
from ottla.wire.errors import StorageFailed
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.broker.cluster.metadata_log import Metadata

log = logging.getLogger("ottla.metadata")

NAME = "ottla-bootstrap.jsonl"


def write_bootstrap(directory: Path, records: Sequence[MetadataRecord]) -> None:
    """Write records for the first start, one on each line; only the file's owner may read them."""
    descriptor = os.open(directory / NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.writelines(encode_record(record) + b"\n" for record in records)


async def take_bootstrap(directory: Path, metadata: Metadata) -> None:
    """Apply the prepared records if the metadata are still empty. Raises StorageFailed."""
    path = directory / NAME
    if not path.exists():
        return
    if metadata.image.offset > 0:
        log.warning("%s is ignored, since the cluster has metadata already: remove this file", path)
        return
    try:
        records = [decode_record(line) for line in path.read_bytes().splitlines()]
    except UnreadableMetadata as error:
        raise StorageFailed(f"{path}: {error}") from error

    def all_of_them(image: MetadataImage) -> Decision[None]:
        return Decision(records, None)

    await metadata.decide(all_of_them)
    path.unlink()
    log.info("applied %s of %s to the metadata", counted(len(records), "record"), path)
