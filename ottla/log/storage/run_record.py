"""Keeps a record of the last run of a cluster's broker in each log directory. From these records,
the next start derives which writes may have been lost.

The file `ottla-run` is written once the broker's registration is in the cluster's metadata, and
again after a clean stop:

    {"version":1,"epoch":4294967423,"boot":"6d2c…","flush":"true","clean":false}

`epoch` is the broker epoch: it shows whether a directory was restored from an older copy. `boot` is
the machine's boot id: it shows whether the machine has stopped. A stop of the machine loses
unflushed writes; the end of a process does not. `away` has the ids of the log directories that were
missing during the run, if any were. A start writes the file only after the broker has registered.
Suppose a start after a power failure wrote the file before it registered, and then failed to
register. The next start would find the current boot id, and would not notice the power failure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from ottla.log.files.disk import Disk

RUN = "ottla-run"
CLEAN, CRASH, MACHINE, LOST = STOPS = ("clean", "crash", "machine", "lost")
"""How a broker's last run ended, from harmless to bad. `clean`: a clean stop. `crash`: the process
died, but its writes are not lost. `machine`: the machine stopped, and unflushed writes may be lost.
`lost`: no log can be relied on, for example because the log directories were replaced."""
SAID = {
    CLEAN: "the last run ended cleanly",
    CRASH: "the last run ended with a crash of the broker",
    MACHINE: "the machine stopped without warning during the last run",
    LOST: "no partition log of the last run can be relied on",
}
FLUSHED = "always"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of a broker. `flush` is the setting ottla.acks.all.flush. `clean` says whether the
    run ended with a clean stop. `away` has the ids of the log directories that were missing during
    the whole run."""

    epoch: int
    boot: str
    flush: str
    clean: bool = False
    away: tuple[str, ...] = ()


def read(disk: Disk, directory: str) -> RunRecord | None:
    """The record of the last run; None if there is none, or it is damaged."""
    try:
        body = json.loads(disk.read_bytes(f"{directory}/{RUN}"))
        if body.pop("version") != 1:
            return None
        away = body.pop("away", [])
        if type(away) is not list or not all(type(each) is str for each in away):
            return None
        record = RunRecord(**body, away=tuple(away))
        types = (record.epoch, int), (record.boot, str), (record.flush, str), (record.clean, bool)
        return record if all(type(value) is kind for value, kind in types) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write(disk: Disk, directory: str, record: RunRecord) -> None:
    """Write the record of this run. Raises OSError."""
    body = {"version": 1, **asdict(record)}
    if not record.away:
        del body["away"]                            # earlier versions do not know this field
    disk.write_atomically(
        f"{directory}/{RUN}", json.dumps(body, separators=(",", ":")).encode()
    )


def stop_class(records: Iterable[RunRecord | None], epoch: int, boot: str) -> str:
    """How the run with this broker epoch ended: the worst of its directories' results. `boot` is
    the current boot id."""
    return max((_one(record, epoch, boot) for record in records), key=STOPS.index, default=LOST)


def _one(record: RunRecord | None, epoch: int, boot: str) -> str:
    if record is None or record.epoch != epoch:
        return MACHINE
    if record.clean:
        return CLEAN
    survived = record.boot == boot and boot != ""
    return CRASH if survived or record.flush == FLUSHED else MACHINE
