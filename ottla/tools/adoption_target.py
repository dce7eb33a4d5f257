"""Reads the data directory that an import adopts Kafka's logs into. Writes only its lock file."""

from __future__ import annotations

import os

from ottla.log.files.disk import Disk
from ottla.log.storage.log_directory import META, LogDirectory, StorageRefused
from ottla.replication.metadata import MetadataImage
from ottla.replication.records import UnreadableMetadata
from ottla.replication.standalone import read_stopped
from ottla.tools.findings import ImportRefused
from ottla.wire.errors import MalformedMessage


def read_target(path: str, node_id: int) -> MetadataImage:
    """The metadata of a data directory in which a broker with this node.id will start. They are
    empty if the directory is new, or if its broker was not stopped cleanly. Raises ImportRefused if
    the directory is in use, or belongs to a broker with another node.id."""
    if not os.path.exists(f"{path}/{META}"):
        return MetadataImage.empty()
    try:
        directory = LogDirectory(Disk(), path)
    except StorageRefused as error:
        raise ImportRefused(str(error)) from error
    try:
        known = directory.known_ids()
        owner = known.get("node.id", known.get("broker.id"))
        if owner != str(node_id):
            raise ImportRefused(
                f"{path} belongs to the broker with node.id={owner}, but node.id={node_id} is to be"
                f" imported. To give the records to broker {owner}, use --node-id {owner}. Or"
                " import into another directory"
            )
        return read_stopped(directory)
    except StorageRefused as error:
        raise ImportRefused(str(error)) from error
    except (UnreadableMetadata, MalformedMessage, FileNotFoundError):
        return MetadataImage.empty()
    finally:
        directory.close()
