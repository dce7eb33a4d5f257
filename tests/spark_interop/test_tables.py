"""What a table of Parquet files records about itself is enough to continue with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.spark_interop.errors import PipelineError
from ottla.spark_interop.pipelines import archive, windows
from ottla.spark_interop.pipelines.files import LocalFiles
from ottla.spark_interop.pipelines.table import COMMITS, META, TARGETS, Table


class Killed(Exception):
    """Raised in place of a write: the driver was killed before it."""


class WritableFiles(LocalFiles):
    """Files that can be written without a JVM; a number of writes succeed, then the driver dies."""

    writes_left = 100

    def write(self, name: str, text: str) -> None:
        if not self.writes_left:
            raise Killed
        self.writes_left -= 1
        place = Path(self.at(name))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def delete(self, name: str) -> None:
        assert not self.exists(name)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        self.write(name, "")
        yield


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


def test_a_missing_archive_is_not_created_by_compacting_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command refuses a missing path before a JVM starts, but only on a local disk."""
    monkeypatch.setattr(archive, "Files", lambda _, path: WritableFiles(path))
    spark: Any = None
    with pytest.raises(PipelineError, match="missing is not a table of `archive`: it has no"):
        archive.compact(spark, tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []
    table_at(tmp_path / "w", "windows")
    with pytest.raises(PipelineError, match="w was written by `windows`, not by `archive`"):
        archive.compact(spark, tmp_path / "w")


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_key_of_windows_keeps_its_lane_whichever_notes_a_kill_has_left(
    tmp_path: Path, writes: int
) -> None:
    """The first run is killed; the second completes its notes, and may write windows. Then the
    topic gets more partitions."""
    files, partitions = table_at(tmp_path, "windows"), [3]
    cluster = SimpleNamespace(
        partitions=lambda _: range(partitions[0]),
        topic_ids=lambda topics: dict.fromkeys(topics, "i"),
    )
    into: Any = SimpleNamespace(cluster=cluster, topic="t", topics=["t"])
    files.writes_left = writes
    try:
        windows.lanes_of(open_table(files, "windows"), into)
    except Killed:
        # Nothing is written to the topic before `lanes_of` returns.
        assert TARGETS not in open_table(files, "windows").about
    files.writes_left = 100
    assert windows.lanes_of(open_table(files, "windows"), into) == 3
    partitions[0] = 5
    assert windows.lanes_of(open_table(files, "windows"), into) == 3
    assert open_table(files, "windows").about[TARGETS]["t"] == "i"


def test_windows_whose_notes_lack_the_lanes_get_them_at_the_next_run(tmp_path: Path) -> None:
    """A former version wrote the ids first, so a kill could leave them alone."""
    files = table_at(tmp_path, "windows")
    open_table(files, "windows").note({TARGETS: {"t": "i"}})
    into: Any = SimpleNamespace(cluster=SimpleNamespace(partitions=lambda _: range(3)), topic="t")
    for partitions in (3, 5):
        into.cluster.partitions = lambda _, count=partitions: range(count)
        assert windows.lanes_of(open_table(files, "windows"), into) == 3
