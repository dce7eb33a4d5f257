"""A table of Parquet files, defined by its commits; archive, latest and windows write such tables.

    ROOT/data/…                       Parquet files, in directories or not
    ROOT/_ottla/table.json            the table's topic and cluster, the version of this layout
    ROOT/_ottla/notes/NAME.json       notes of later runs, such as the ids of topics that they write
    ROOT/_ottla/commits/NNNNNNNN.json what one batch or compaction added and removed
    ROOT/_ottla/staging/              files that are being written
    ROOT/_ottla/writer.lock           locked by the one writer (on local disks; see `Files.lock`)
    ROOT/_ottla/checkpoint/           Spark's checkpoint

A batch is written to staging. Then its files are moved to data/, under names with the batch number.
Last, its commit is renamed into place, which makes the batch valid. Files that a killed driver left
are in no commit, and the next writer deletes them. There must be only one writer at a time: a
second writer would delete the files that the first is about to commit.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ottla.spark_interop.errors import DataLost, PipelineError
from ottla.spark_interop.pipelines import progress, transactional
from ottla.spark_interop.pipelines.files import Files, Readable

LAYOUT = 1
META, COMMITS, STAGING = "_ottla/table.json", "_ottla/commits", "_ottla/staging"
NOTES = "_ottla/notes"
LOCK = "_ottla/writer.lock"
DRAFTS = "_ottla/."  # how the names of drafts begin; `Files.write` makes them
LABELS = {  # the names of recorded properties in errors
    "to": "the target", "dead_letters": "the dead letters' topic", "by": "`by`",
}  # fmt: skip
SETTINGS = "settings"  # a note: the topic's settings when the table was created
TARGETS = "targets"  # a note, or part of a claim: the ids of destination topics
CLAIM = "ottla-topic.json"  # the topics of a checkpoint outside a table
CHECKPOINT = "_ottla/checkpoint"
FOLD_AFTER = 200  # commits; if there are more, all are merged, so that opening stays fast
Ranges = dict[str, list[int]]
"""Partition (as text, for JSON) to [first offset, last offset, records]."""


@dataclass
class Entry:
    """One data file: its size in bytes, and the offsets in it."""

    bytes: int
    ranges: Ranges

    @property
    def records(self) -> int:
        """How many records the file has."""
        return sum(r[2] for r in self.ranges.values())


@dataclass
class Table:
    """The table at `files.root`, as its commits define it."""

    files: Files
    about: dict[str, Any]
    live: dict[str, Entry] = field(default_factory=dict)
    batches: dict[int, dict[str, Any]] = field(default_factory=dict)
    next_commit: int = 0
    commits: list[str] = field(default_factory=list)
    origin: transactional.Origin | None = None  # checked before a batch is committed

    @classmethod
    def open(cls, files: Files, kind: str) -> Table:
        """The table at a path, read-only. Raises PipelineError if there is none of that kind, or if
        a newer ottla wrote it."""
        check_there(files, kind)
        about = json.loads(files.read(META))
        if about["kind"] != kind:
            raise PipelineError(f"{files.root} was written by `{about['kind']}`, not by `{kind}`")
        if about["layout"] > LAYOUT:
            raise PipelineError(
                f"{files.root} has layout {about['layout']}, but this ottla reads only layouts up "
                f"to {LAYOUT}: install a newer ottla"
            )
        for name in files.list(NOTES):
            base = name.rpartition("/")[2]
            if base.endswith(".json") and not base.startswith("."):
                about[base.removesuffix(".json")] = json.loads(files.read(name))
        table = cls(files, about)
        for name in sorted(n for n in files.list(COMMITS) if n.endswith(".json")):
            if "/." not in name:
                table._apply(name, json.loads(files.read(name)))
        return table

    @classmethod
    @contextmanager
    def writing(
        cls,
        files: Files,
        kind: str,
        about: dict[str, Any],
        origin: transactional.Origin | None = None,
        *,
        create: bool = True,
    ) -> Iterator[Table]:
        """The table for its one writer, without leftovers of a killed writer. With `create`, a
        missing table is created.

        Raises PipelineError if the table is missing and not created, if it belongs to another topic
        or cluster, if the directory has other data, or if another process writes to it.
        """
        if not create:
            check_there(files, kind)
        if not files.exists(META) and has_other_files(files):
            raise PipelineError(
                f"{files.root} has files, but is not a table of `{kind}`: name another path"
            )
        with files.lock(LOCK):
            if not files.exists(META):
                more = {"kind": kind, "layout": LAYOUT, "id": uuid.uuid4().hex}
                files.write(META, json.dumps(more | about, indent=1))
            table = cls.open(files, kind)
            check_same(files, table.about, about)
            table._clean()
            table.origin = origin
            yield table

    def note(self, more: dict[str, Any]) -> None:
        """Adds notes about the table, each in a file of its own."""
        for name, value in more.items():
            self.files.write(f"{NOTES}/{name}.json", json.dumps(value, indent=1))
        self.about |= more

    def _apply(self, name: str, commit: dict[str, Any]) -> None:
        for gone in commit["remove"]:
            self.live.pop(gone, None)
        for path, entry in commit["add"].items():
            self.live[path] = Entry(entry["bytes"], entry["ranges"])
        for number, batch in commit["batches"].items():
            self.batches[int(number)] = batch
        self.commits.append(name)
        self.next_commit = int(name.rpartition("/")[2].removesuffix(".json")) + 1

    def _clean(self) -> None:
        """Deletes files that a killed writer did not commit, and files that a commit replaced."""
        self.files.delete(STAGING)
        for name in self.files.list("data"):
            if name not in self.live and name.endswith(".parquet"):
                self.files.delete(name)

    def stage(self) -> str:
        """A new name in staging for Spark to write to.

        Each write gets a new name, because the JVM of a killed driver may still write to the name
        that it was given.
        """
        return f"{STAGING}/{uuid.uuid4().hex}"

    def adopt(
        self,
        stage: str,
        prefix: str,
        read: Callable[[str, int], Ranges],
        *,
        keep_empty: bool = False,
    ) -> dict[str, Entry]:
        """Moves the staged files to data/, in the same directories, under names with the prefix.

        `read` returns the offset ranges of a file, given its name and size. Files without records
        are left out unless `keep_empty`.
        """
        moved = {}
        staged = self.files.list(stage)
        for number, old in enumerate(sorted(n for n in staged if n.endswith(".parquet"))):
            entry = Entry(staged[old], read(old, staged[old]))
            if entry.records or keep_empty:
                folder = old.removeprefix(f"{stage}/").rpartition("/")[0]
                new = f"data/{folder + '/' if folder else ''}{prefix}-{number:05}.parquet"
                self.files.rename(old, new)
                moved[new] = entry
        self.files.delete(stage)
        return moved

    def commit(
        self,
        add: dict[str, Entry],
        remove: list[str],
        batches: dict[int, dict[str, Any]] | None = None,
    ) -> None:
        """Adds files to the table and removes others, in one step; then deletes the removed files.

        Raises PipelineError if another process also writes to the table, or, for a batch, if the
        topic was created again since the pipeline began.
        """
        if batches and self.origin is not None:
            self.origin.check()
        name = f"{COMMITS}/{self.next_commit:08}.json"
        if self.files.exists(name):
            raise PipelineError(
                f"another process also writes to {self.files.root}: stop one of the two processes"
            )
        commit = {
            "add": {k: {"bytes": e.bytes, "ranges": e.ranges} for k, e in add.items()},
            "remove": remove,
            "batches": {str(k): v for k, v in (batches or {}).items()},
        }
        self.files.write(name, json.dumps(commit))
        self._apply(name, commit)
        for gone in remove:
            self.files.delete(gone)
        if len(self.commits) > FOLD_AFTER:
            self._fold()

    def _fold(self) -> None:
        """Replaces all commits by one commit with all live files."""
        older, self.commits = self.commits, []
        self.commit(dict(self.live), [], dict(self.batches))
        for name in older:
            self.files.delete(name)

    def check_files(self) -> list[str]:
        """Problems of the files themselves: missing files, or files of another size."""
        there = self.files.list("data")
        return [
            f"{self.files.at(name)} "
            + ("is gone" if name not in there
               else f"has {there[name]} bytes, expected {entry.bytes}")
            for name, entry in self.live.items()
            if there.get(name) != entry.bytes
        ]

    def read(self, spark: Any) -> Any:
        """The live files as a frame. Raises DataLost if one is missing or has another size, and
        PipelineError if there are none."""
        problems = self.check_files()
        if problems:
            raise DataLost(
                f"{len(problems)} of {len(self.live)} files differ from what was written: "
                + "; ".join(problems[:8])
            )
        if not self.live:
            raise PipelineError(f"{self.files.root} holds no records yet")
        reader = spark.read.option("basePath", self.files.at("data"))
        return reader.parquet(*[self.files.at(name) for name in sorted(self.live)])


def check_there(files: Readable, kind: str) -> None:
    """Raises PipelineError if there is no table at a path."""
    if not files.exists(META):
        raise PipelineError(f"{files.root} is not a table of `{kind}`: it has no {META}")


def has_other_files(files: Readable) -> bool:
    """Whether a directory without META has files that no pipeline left there. A first run leaves
    its lock and a draft of META if it is killed, or if the disk is full, before META is there."""
    return any(name not in (META, LOCK) and not name.startswith(DRAFTS) for name in files.list())


def claim(checkpoint: Files, about: dict[str, Any], to: transactional.Destination) -> None:
    """Records the topics of a checkpoint. Raises PipelineError if it belongs to other topics."""
    check_claim(checkpoint, about, to)
    if not checkpoint.exists(CLAIM):
        checkpoint.write(CLAIM, json.dumps(about | {TARGETS: target_ids(to)}, indent=1))


def check_claim(checkpoint: Readable, about: dict[str, Any], to: transactional.Destination) -> None:
    """Raises PipelineError if a checkpoint belongs to topics with other names or ids."""
    if checkpoint.exists(CLAIM):
        known = json.loads(checkpoint.read(CLAIM))
        check_same(checkpoint, known, about)
        check_targets(checkpoint, known, to)


def target_ids(to: transactional.Destination) -> dict[str, str | None]:
    """The ids of the destination and progress topics. Another id shows that a topic was created
    again and has lost its records."""
    return to.cluster.topic_ids([*to.topics, progress.TOPIC])


def check_targets(files: Readable, known: dict[str, Any], to: transactional.Destination) -> None:
    """Raises PipelineError if a topic was deleted, or created again, after it was written to."""
    if TARGETS not in known:
        return
    for name, now in target_ids(to).items():
        if known[TARGETS].get(name) != now:
            what = "was deleted" if now is None else "was deleted and created again"
            raise PipelineError(
                f"topic {name} {what} after this pipeline had begun to write to it. Records that"
                f" it had are lost, but {files.root} still counts them as written: to write them"
                " again, use another path and another pipeline name"
            )


def check_same(files: Readable, known: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raises PipelineError if a directory was written from another topic, or with other options.

    Properties that an older version did not record are not compared.
    """
    for key, value in wanted.items():
        if key in known and known[key] != value:
            if key == "topic_id":
                raise PipelineError(
                    f"{files.root} belongs to an earlier topic named {wanted['topic']}, which was"
                    " deleted and created again: the same offsets have other records now; name"
                    " another path"
                )
            label = LABELS.get(key, key)
            raise PipelineError(
                f"{files.root} was written with {label} {known[key]}, but this run has {value}: "
                "this run cannot continue from that directory's checkpoint; name another path"
            )


def totals(entries: dict[str, Entry]) -> Ranges:
    """By partition: the first and last offset, and the number of records."""
    result: Ranges = {}
    for entry in entries.values():
        for partition, (first, last, count) in entry.ranges.items():
            known = result.setdefault(partition, [first, last, 0])
            known[:] = [min(known[0], first), max(known[1], last), known[2] + count]
    return dict(sorted(result.items(), key=lambda item: int(item[0])))
