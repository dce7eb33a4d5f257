"""Slice: the records of a time range, to look at or to keep."""

from __future__ import annotations

import base64
import glob
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import OutputClosed, PipelineError, WrongOption
from ottla.spark_interop.pipelines import query_run
from ottla.spark_interop.topics import read_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("lines", "jsonl", "json", "hex", "table")    # what --output is in Ottla's other commands
DRAFT = ".ottla-draft"  # how the name of a draft's directory ends
FORMER = ".part"  # how the name of a former version's draft, a file, ends
BEGINNING_MAX = 1 << 20  # bytes of a file that are read to recognize a former version's draft


def slice_topic(
    spark: SparkSession,
    bootstrap: str | Cluster,
    topic: str,
    *,
    since: str | datetime | int | None = None,
    until: str | datetime | int | None = None,
    time_zone: str = "UTC",
    lateness: str | None = None,
    format: str = "raw",
    schema: Any = None,
    schemas: str | Path | None = None,
    output: str | Path = "-",
    limit: int | None = None,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Write the records of `topic` with timestamps from `since` (included) to `until` (excluded).

    If `output` is `-`, JSON lines go to standard output. Otherwise `output` is a path that does not
    exist yet. If that path ends in `.parquet`, the records are written as Parquet, otherwise as
    JSON lines. Missing parents of the path are created. The path exists only when all records are
    written. Times and `lateness` are as in `read_topic`. A JSON line has the format's columns,
    `_key`, `_partition`, `_offset`, `_timestamp`, `_headers`, and `_error`. In it, bytes are text
    if they are UTF-8, otherwise they are {"base64": …}; timestamps are in UTC. Lines are ordered by
    partition and offset. `limit` is the maximum number of records.

    Returns {"records", "bad"}. Raises PipelineError for a missing topic, a bad time or format, an
    output that already exists, or a full disk.
    """
    with query_run.telling(f"slice {topic}", progress, bootstrap):
        frame = read_topic(
            spark, Cluster.begun(bootstrap), topic, format=format, schema=schema, schemas=schemas,
            since=since, until=until, time_zone=time_zone, lateness=lateness,
        ).drop("_value")  # fmt: skip
        if limit is not None:
            frame = frame.orderBy("_partition", "_offset").limit(limit)
        return _written(spark, frame, output)


def check_options(output: str | None) -> None:
    """Raises WrongOption if `output` is the name of a format instead of a file."""
    if output in FORMATS:
        raise WrongOption(
            "`output` is a file, not a format (slices are lines of JSON): leave out `output` to"
            f" print the records, or write ./{output} for a file of this name", "output")


def _written(spark: SparkSession, frame: DataFrame, output: str | Path) -> dict[str, int]:
    try:
        if str(output) == "-":
            return _lines(_rows(frame), _StandardOutput())
        with _whole(output) as draft:
            if str(output).endswith(".parquet"):
                frame.write.mode("overwrite").parquet(str(draft))
                written = spark.read.parquet(str(draft))
                bad = written.where("_error IS NOT NULL")
                return {"records": written.count(), "bad": bad.count()}
            with draft.open("w") as file:
                return _lines(_rows(frame), file)
    except OutputClosed:
        raise
    except Exception as error:
        raise query_run.explained(error) from error


def _rows(frame: DataFrame) -> Iterator[Any]:
    for row in frame.orderBy("_partition", "_offset").toLocalIterator():
        yield in_utc(row.asDict(recursive=True), frame.schema)


@contextmanager
def _whole(output: str | Path) -> Iterator[Path]:
    """Yields a draft's path. If the block succeeds, the draft gets the name `output`; otherwise it
    is deleted. So the same command can run again after an interrupt, a full disk or a kill.

    The draft is in a directory that this process keeps locked. A kill leaves the directory, without
    its lock; the next slice to the same output deletes it.
    """

    def refuse_existing() -> None:
        if place.exists():
            raise PipelineError(f"{output} already exists: name another output file")

    place = Path(output).absolute()
    refuse_existing()
    for _, left in _numbered(place, DRAFT):
        with suppress(OSError), _locked(left):      # BlockingIOError: another slice writes there
            shutil.rmtree(left)
    for process_id, left in _numbered(place, FORMER):
        with suppress(OSError):
            if left.is_file() and _has_lines(left) and not _is_running(process_id):
                left.unlink()
    folder = place.with_name(f"{place.name}.{os.getpid()}{DRAFT}")
    folder.mkdir(parents=True)
    try:
        with _locked(folder):
            yield folder / place.name
            refuse_existing()       # another program may have created it meanwhile
            (folder / place.name).rename(place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)   # the JVM may still be writing to it


def _numbered(place: Path, end: str) -> Iterator[tuple[int, Path]]:
    """The paths NAME.NUMBER{end} beside the path of NAME, each with its number."""
    for path in place.parent.glob(f"{glob.escape(place.name)}.*{end}"):
        number = path.name[len(place.name) + 1 : -len(end)]
        if number.isdecimal():
            yield int(number), path


def _has_lines(draft: Path) -> bool:
    """Whether a file is empty or begins as `_lines` writes it. A user may have a file with a name
    like that of a draft."""
    with draft.open("rb") as file:
        line = file.readline(BEGINNING_MAX)
    return not line or (line.startswith(b"{") and b'"_partition": ' in line)


def _is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds a lock on a directory. Raises OSError if another process has it, or if `folder` is not
    a directory."""
    import fcntl

    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(opened)


class _StandardOutput:
    """Standard output. If its reader has exited, raises OutputClosed: a plain BrokenPipeError may
    also come from a connection to Spark."""

    def write(self, text: str) -> None:
        try:
            sys.stdout.write(text)
        except BrokenPipeError as error:
            raise OutputClosed from error

    def flush(self) -> None:
        try:
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise OutputClosed from error


def in_utc(value: Any, kind: Any) -> Any:
    """A value of a Spark type with its timestamps in UTC; pyspark returns them in the time zone of
    this machine, without naming it."""
    name = kind.typeName()
    if value is None:
        return None
    if name == "timestamp":
        return value.astimezone(UTC).replace(tzinfo=None)
    if name == "struct":
        return {each.name: in_utc(value[each.name], each.dataType) for each in kind.fields}
    if name == "array":
        return [in_utc(item, kind.elementType) for item in value]
    if name == "map":
        return {key: in_utc(item, kind.valueType) for key, item in value.items()}
    return value


def _lines(rows: Any, file: Any) -> dict[str, int]:
    report = {"records": 0, "bad": 0}
    for fields in rows:
        report["records"] += 1
        report["bad"] += fields["_error"] is not None
        file.write(json.dumps(fields, default=plain, ensure_ascii=False) + "\n")
    file.flush()
    return report


def plain(value: Any) -> Any:
    """Bytes and times in JSON form."""
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
