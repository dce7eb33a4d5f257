"""The log directory of a stopped broker of a cluster, with only the files that commands read."""

from __future__ import annotations

import json
from pathlib import Path

from ottla.broker.cluster.metadata_checkpoint import MARK

CLUSTER = "a-cluster-of-one"


def member_directory(path: Path, entry: int | None = 7, **properties: str) -> Path:
    """Make a directory whose broker has read the metadata up to this entry. With None, it has no
    metadata checkpoint. `properties` replace properties of meta.properties; their names have
    underscores for dots, and an empty value removes a property."""
    path.mkdir(parents=True, exist_ok=True)
    known = {
        "version": "1", "cluster.id": CLUSTER, "node.id": "1", "directory.id": "d",
        "ottla.metadata": "zookeeper",
    } | {name.replace("_", "."): value for name, value in properties.items()}
    text = "".join(f"{name}={value}\n" for name, value in known.items() if value)
    (path / "meta.properties").write_text(text)
    (path / ".lock").touch()
    if entry is not None:
        (path / MARK).write_text(json.dumps({"version": 1, "entry": entry, "czxid": 100}))
    return path
