"""What a table of Parquet files records about itself is enough to continue with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ottla.spark_interop.pipelines import archive
from ottla.spark_interop.pipelines.files import LocalFiles
from ottla.spark_interop.pipelines.table import COMMITS, META, Table


class WritableFiles(LocalFiles):
    """Files that can be written without a JVM."""

    def write(self, name: str, text: str) -> None:
        place = Path(self.at(name))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def open_table(files: Any, kind: str) -> Table:
    return Table.open(files, kind)


def table_at(path: Path, kind: str) -> WritableFiles:
    files = WritableFiles(path)
    files.write(META, json.dumps({"kind": kind, "layout": 1}))
    return files


def test_an_archive_without_its_checkpoint_tells_the_number_of_partitions(tmp_path: Path) -> None:
    """A replay creates its topic with this number of partitions."""
    files = table_at(tmp_path, "archive")
    assert archive.partitions_read(open_table(files, "archive")) == 0
    for number, ends in enumerate(({"0": 9}, {"0": 9, "1": 0, "10": 0, "2": 4})):
        batch = {"from": dict.fromkeys(ends, 0), "to": ends}
        commit = {"add": {}, "remove": [], "batches": {str(number): batch}}
        files.write(f"{COMMITS}/{number:08}.json", json.dumps(commit))
    assert archive.partitions_read(open_table(files, "archive")) == 11
