"""The pipelines by name, with their options: one declaration for the command and for TOML files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from ottla.client.addresses import DEFAULT_ADDRESS, VARIABLE, default_addresses
from ottla.client.similar_names import similar
from ottla.spark_interop.errors import PipelineError, WrongOption

KINDS = {
    "text": str, "path": str, "count": int, "number": float, "flag": bool, "list": list,
    "table": dict,
}  # fmt: skip


@dataclass(frozen=True)
class Option:
    """One option: `kind` is a key of KINDS; a flag is false by default.

    `unless` and `needs` name other options: the option has no effect on a step that has an option
    of `unless`, or lacks one of `needs`. Above the steps of a file it may stand nevertheless, for
    the other steps.
    """

    name: str
    what: str
    kind: str = "text"
    required: bool = False
    creates_topic: bool = False
    choices: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """A pipeline: the function that runs it, and the options, which are its arguments."""

    name: str
    module: str
    function: str
    what: str
    example: str
    options: tuple[Option, ...] = field(default=())

    def writes_topic(self, given: Mapping[str, Any]) -> bool:
        """Whether a step with these options writes to a topic; if so, it uses transactions."""
        return self.name == "mirror" or any(
            option.creates_topic and given.get(option.name) for option in self.options)

    def run(self, spark: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """Call the function with the options that were given."""
        function = getattr(import_module(self.module), self.function)
        return dict(function(spark, **{key: given[key] for key in given if given[key] is not None}))


BOOTSTRAP = Option(
    "bootstrap", f"the cluster's address; ${VARIABLE} or {DEFAULT_ADDRESS} if left out"
)
TOPIC = Option("topic", "the topic to read", required=True)
PATH = Option("path", "the directory of the result", "path", True)
ARCHIVE = Option("path", "the directory of the archive", "path", True)
EVERY = Option(
    "every",
    "read new records at this interval, e.g. 1m or '1 minute', until stopped; by default, end when "
    "all is read",
)
BATCH = Option(
    "records_per_batch",
    "the maximum number of records in a batch; limits memory, and the work repeated after a crash",
    "count",
)
GAPS = Option("allow_gaps", "continue after records that were deleted unread", "flag")
SINCE = Option("since", "begin at this time: 2013-06-01, 2013-06-01T12:30+02:00 or epoch ms")
UNTIL = Option("until", "end before this time")
ZONE = Option("time_zone", "the time zone of since and until, if they name none; UTC by default")
FORMAT = (
    Option("format", "raw, text, json, avro or protobuf (by default raw; for windows json)"),
    Option("schema", "DDL text (for json), or the path of a .ddl, .json, .avsc or .proto file"),
    Option("schemas", "a directory of ID.avsc or ID.proto files, or a registry's address", "path"),
)
NAME = Option("name", "the name under which the progress is kept")
ADDRESSES = ("bootstrap", "source", "destination")
AT = "ottla.spark_interop.pipelines."
LOCAL = "--bootstrap-server localhost:9092"

STEPS = (
    Step(
        "archive", AT + "archive", "archive", "append a topic to Parquet files by date and hour",
        f"ottla pipeline archive {LOCAL} --topic flights --path flights-archive --by date",
        (BOOTSTRAP, TOPIC, PATH,
         Option("by", "hour (default) or date: a directory for each; none: one directory for all",
                choices=("hour", "date", "none")), EVERY,
         Option("starting", "where the first run on --path begins: earliest (default), latest or "
                "offsets in Spark's JSON"), BATCH,
         Option("isolation", "read_committed (default) or read_uncommitted",
                choices=("read_committed", "read_uncommitted")), GAPS),
    ),
    Step(
        "compact", AT + "archive", "compact", "merge the small files of an archive",
        "ottla pipeline compact --path flights-archive",
        (ARCHIVE,
         Option("small_bytes", "files below this size are small; 64 MiB by default", "count"),
         Option("files_min", "do not merge fewer small files than this, 2 by default", "count")),
    ),
    Step(
        "verify", AT + "archive", "verify", "check an archive, and compare it with its topic",
        f"ottla pipeline verify --path flights-archive {LOCAL}",
        (ARCHIVE, Option("bootstrap", "compare with the topic at this address")),
    ),
    Step(
        "replay", AT + "replay", "replay", "write an archive back into a topic",
        f"ottla pipeline replay {LOCAL} --path flights-archive --topic flights-again --create",
        (ARCHIVE, BOOTSTRAP,
         Option("topic", "the topic to write, in transactions", "text", True, True), NAME, SINCE,
         UNTIL, ZONE, Option("rate", "the maximum number of records per second", "number"),
         Option("timestamps", "original (default) or now"),
         Option("create", "create the topic if it does not exist", "flag"),
         Option("dry_run", "only count, write nothing", "flag")),
    ),
    Step(
        "latest", AT + "latest", "latest", "keep a table of the newest value of each key",
        f"ottla pipeline latest {LOCAL} --topic flights --path flights-latest",
        (BOOTSTRAP, TOPIC, PATH, EVERY, BATCH, GAPS),
    ),
    Step(
        "windows", AT + "windows", "windows", "aggregate by windows of event time",
        f"ottla pipeline windows {LOCAL} --topic flights --path flights-hours --window '1 day' "
        "--schema 'carrier STRING, dep_delay INT, time_hour TIMESTAMP' --time-column time_hour "
        "--by carrier --aggregates 'flights = count(*)' 'delay = avg(dep_delay)'",
        (BOOTSTRAP, TOPIC, Option("path", "the directory of state and result", "path", True),
         Option("window", "the length of a window, e.g. 1h or '1 hour'", "text", True),
         Option("aggregates", "column = SQL, e.g. 'flights = count(*)'", "table", True),
         Option("time_column", "the event time; the record's timestamp by default"),
         Option("by", "columns to group by", "list"),
         Option("slide", "begin a new window at this interval, so that windows overlap",
                unless=("session_gap",)),
         Option("session_gap",
                "a window ends when its group has no row for the length of --window", "flag"),
         Option("watermark", "how late rows may be, '1 hour' by default"), *FORMAT,
         Option("to", "write the result to this topic; by default, to Parquet files in --path",
                "text", False, True), NAME,
         Option("updates", "write changes before a window is final (topics only)", "flag",
                needs=("to",)),
         Option("final", "the topic gets no more records: close the last windows, too", "flag"),
         replace(EVERY, unless=("final",)), BATCH, GAPS),
    ),
    Step(
        "dead-letter", AT + "dead_letter", "dead_letter",
        "copy good records to one topic, bad ones to another",
        f"ottla pipeline dead-letter {LOCAL} --topic flights --to flights-good "
        "--dead-letters flights-bad --checkpoint flights-state "
        "--format json --schema 'carrier STRING NOT NULL, dep_delay INT'",
        (BOOTSTRAP, TOPIC, Option("to", "the topic of good records", "text", True, True),
         Option("dead_letters", "the topic of bad records", "text", True, True),
         Option("checkpoint", "the directory of the progress", "path", True), *FORMAT, NAME,
         Option("share_max", "end if the share of bad records in a batch is above this, e.g. 0.05; "
                "batches below 100 records are not checked", "number"),
         EVERY, BATCH, GAPS),
    ),
    Step(
        "mirror", AT + "mirror", "mirror", "copy a topic to another cluster",
        "ottla pipeline mirror --source localhost:9092 --topic flights "
        "--destination localhost:9192 --checkpoint mirror-state",
        (Option("source", "the address of the cluster to read", required=True), TOPIC,
         Option("destination", "the address of the cluster to write", required=True),
         Option("checkpoint", "the directory of the progress", "path", True),
         Option("to", "the topic to write; the same name by default", "text", False, True), NAME,
         EVERY, BATCH, GAPS),
    ),
    Step(
        "slice", AT + "slice", "slice_topic", "print or save the records of a time range",
        f"ottla pipeline slice {LOCAL} --topic flights --since 2013-06-01 --until 2013-06-02 "
        "--time-zone America/New_York --limit 5",
        (BOOTSTRAP, TOPIC, SINCE, UNTIL, ZONE,
         Option("lateness", "stop at the first record that is later than --until by this much, "
                "e.g. 1h; by default, read to the end of the topic", needs=("until",)), *FORMAT,
         Option("output", "a file of JSON lines, or NAME.parquet; by default - (standard output)",
                "path"),
         Option("limit", "the maximum number of records", "count")),
    ),
    Step(
        "quality-report", AT + "quality", "quality_report", "measure a topic or an archive",
        f"ottla pipeline quality-report {LOCAL} --topic flights --format json "
        "--schema 'carrier STRING, dep_delay INT, time_hour TIMESTAMP' --html flights.html",
        (BOOTSTRAP, Option("topic", "the topic", unless=("archive",)),
         Option("archive", "the directory of an archive, instead of a topic", "path",
                unless=("topic",)), *FORMAT,
         SINCE, UNTIL, Option("html", "write a page with plots to this file", "path")),
    ),
    Step(
        "check-history", "ottla.spark_interop.history", "check_history_file",
        "check a recorded history of sends, polls and transactions",
        "ottla pipeline check-history --path history.jsonl",
        (Option("path", "a file of JSON lines, or Parquet with the same columns", "path", True),
         Option("small", "check without Spark; the history must fit into memory", "flag"),
         Option("not_idempotent", "producers were not idempotent: duplicates are legal", "flag")),
    ),
)  # fmt: skip
BY_NAME = {step.name: step for step in STEPS}


def check_options(step: Step, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The checked options. Raises PipelineError if an option is unknown, missing or of the wrong
    kind. If `topic` is given without `bootstrap`, adds the default address of all `ottla`
    commands."""
    known = {option.name: option for option in step.options}
    for key, value in given.items():
        if key not in known:
            near = similar(key, known) or f"; its options are {', '.join(known)}"
            raise PipelineError(f"{where}: {step.name} has no option {key!r}{near}")
        kind = KINDS[known[key].kind]
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            continue
        if value is not None and (not isinstance(value, kind) or (kind is int and value is True)):
            raise WrongOption(f"{where}: `{key}` must be a {known[key].kind}, not {value!r}", key)
        for sql in value.values() if isinstance(value, dict) else ():
            if not isinstance(sql, str):
                raise WrongOption(f"{where}: the SQL in `{key}` must be a text, not {sql!r}", key)
    missing = [o.name for o in step.options if o.required and given.get(o.name) is None]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        raise WrongOption(f"{where}: {step.name} needs {names}", *missing)
    found = {
        key: _at_home(key, value, where) if known[key].kind == "path" and value else value
        for key, value in given.items()
    }
    if "bootstrap" in known and given.get("topic") is not None:
        found["bootstrap"] = given.get("bootstrap") or default_addresses()
    return found


