"""A slice's output is whole or not there, so that a command that failed can simply be run again."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client.interrupts import Interrupted
from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import OutputClosed, PipelineError
from ottla.spark_interop.pipelines import command
from ottla.spark_interop.pipelines import slice as slices


class Frame:
    """A substitute for pyspark's frames: it yields some rows, and then fails or not."""

    schema = SimpleNamespace(typeName=lambda: "struct", fields=[])

    def __init__(self, count: int, failure: BaseException | None) -> None:
        self.count, self.failure = count, failure

    def drop(self, _: str) -> Frame:
        return self

    def orderBy(self, *_: str) -> Frame:
        return self

    def toLocalIterator(self) -> Iterator[Any]:
        for _ in range(self.count):
            yield SimpleNamespace(asDict=lambda recursive: {})
        if self.failure is not None:
            raise self.failure

    @property
    def write(self) -> Any:
        return SimpleNamespace(mode=lambda _: SimpleNamespace(parquet=self.save))

    def save(self, path: str) -> None:
        Path(path).mkdir()
        (Path(path) / "part-0.parquet").write_text("rows")
        if self.failure is not None:
            raise self.failure

    def where(self, _: str) -> Any:
        return SimpleNamespace(count=lambda: 0)


@pytest.fixture
def sliced(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a slice with some rows to an output, without Spark and brokers."""
    monkeypatch.setattr(Cluster, "begun", Cluster.of)
    monkeypatch.setattr(slices, "in_utc", lambda *_: {"n": 1, "_error": None})

    def run(output: Path | str, failure: BaseException | None = None, count: int = 3) -> Any:
        frame = Frame(count, failure)
        monkeypatch.setattr(slices, "read_topic", lambda *_, **__: frame)
        counted = SimpleNamespace(count=lambda: count, where=frame.where)
        spark: Any = SimpleNamespace(read=SimpleNamespace(parquet=lambda _: counted))
        return slices.slice_topic(spark, "localhost:9092", "t", output=output, progress=False)

    return run


@pytest.mark.parametrize("name", ["o.jsonl", "o.parquet"])
@pytest.mark.parametrize(("failure", "raised"), [
    (Interrupted(2), Interrupted),
    (OSError(errno.ENOSPC, "No space left on device"), PipelineError),
])  # fmt: skip
def test_a_slice_that_failed_leaves_nothing_and_can_run_again(
    tmp_path: Path, sliced: Any, name: str, failure: BaseException, raised: type[BaseException]
) -> None:
    output = tmp_path / name
    with pytest.raises(raised):
        sliced(output, failure)
    assert list(tmp_path.iterdir()) == []
    assert sliced(output) == {"records": 3, "bad": 0}
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize("name", ["o.jsonl", "o.parquet"])
def test_a_slice_deletes_what_a_killed_one_has_left_and_nothing_of_one_that_runs(
    tmp_path: Path, sliced: Any, name: str
) -> None:
    output = tmp_path / name
    killed, running = (tmp_path / f"{name}.{number}.ottla-draft" for number in (1, 2))
    notes = tmp_path / f"{name}.notes.ottla-draft"      # of the user
    notes.mkdir()
    for draft in (killed, running):
        draft.mkdir()
        (draft / name).write_text("half")
    with running_lock(running):
        sliced(output)
    assert set(tmp_path.iterdir()) == {output, running, notes}


@pytest.mark.parametrize("name", ["data", "data.parquet"])
def test_a_slice_deletes_a_former_versions_draft_and_nothing_of_the_user(
    tmp_path: Path, sliced: Any, name: str
) -> None:
    """A former version's draft was a file. A directory NAME.2013.part may be the user's."""
    line, ended = '{"value": "a", "_partition": 0, "_of', 999_999_999     # no process has this id
    output = tmp_path / name
    draft, running, text, folder = (
        tmp_path / f"{name}.{number}.part" for number in (ended, 1, ended + 1, 2013))
    for file, content in (draft, line), (running, line), (text, "the second part\n"):
        file.write_text(content)
    folder.mkdir()
    (folder / "january").touch()
    sliced(output)
    assert set(tmp_path.iterdir()) == {output, running, text, folder}
    assert (folder / "january").exists()


@pytest.mark.parametrize("name", ["o.jsonl", "o.parquet"])
def test_a_slice_creates_the_missing_parents_of_its_output(
    tmp_path: Path, sliced: Any, name: str
) -> None:
    output = tmp_path / "new" / "directory" / name
    assert sliced(output) == {"records": 3, "bad": 0}
    assert list(output.parent.iterdir()) == [output]


@contextmanager
def running_lock(folder: Path) -> Iterator[None]:
    """Holds the lock of a running slice."""
    opened = os.open(folder, os.O_RDONLY)
    fcntl.flock(opened, fcntl.LOCK_EX)
    yield
    os.close(opened)


@pytest.mark.parametrize("name", ["o.jsonl", "o.parquet"])
def test_a_slice_overwrites_nothing(tmp_path: Path, sliced: Any, name: str) -> None:
    output = tmp_path / name
    sliced(output)
    with pytest.raises(PipelineError, match=f"{name} already exists: name another output file"):
        sliced(output, count=1)
    if name == "o.jsonl":
        assert [json.loads(line)["n"] for line in output.read_text().splitlines()] == [1, 1, 1]


class ClosedPipe:
    """Standard output whose reader has exited."""

    def write(self, _: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    def flush(self) -> None: ...


def test_a_slice_whose_reader_has_exited_ends_quietly(
    sliced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", ClosedPipe())
        with pytest.raises(OutputClosed):
            sliced("-")
    # A broken connection to Spark is an error of the pipeline.
    with pytest.raises(PipelineError, match="Broken pipe"):
        sliced("-", BrokenPipeError(errno.EPIPE, "Broken pipe"))


@pytest.mark.parametrize("output", ["-", "file"])
def test_standard_output_has_the_records_or_the_summary_of_a_slice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    """A summary after the records was not a line of JSON, so that programs refused the output."""

    @wraps(slices.slice_topic)
    def written(*_: Any, **__: Any) -> dict[str, int]:
        if output == "-":
            print('{"n": 1}')
        return {"records": 1, "bad": 0}

    monkeypatch.setattr(slices, "slice_topic", written)
    monkeypatch.setattr(command.preflight, "check", lambda *_: None)
    monkeypatch.setattr(command, "check_start", lambda *_: None)
    monkeypatch.setattr(command, "_told_session", lambda *_: None)
    words = ["-b", "localhost:9092", "--topic", "t", "--output", output, "--quiet"]
    assert command.main(["pipeline", "slice", *words]) == 0
    told = capsys.readouterr()
    records, summary = (told.out, told.err) if output == "-" else ("", told.out)
    assert records == '{"n": 1}\n' * (output == "-")
    assert json.loads(summary) == {"records": 1, "bad": 0}


def test_the_command_slice_ends_quietly_once_its_reader_has_exited(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command `ottla` handles the BrokenPipeError as that of its other commands."""

    @wraps(slices.slice_topic)      # the command reads the parameters
    def closed(*_: Any, **__: Any) -> None:
        raise OutputClosed

    monkeypatch.setattr(slices, "slice_topic", closed)
    monkeypatch.setattr(command.preflight, "check", lambda *_: None)
    monkeypatch.setattr(command, "check_start", lambda *_: None)
    monkeypatch.setattr(command, "_told_session", lambda *_: None)
    with pytest.raises(BrokenPipeError):
        command.main(["pipeline", "slice", "--bootstrap", "localhost:9092", "--topic", "t"])
