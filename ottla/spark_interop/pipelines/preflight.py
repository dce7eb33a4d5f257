"""Checks before a JVM starts: the options of all steps, then the brokers, topics, rights and paths
of each step, in the steps' order.

A step may read what an earlier step writes, so topics and paths that an earlier step will create
count as existing. Spark checks paths on other file systems than the local one.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

from ottla.client.similar_names import beside, similar
from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import PipelineError, WrongOption
from ottla.spark_interop.pipelines import (
    archive,
    columns,
    dead_letter,
    mirror,
    progress,
    quality,
    recorded,
    replay,
    slice,
    targets,
    windows,
)
from ottla.spark_interop.pipelines.files import LocalFiles
from ottla.spark_interop.pipelines.steps import ADDRESSES, Step
from ottla.spark_interop.pipelines.table import META, SETTINGS, has_other_files
from ottla.spark_interop.times import WORDS, duration_ms, interval, milliseconds
from ottla.spark_interop.value_format import Format

TABLES = {"archive", "latest", "windows"}  # steps that create a table at their path
READERS = {"compact", "verify", "replay"}  # steps that need an archive at their path
READ_SETTINGS = {"mirror", "dead-letter"}
"""Steps that need the settings of the topic that they read. `archive` needs them in its first run;
`latest` only if offsets have no records, such as those of transaction markers: not checked."""
INTERVALS = ("window", "slide", "watermark", "every")
LENGTHS = ("window", "slide")
UNITS = {
    "interval", "microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month",
    "year",
}
CHECKS: dict[str, tuple[Callable[..., None], ...]] = {
    "archive": (archive.check_options,),
    "windows": (windows.check_options, windows.check_windows),
    "dead-letter": (dead_letter.check_options,),
    "replay": (replay.check_options,), "quality-report": (quality.check_options,),
    "slice": (slice.check_options,),
}  # fmt: skip
"""A pipeline's own checks of its options. Their parameters have the names of the options."""
OPERATIONS = {
    "READ": ("read", "Read"), "WRITE": ("write", "Write"),
    "DESCRIBE_CONFIGS": ("read the settings of", "DescribeConfigs"),
}  # fmt: skip
"""By librdkafka's name of an operation: what it does to a topic, and its name in ACLs."""
SCHEMA_FILES = (".avsc", ".proto", ".ddl", ".json")


@dataclass
class Made:
    """The topics and paths that earlier steps will have created."""

    topics: dict[tuple[str, str], int] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)
    reached: set[str] = field(default_factory=set)


def check_values(todo: list[tuple[Step, dict[str, Any]]], where: str | None = None) -> None:
    """Raises PipelineError for the first step with a wrong option. Looks at the options alone. If
    `where`, the name of the file of steps, is given, the error also names the file and the step's
    number."""
    _check_all(todo, where, _check_values)


def check(todo: list[tuple[Step, dict[str, Any]]], where: str | None = None) -> None:
    """Raises PipelineError for the first step that cannot run; `where` is that of `check_values`,
    which is called first."""
    _check_all(todo, where, _check_files, _check_formats, _check_step)


def _check_all(
    todo: list[tuple[Step, dict[str, Any]]], where: str | None,
    *checks: Callable[[Step, Mapping[str, Any], Made], None],
) -> None:
    """Each check covers all steps before the next check begins: a missing file of the last step is
    reported before a missing topic of the first."""
    made = Made()
    for check_one in checks:
        for number, (step, given) in enumerate(todo, 1):
            try:
                check_one(step, given, made)
            except PipelineError as error:
                if where is None:
                    raise
                raise PipelineError(f"{where}, step {number} ({step.name}): {error}") from None