def _at_home(key: str, value: str, where: str) -> str:
    """A path with the home directory in place of ~. A shell leaves the ~ of `--path=~/archive`; in
    a file, nothing else replaces it. Raises PipelineError if a former version, which did not
    replace it, has written to a directory of the name ~."""
    path = os.path.expanduser(value)
    if path != value and os.path.lexists(value) and not os.path.lexists(path):
        raise WrongOption(
            f"{where}: `{key}` {value} is {path}, which does not exist, but ./{value} does: a"
            f" former version wrote there. Move it to {path}, or write ./{value}", key)
    return path


def load_file(
    path: str | Path, bootstrap: str | None = None
) -> list[tuple[Step, dict[str, Any]]]:
    """The steps of a TOML file, checked as far as possible without a cluster.

        bootstrap = "localhost:9092"        # an option that several steps have in common
        [[step]]
        run = "archive"
        topic = "flights"
        path = "flights-archive"

    The argument `bootstrap` takes precedence over the file's common `bootstrap`. A step's own
    `bootstrap` takes precedence over both. Raises PipelineError, which names the file, the step and
    the mistake.
    """
    import tomllib

    try:
        with Path(path).open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise PipelineError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PipelineError(f"{path} cannot be read: it is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise PipelineError(f"{path} is not TOML: {error}") from error
    steps = content.pop("step", [])
    if bootstrap:
        content["bootstrap"] = bootstrap
    if not isinstance(steps, list) or not steps:
        raise PipelineError(f"{path} has no [[step]]{similar('step', content)}")
    used: set[str] = set()
    result = []
    for number, step in enumerate(steps, 1):
        where = f"{path}, step {number}"
        if "run" not in step:
            raise PipelineError(f"{where} lacks the line run = \"PIPELINE\"{similar('run', step)}")
        name = step.pop("run")
        if name not in BY_NAME:
            near = similar(str(name), BY_NAME) or f"; the pipelines are {', '.join(BY_NAME)}"
            raise PipelineError(f"{where}: run = {name!r} is not a pipeline{near}")
        known = {option.name for option in BY_NAME[name].options}
        shared = {key: value for key, value in content.items() if key in known}
        used |= shared.keys()
        every = _merged(BY_NAME[name], shared, step)
        result.append((BY_NAME[name], check_options(BY_NAME[name], every, where)))
    if bootstrap and "bootstrap" not in used:
        addresses = any(o.name in ADDRESSES for step, _ in result for o in step.options)
        raise PipelineError(
            f"no step of {path} has the option bootstrap, so --bootstrap-server has no effect:"
            f" leave it out{', and give the addresses in the steps' if addresses else ''}")
    if unknown := sorted(content.keys() - used):
        near = similar(unknown[0], {option.name for step, _ in result for option in step.options})
        raise PipelineError(f"{path}: no step has these options: {', '.join(unknown)}{near}")
    return result


def _merged(step: Step, shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A step's own options, and those shared options that have an effect on it."""
    given = {key: _as_text(key, value) for key, value in {**shared, **own}.items()}
    for option in step.options:
        needless = any(given.get(name) for name in option.unless)
        if option.name not in own and (needless or not all(map(given.get, option.needs))):
            given.pop(option.name, None)
    return given


def _as_text(key: str, value: Any) -> Any:
    """TOML has dates, times and numbers of its own; the options that are times are text."""
    if isinstance(value, date | datetime):
        return value.isoformat()
    return str(value) if key in ("since", "until") and type(value) is int else value


def summary(report: Any) -> str:
    """A report as JSON."""
    return json.dumps(report, indent=1, default=str)
