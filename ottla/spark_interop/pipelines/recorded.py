"""The part of `preflight` that compares a run with what earlier runs recorded at its path.

The pipelines compare the same facts when they run, also for paths that only Spark can read. A fact
that is not recorded, or is about a topic that does not exist yet, is not compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import PipelineError, WrongOption
from ottla.spark_interop.offsets import offsets_from_checkpoint
from ottla.spark_interop.pipelines import (
    archive,
    columns,
    dead_letter,
    mirror,
    table,
    transactional,
    windows,
)
from ottla.spark_interop.pipelines.files import LocalFiles
from ottla.spark_interop.pipelines.steps import Step
from ottla.spark_interop.topics import OWN
from ottla.spark_interop.value_format import Format

SHOWN_MAX = 200  # characters of a schema in an error
UNCOMPARED = "--", "/*", "`", "'"
"""Signs of comments and quoted names; only Spark compares schemas that contain one of them."""


def about(place: Path) -> dict[str, Any] | None:
    """What a table records about itself, with its notes; None if there is no table."""
    files = LocalFiles(place)
    if not files.exists(table.META):
        return None
    found = _fields(files, table.META)
    for name in files.list(table.NOTES):
        note = name.rpartition("/")[2]
        if note.endswith(".json") and not note.startswith("."):
            found[note.removesuffix(".json")] = _json(files, name)
    return found


def _fields(files: LocalFiles, name: str) -> dict[str, Any]:
    """The fields of a recorded JSON object."""
    found = _json(files, name)
    if not isinstance(found, dict):
        raise PipelineError(f"{files.at(name)} cannot be read: it is not a JSON object")
    return found


def _json(files: LocalFiles, name: str) -> Any:
    text = files.read(name)
    try:
        return json.loads(text)
    except ValueError as error:
        raise PipelineError(f"{files.at(name)} cannot be read: {error}") from error


def check_table(
    place: Path, known: Mapping[str, Any], step: Step, given: Mapping[str, Any]
) -> None:
    """Raises PipelineError if a table was written from another topic, or with other options."""
    cluster, topic = Cluster.of(given["bootstrap"]), given["topic"]
    for name, wanted in {"kind": step.name, "topic": topic}.items():
        if known.get(name) != wanted:
            raise PipelineError(
                f"{place} was written with {name} {known.get(name)}, but this run has {wanted}: "
                "name another path"
            )
    _check_options(place, known, step, given)
    if not cluster.exists(topic):
        return
    files, identity = LocalFiles(place), cluster.identity(topic)
    table.check_same(files, dict(known), identity)
    if step.name != "windows":
        return
    origin = transactional.Origin(cluster, topic, identity["topic_id"])
    windows.check_final(files, known, origin, bool(given.get("final")))
    if known.get("to"):
        name = windows.settings_of(with_defaults(step, given))["name"]
        into = windows.destination(dict(identity) | dict(known), known["to"], name, origin)
        table.check_targets(files, dict(known), into)


def _check_options(
    place: Path, known: Mapping[str, Any], step: Step, given: Mapping[str, Any]
) -> None:
    options = with_defaults(step, given)
    wanted: dict[str, Any] = {}
    if step.name == "archive":
        wanted = {name: options[name] for name in archive.RECORDED}
    elif step.name == "windows":
        wanted = windows.settings_of(options)
        _check_schema(place, known, options)
    for name, value in wanted.items():
        if name in known and known[name] != value:
            default = "" if given.get(name) is not None or not value else " (the default)"
            raise WrongOption(
                f"{place} was written with {_named(name, known[name])}, but this run has "
                f"{_named(name, value)}{default}: {_again(name, known[name])}, or name another"
                " path", name,
            )


def with_defaults(step: Step, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a step's function: the given options, and the defaults of the others."""
    function = getattr(import_module(step.module), step.function)
    defaults = {name: each.default for name, each in signature(function).parameters.items()}
    return defaults | {name: value for name, value in given.items() if value is not None}


def _check_schema(place: Path, known: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    given, before = Format(options["format"], options["schema"], options["schemas"]), "schema"
    if before not in known or known.get("format") != given.name:
        return
    if given.name == "json":
        same, now = _same_columns(known[before], given), given.text.strip()
    else:
        now = "" if given.schema is None else given.text.strip()
        same = known[before] == now
    if not same:
        was, now = (_shortened(text) or "no schema" for text in (known[before], now))
        raise PipelineError(
            f"{place} was written with the schema {was}, but this run has {now}: give the same "
            "schema again, or name another path"
        )


def _same_columns(before: str, given: Format) -> bool:
    """Whether a recorded schema of JSON has the column names of the given one; true also if only
    Spark can tell. Types are not compared, since only Spark understands all of them."""
    found = columns.columns_of(given)
    names = [] if found is None else found[: -len(OWN)]
    quoted = not all(re.fullmatch(r"\w+", name) for name in names)
    if not names or quoted or any(mark in given.text + before for mark in UNCOMPARED):
        return True
    parts = list(columns.parts(before))
    return len(parts) == len(names) and all(
        part.lstrip().startswith(f"{name} ") for part, name in zip(parts, names, strict=True)
    )


def _shortened(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_MAX else f"{line[:SHOWN_MAX]}…"


def _named(name: str, value: Any) -> str:
    """An option with its value; the name is in backquotes."""
    if isinstance(value, bool):
        return f"`{name}`" if value else f"no `{name}`"
    return f"`{name}` {_text(value)}" if value else f"no `{name}`"


def _again(name: str, value: Any) -> str:
    return f"give {_named(name, value)} again" if value else f"leave `{name}` out"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {sql}" for name, sql in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def check_checkpoint(place: Path, step: Step, given: Mapping[str, Any]) -> None:
    """Raises PipelineError if a checkpoint outside a table belongs to other topics."""
    topic, source = given["topic"], Cluster.of(given.get("bootstrap") or given["source"])
    files = LocalFiles(place)
    if not files.exists(table.CLAIM):
        _check_topics(place, topic)
        return
    known = _fields(files, table.CLAIM)
    if known.get("topic") != topic or not source.exists(topic):
        table.check_same(files, known, {"topic": topic})
        return
    if step.name == "mirror":
        there = Cluster.of(given["destination"])
        claimed, into = mirror.claim_of(source, topic, there, given.get("to"), given.get("name"))
    else:
        names = given["to"], given["dead_letters"]
        claimed, into = dead_letter.claim_of(source, topic, names, given.get("name"))
    table.check_claim(files, claimed, into)


def _check_topics(place: Path, topic: str) -> None:
    """Raises PipelineError if a checkpoint is of a query that reads other topics."""
    if not any((place / "commits").glob("[0-9]*")):
        return
    read = sorted(offsets_from_checkpoint(place))
    if read != [topic]:
        raise PipelineError(
            f"{place} is the checkpoint of a query that reads {', '.join(read)}, but this run reads"
            f" {topic}: name another path"
        )