def _check_step(step: Step, given: Mapping[str, Any], made: Made) -> None:
    if given.get("topic") and (format := _format_of(step, given)) is not None:
        format.at(given["topic"])    # loads schemas from their directory or registry
    for name in ADDRESSES:
        if given.get(name):
            cluster = Cluster.of(given[name])
            if cluster.bootstrap not in made.reached:
                cluster.spark_options()     # checks the security properties
                cluster.meet()
                made.reached.add(cluster.bootstrap)
    address = given.get("bootstrap") or given.get("source")
    partitions = None
    if address and given.get("topic") and step.name != "replay":
        partitions = _check_read(Cluster.of(address), given["topic"], made)
        if (Cluster.of(address).bootstrap, given["topic"]) not in made.topics:
            _check_settings_read(step, given, Cluster.of(address))
    _check_paths(step, given, made)
    if step.name == "mirror":
        there = Cluster.of(given["destination"])
        mirror.check_target(Cluster.of(given["source"]), given["topic"], there,
                            given.get("to") or given["topic"])  # fmt: skip
    if address:
        _check_written(step, given, Cluster.of(given.get("destination") or address),
                       partitions, made)  # fmt: skip


def _check_values(step: Step, given: Mapping[str, Any], _: Made) -> None:
    """Checks the options alone."""
    for option in step.options:
        value = given.get(option.name)
        if option.kind == "count" and value is not None and value < 1:
            raise WrongOption(
                f"{value} is not valid for `{option.name}`: use 1 or more", option.name)
        if option.choices and value is not None and value not in option.choices:
            raise WrongOption(
                f"{value!r} is not valid for `{option.name}`: use {' or '.join(option.choices)}"
                f"{similar(str(value), option.choices)}", option.name
            )
    for name in INTERVALS:
        if given.get(name):
            _check_interval(name, str(given[name]), bool(given.get("session_gap")))
    zone = given.get("time_zone") or "UTC"
    since, until = (
        None if given.get(name) is None else milliseconds(given[name], zone)
        for name in ("since", "until")
    )
    if since is not None and until is not None and since >= until:
        raise WrongOption(
            f"`since` {given['since']} is not before `until` {given['until']}: there is no record"
            " between them, because `until` is excluded", "since", "until")
    if given.get("lateness"):
        _check_lateness(given["lateness"], until)
    for check_options in CHECKS.get(step.name, ()):
        check_options(**{name: given.get(name) for name in signature(check_options).parameters})
    _format_of(step, given)
    for name in ADDRESSES:
        if given.get(name):
            Cluster.of(given[name]).addresses()


def _check_lateness(lateness: str, until: int | None) -> None:
    try:
        duration_ms(lateness)
    except PipelineError as error:
        raise WrongOption(f"`lateness`: {error}", "lateness") from None
    if until is None:
        raise WrongOption(
            "`lateness` has an effect only with `until`: give `until`, too, or leave out"
            " `lateness`", "lateness", "until")


def _check_formats(step: Step, given: Mapping[str, Any], _: Made) -> None:
    """Checks the format, and the columns of its schema."""
    if (format := _format_of(step, given)) is not None:
        _check_columns(given, format)


def _format_of(step: Step, given: Mapping[str, Any]) -> Format | None:
    """The format in which a step reads values; None if the step does not read values."""
    if not any(option.name == "format" for option in step.options):
        return None
    options = recorded.with_defaults(step, given)
    return Format(options["format"], options["schema"], options["schemas"])


def _check_columns(given: Mapping[str, Any], format: Format) -> None:
    known = columns.columns_of(format)
    if known is None:
        return
    columns.check_columns(known, given.get("by") or (), "by")
    if given.get("time_column"):
        columns.check_columns(known, [given["time_column"]], "time_column")
        if (kind := columns.type_in(format, given["time_column"])) is not None:
            windows.check_time_column(given["time_column"], kind)
    columns.check_expressions(known, given.get("aggregates") or {}, "aggregates")


def _check_interval(name: str, text: str, session_gap: bool) -> None:
    """Refuses a wrong or missing unit, which would fail only in the JVM. Spark accepts numbers with
    units, such as '1 day 6 hours'."""
    try:
        text = interval(text)
    except PipelineError as error:
        raise WrongOption(f"`{name}`: {error}", name) from None
    words = re.findall(r"[a-z]+", text.lower())
    unknown = [word for word in words if word.removesuffix("s") not in UNITS]
    without_unit = re.search(r"\d(?!\w)\s*($|[\d+-])", text)
    if name in LENGTHS and not unknown:
        _check_length(name, text, [] if session_gap else words)
    if unknown or without_unit or not re.search(r"\d", text):
        raise WrongOption(
            f"{text!r} is not valid for `{name}`: write a number and a unit, such as 10m or"
            f" '10 minutes'; units: {', '.join(WORDS)}, {', '.join(WORDS.values())} …", name
        )


