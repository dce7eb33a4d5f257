"""The last week in SQLite: points 10 s apart for the last hour, 1 min apart for the last day, and
10 min apart for the whole week.

A series is a kind (total, topic, group), a name and a measure. The point of an interval is the last
value in it. A series is deleted if it has had no new point for a week. Each cluster has at
most SERIES_MAX series. If there are that many, a new series replaces the one that has had no new
point for longest. If all of them still get points, the new series is not kept.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

LEVELS = ((10, 3600), (60, 86400), (600, 7 * 86400))
"""For each level: the seconds between two points, and the seconds for which a point is kept."""
SERIES_MAX = 2200
"""Enough for everything that one user sees (`recorder`): four totals, three series for each of 300
topics, four for each of 300 groups."""
SILENT_SECONDS = 600
"""A series without a new point for this long may be deleted to make room for another series."""
SCHEMA = """
create table if not exists series (
  id integer primary key, cluster text, kind text, name text, measure text, written integer,
  unique (cluster, kind, name, measure));
create table if not exists point (
  series integer, level integer, time integer, value real,
  primary key (series, level, time)) without rowid;
"""


log = logging.getLogger("ottla.console")
Key = tuple[str, str, str]


class Sample(NamedTuple):
    """A value of a series."""

    kind: str
    name: str
    measure: str
    value: float


class History:
    """Points of one cluster, in a file that other consoles may use too. Safe for use by threads."""

    def __init__(self, path: Path | None) -> None:
        self.lock = threading.Lock()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.connection = sqlite3.connect(
            str(path) if path is not None else ":memory:", check_same_thread=False, timeout=5)
        with self.lock, self.connection:
            self.connection.execute("pragma journal_mode=wal")
            self.connection.execute("pragma synchronous=normal")
            self.connection.execute("pragma cache_size=-2000")
            self.connection.executescript(SCHEMA)
        self.cluster = ""
        self.ids: dict[Key, int] = {}
        self._told = False

    def begin(self, cluster: str) -> None:
        """Write and read the series of this cluster from now on."""
        with self.lock:
            if cluster != self.cluster:
                self.cluster = cluster
                self._read_ids()

    def _read_ids(self) -> None:
        self.ids = {
            (kind, name, measure): series
            for kind, name, measure, series in self.connection.execute(
                "select kind, name, measure, id from series where cluster = ?", (self.cluster,))
        }

    def write(self, samples: Iterable[Sample], now: float | None = None) -> None:
        """Adds each sample to its series as a point."""
        moment = int(time.time() if now is None else now)
        with self.lock:
            try:
                with self.connection:
                    self._write(samples, moment)
            except BaseException:
                self._read_ids()        # the transaction's new series are not in the file
                raise

    def _write(self, samples: Iterable[Sample], moment: int) -> None:
        rows, silent = [], self._silent(moment)
        for sample in samples:
            if (series := self._series(sample, moment, silent)) is not None:
                rows += [
                    (series, level, moment - moment % step, sample.value)
                    for level, (step, _) in enumerate(LEVELS)
                ]
        self.connection.executemany("insert or replace into point values (?, ?, ?, ?)", rows)
        self.connection.executemany(
            "update series set written = ? where id = ?", {(moment, row[0]) for row in rows})

    def _silent(self, moment: int) -> Iterator[Key]:
        """The series without a new point for SILENT_SECONDS, the longest silent first."""
        yield from self.connection.execute(
            "select kind, name, measure from series where cluster = ? and written < ?"
            " order by written", (self.cluster, moment - SILENT_SECONDS)).fetchall()

    def _make_room(self, silent: Iterator[Key]) -> bool:
        """Deletes a silent series. If there is none, returns False, and logs this once."""
        for key in silent:
            if (series := self.ids.pop(key, None)) is not None:
                self.connection.execute("delete from point where series = ?", (series,))
                self.connection.execute("delete from series where id = ?", (series,))
                return True
        if not self._told:
            self._told = True
            log.warning(
                "the history has reached its limit of %d series: further topics and groups get no"
                " graphs", SERIES_MAX)
        return False

    def _series(self, sample: Sample, moment: int, silent: Iterator[Key]) -> int | None:
        key = (sample.kind, sample.name, sample.measure)
        if key not in self.ids:
            if len(self.ids) >= SERIES_MAX and not self._make_room(silent):
                return None
            made = self.connection.execute(
                "insert into series (cluster, kind, name, measure, written) values (?, ?, ?, ?, ?)"
                " on conflict do update set written = excluded.written returning id",
                (self.cluster, *key, moment)).fetchone()
            self.ids[key] = made[0]
        return self.ids[key]

    def trim(self, now: float | None = None) -> None:
        """Delete points that are too old for their level, and series not written for a week."""
        moment = int(time.time() if now is None else now)
        with self.lock, self.connection:
            for level, (_, kept) in enumerate(LEVELS):
                self.connection.execute(
                    "delete from point where level = ? and time < ?", (level, moment - kept))
            self.connection.execute(
                "delete from series where written < ?", (moment - LEVELS[-1][1],))
            alive = {row[0] for row in self.connection.execute("select id from series")}
            self.ids = {key: one for key, one in self.ids.items() if one in alive}

    def points(
        self, kind: str, name: str, measure: str, seconds: int, now: float | None = None
    ) -> list[tuple[int, float]]:
        """The points of the last `seconds`, from the finest level that keeps points for so long."""
        moment = int(time.time() if now is None else now)
        level = next(
            (level for level, (_, kept) in enumerate(LEVELS) if kept >= seconds), len(LEVELS) - 1)
        with self.lock:
            series = self.ids.get((kind, name, measure))
            return self.connection.execute(
                "select time, value from point where series = ? and level = ? and time >= ?"
                " order by time", (series, level, moment - seconds)).fetchall()

    def close(self) -> None:
        """Close the file."""
        with self.lock:
            self.connection.close()
