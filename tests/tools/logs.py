"""Small logs on disk for the tests of the tools."""

from __future__ import annotations

from pathlib import Path

from ottla.log.files.disk import Disk
from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from ottla.tools.command import main
from ottla.wire.records import ControlType, Record, build_batch, build_marker
from tests.fakes import FakeClock

NOW_MS = 1_700_000_000_000


def open_log(path: Path, name: str = "t-0") -> PartitionLog:
    """A log whose indexes have an entry for every batch but the first of a segment."""
    config = LogConfig(index_interval_bytes=1)
    return PartitionLog.open(Disk(), FakeClock(), f"{path}/{name}", config)


def write_log(path: Path, name: str = "t-0") -> Path:
    """Write two segments: two batches of producer 7, the second of them compressed; an aborted
    transaction of producer 9; a last batch.

    The offsets are 0 1 2 | 3 (transaction) 4 (abort marker) 5.
    """
    log = open_log(path, name)
    log.append_bytes(some(b"first", producer_id=7, epoch=0, sequence=0), 0)
    log.append_bytes(some(b"second", b"third", producer_id=7, epoch=0, sequence=1, codec=4), 1)
    log.roll()
    log.append_bytes(
        some(b"in doubt", producer_id=9, epoch=2, sequence=0, transactional=True), 1
    )
    log.append_bytes(
        build_marker(
            ControlType.ABORT, producer_id=9, producer_epoch=2, coordinator_epoch=5,
            timestamp=NOW_MS + 9,
        ),
        1,
    )  # fmt: skip
    log.append_bytes(some(b"last", headers=[("trace", b"1"), ("none", None)]), 1)
    log.close()
    return path / name


def some(
    *values: bytes | None,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    headers: list[tuple[str, bytes | None]] | None = None,
    **options: object,
) -> bytes:
    """Returns a batch whose records all have the key "k"."""
    records = [
        Record(timestamp=NOW_MS + at, key=b"k", value=value, headers=headers or ())
        for at, value in enumerate(values)
    ]
    return build_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence,
        **options,  # type: ignore[arg-type]
    )  # fmt: skip


def run(*arguments: object) -> int:
    """Runs `ottla log …` in this process."""
    return main(["log", *map(str, arguments)])