def _check_length(name: str, text: str, words: list[str]) -> None:
    """Refuses lengths of windows that only Spark's own error would explain, after its start. With
    `session_gap`, Spark accepts months and years; then `words` is empty."""
    if any(word.removesuffix("s") in ("month", "year") for word in words):
        raise WrongOption(
            f"{text!r} is not valid for `{name}`: months and years have no fixed length; write days"
            " or weeks", name)
    if not re.search(r"[1-9]", text):
        raise WrongOption(f"{text!r} is not valid for `{name}`: it must be above 0", name)


def _check_files(_: Step, given: Mapping[str, Any], __: Made) -> None:
    schema, schemas = given.get("schema"), given.get("schemas")
    if isinstance(schema, str) and schema.endswith(SCHEMA_FILES) and not Path(schema).is_file():
        raise PipelineError(
            f"the schema {schema} cannot be read: no such file{_near(Path(schema))}")
    if schemas is not None and "://" not in str(schemas) and not Path(schemas).is_dir():
        raise WrongOption(f"`schemas` is {schemas}, which is not a directory", "schemas")
    output = given.get("output")
    if output not in (None, "-"):
        if Path(output).exists():
            raise PipelineError(f"{output} already exists: name another output file")
        _check_writable(Path(output).absolute().parent, made=False)
    if given.get("html"):
        _check_writable(Path(given["html"]).absolute().parent, made=False)


def _check_read(cluster: Cluster, topic: str, made: Made) -> int:
    """Checks that a topic can be read; returns the number of its partitions."""
    if (cluster.bootstrap, topic) in made.topics:
        return made.topics[cluster.bootstrap, topic]
    count = len(cluster.partitions(topic))
    _check_right(cluster, topic, "READ")
    return count


def _check_settings_read(step: Step, given: Mapping[str, Any], cluster: Cluster) -> None:
    """Checks that the settings of the topic may be read, if the step needs them."""
    needed = step.name in READ_SETTINGS
    if step.name == "archive" and (place := _local(given["path"])) is not None:
        needed = SETTINGS not in (recorded.about(place) or {})
    if needed:
        _check_right(cluster, given["topic"], "DESCRIBE_CONFIGS")


def _check_right(cluster: Cluster, topic: str, *needed: str) -> None:
    """Raises PipelineError for the first of these operations that is not allowed on a topic."""
    rights = cluster.rights(topic)
    for wanted in needed:
        if rights and wanted not in rights:
            does, operation = OPERATIONS[wanted]
            raise PipelineError(
                f"not authorized to {does} topic {topic} at {cluster.bootstrap}: allow the "
                f"operation {operation} on it"
            )


def _check_written(
    step: Step, given: Mapping[str, Any], cluster: Cluster, partitions: int | None, made: Made
) -> None:
    """Checks each topic that a step writes: either it exists, has enough partitions and may be
    written, or it may be created."""
    names = [str(given[o.name]) for o in step.options if o.creates_topic and given.get(o.name)]
    if step.name == "mirror" and not names:
        names = [given["topic"]]
    keeps_partitions = step.name in ("dead-letter", "mirror")
    for name in names:
        wanted = partitions if keeps_partitions and partitions else 1
        if (cluster.bootstrap, name) in made.topics:
            continue
        if step.name == "replay":
            wanted = _archived_partitions(given["path"])
            if (place := _local(given["path"])) is not None:
                replay.refuse_own_topic(cluster, name, recorded.about(place) or {})
        if cluster.exists(name):
            _check_right(cluster, name, "WRITE", "DESCRIBE_CONFIGS")
            targets.check_partitions(cluster, name, wanted)
        elif step.name == "replay" and not given.get("create"):
            targets.raise_missing(cluster, name)
        elif not given.get("dry_run") and not cluster.create(name, wanted, check_only=True):
            # The topic exists, but this user may not describe it.
            _check_right(cluster, name, "WRITE", "DESCRIBE_CONFIGS")
        made.topics[cluster.bootstrap, name] = wanted
    if names and not given.get("dry_run"):
        _check_own_topic(cluster, progress.TOPIC, progress.PARTITIONS,
                         ("READ", "WRITE", "DESCRIBE_CONFIGS"))  # fmt: skip
        if step.name == "mirror":
            _check_own_topic(cluster, f"{names[0]}.offsets", 1, ("WRITE",))
    place = _local(given["path"]) if step.name == "replay" else None
    if place is not None and (archived := recorded.about(place)) is not None:
        replay.refuse_other_source(cluster, names[0], archived, given)


def _check_own_topic(
    cluster: Cluster, topic: str, partitions: int, operations: tuple[str, ...]
) -> None:
    """Checks a topic that pipelines need for themselves, such as the progress topic: it may be
    created, or it exists and these operations on it are allowed."""
    if cluster.exists(topic) or not cluster.create(topic, partitions, check_only=True):
        _check_right(cluster, topic, *operations)


def _check_paths(step: Step, given: Mapping[str, Any], made: Made) -> None:
    if step.name in READERS or given.get("archive"):
        _check_table(str(given.get("archive") or given["path"]), "archive", made)
    if step.name == "check-history" and not Path(given["path"]).exists():
        raise PipelineError(f"{given['path']} does not exist{_near(Path(given['path']))}")
    if step.name in TABLES:
        place = _local(given["path"])
        if place is not None:
            _check_writable(place)
            _check_own_table(place, step, given)
        made.paths.add(_same(given["path"]))
    if given.get("checkpoint") and (place := _local(given["checkpoint"])) is not None:
        _check_writable(place)
        recorded.check_checkpoint(place, step, given)


def _local(path: Any) -> Path | None:
    return None if "://" in str(path) else Path(path).absolute()


def _same(path: Any) -> str:
    """One text for all spellings of a path."""
    place = _local(path)
    return str(path) if place is None else os.path.normpath(place)


def _check_writable(place: Path, made: bool = True) -> None:
    """Check that a directory may be written to or, if `made`, can be created."""
    there = place
    while made and not there.exists():
        there = there.parent
    if not there.exists():
        raise PipelineError(f"{there} does not exist")
    if not there.is_dir():
        raise PipelineError(f"{there} is not a directory; name another path")
    try:        # for root os.access returns True even if no file can be created, as in /proc
        os.rmdir(tempfile.mkdtemp(prefix=".ottla-", dir=there))
    except OSError as error:
        raise PipelineError(
            f"cannot create files in {there}: {error.strerror}; name another path"
        ) from error


def _check_own_table(place: Path, step: Step, given: Mapping[str, Any]) -> None:
    known = recorded.about(place)
    if known is not None:
        recorded.check_table(place, known, step, given)
    elif has_other_files(LocalFiles(place)):
        raise PipelineError(
            f"{place} has files, but is not a table of `{step.name}`: name another path"
        )


def _check_table(path: str, kind: str, made: Made) -> None:
    place = _local(path)
    if place is None or _same(path) in made.paths:
        return
    about = recorded.about(place)
    if about is None:
        raise PipelineError(
            f"{place} is not a table of `{kind}`: it "
            + (f"has no {META}" if place.exists() else f"does not exist{_near(place, META)}")
        )
    if about.get("kind") != kind:
        raise PipelineError(
            f"{place} was written by `{about.get('kind')}`, but this command needs a table of "
            f"`{kind}`: name another path"
        )


def _near(place: Path, content: str = "") -> str:
    """A hint: the names in the same directory that resemble a missing name. With `content`, only
    directories that contain it are named."""
    known = [one.name for one in beside(str(place)) if Path(one.path, content).exists()]
    return similar(place.name, known)


def _archived_partitions(path: Any) -> int:
    """How many partitions the records of a local archive need; 1 if it does not exist yet."""
    place, most = _local(path), 0
    commits = [] if place is None else sorted((place / "_ottla" / "commits").glob("[0-9]*.json"))
    for commit in commits:
        for entry in json.loads(commit.read_text())["add"].values():
            most = max(most, *map(int, entry["ranges"] or {"0": 0}))
    return most + 1
