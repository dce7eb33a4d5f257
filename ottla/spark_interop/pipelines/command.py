"""`ottla pipeline NAME …`: progress on standard error, the summary as JSON on standard output."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any

from ottla.client.command_line import Parser, count, decimal
from ottla.client.interrupts import Interrupts, handled, status_of
from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import (
    OutputClosed,
    PipelineError,
    SparkUnavailable,
    WrongColumn,
    WrongOption,
)
from ottla.spark_interop.pipelines import preflight, query_run, steps
from ottla.spark_interop.pipelines.steps import ADDRESSES, BY_NAME, STEPS, Option, Step
from ottla.spark_interop.spark_session import (
    check_start,
    files_of,
    jar_directory,
    spark_version,
)
from ottla.wire.wording import counted

WITHOUT_PROGRESS = {"compact", "check-history"}
IN_TRANSACTIONS = (
    "To read the topic that this command writes to, use isolation.level=read_committed (`ottla"
    " consume --committed`): other readers also see records that were not committed. The next run"
    " aborts the transaction that this run may have left open; without a next run, the broker"
    " aborts it after three minutes"
)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = Parser(
        prog="ottla pipeline",
        description="Data pipelines on Spark. Each continues where it was stopped.",
        epilog="Needs Ottla's extra `spark` (docs/install.md) and Java 17.",
    )
    names = root.add_subparsers(dest="command", metavar="NAME", required=True)
    for step in STEPS:
        one = names.add_parser(
            step.name, help=step.what, description=step.what[0].upper() + step.what[1:] + ".",
            epilog=f"example:\n  {step.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        for option in step.options:
            _add(one, option)
        _add_common(one)
    run = names.add_parser(
        "run", help="run the steps of a TOML file; all are checked before the first one starts",
        epilog="example:\n  ottla pipeline run flights.toml",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    run.add_argument("file", metavar="FILE", help="the TOML file")
    _add(run, Option("bootstrap", "the cluster's address, instead of the one above the first step"))
    run.add_argument("--check", action="store_true", help="check the steps, and run none of them")
    _add_common(run)
    return root


def _add(to: argparse.ArgumentParser, option: Option) -> None:
    more: dict[str, Any] = {"help": option.what, "required": option.required}
    if option.name == "bootstrap":
        to.add_argument(
            "--bootstrap-server", "--bootstrap", "-b", dest=option.name, metavar="HOST:PORT", **more
        )
        return
    flag = "--" + option.name.replace("_", "-")
    if option.kind == "flag":
        to.add_argument(flag, action="store_const", const=True, help=option.what)
        return
    if option.kind in ("list", "table"):
        more |= {"nargs": "+", "action": "extend"}      # the flag may be repeated
    if option.kind in ("count", "number"):
        more["type"] = {"count": count, "number": decimal}[option.kind]
    to.add_argument(flag, metavar=option.kind.upper(), **more)


def _add_common(to: argparse.ArgumentParser) -> None:
    spark = to.add_argument_group("Spark")
    spark.add_argument("--master", default=None, help="Spark's master, local[*] by default")
    spark.add_argument("--memory", default="2g", help="the driver's heap, 2g by default")
    spark.add_argument("--jars", default=None, help="a directory with the connector's jars")
    to.add_argument(
        "--command-config", metavar="FILE", help="security properties of the clusters, key=value"
    )
    to.add_argument("--quiet", action="store_true", help="show no progress")


def main(arguments: list[str]) -> int:
    """Run the command; `arguments` begin with "pipeline". Returns the exit status."""
    options = parser().parse_args(arguments[1:])
    interrupts, logged = Interrupts(), logging.root.manager.disable

    def end(number: int, _: FrameType | None) -> None:
        """Ends the command at once. Errors that this causes, for example in a call of the JVM, are
        not logged."""
        logging.disable()
        interrupts.number = number
        interrupts.check()

    try:
        with handled(end):
            return _main(options, interrupts)
    finally:
        logging.disable(logged)


def _main(options: argparse.Namespace, interrupts: Interrupts) -> int:
    is_file, name = options.command == "run", f"ottla pipeline {options.command}"
    reports: list[dict[str, Any]] = []
    todo: list[tuple[Step, dict[str, Any]]] = []
    reads_line = True       # whether an error is one of the command line
    try:
        check_start(options.master, options.memory)
        if is_file:
            reads_line = False
            todo = steps.load_file(options.file, options.bootstrap)
        else:
            step = BY_NAME[options.command]
            todo = [(step, given_to(step, options))]
        preflight.check_values(todo, options.file if is_file else None)
        reads_line = False
        if options.jars and not jar_directory(options.jars).is_dir():
            raise PipelineError(
                f"--jars {options.jars}: no such directory; name a directory that has the"
                " connector's jars, or an empty directory, to which Spark downloads the jars"
            )
        todo = _logged_in(todo, options.command_config)
        preflight.check(todo, options.file if is_file else None)
        if is_file and options.check:
            print(f"{options.file}: {counted(len(todo), 'step')}, no errors found")
            try:
                spark_version()
            except SparkUnavailable as error:       # a check needs no Spark, a later run does
                print(f"{name}: {error}", file=sys.stderr)
            return 0
        try:
            for report in _run(todo, options):
                reports.append(report)
                if len(reports) < len(todo):
                    interrupts.check()  # a step with `every` returns normally if interrupted
        except PipelineError:
            interrupts.check()  # an interrupt may have caused the error
            raise
    except PipelineError as error:
        _print(reports, is_file, _prints_records(todo))
        # The options in a file of steps have the names of the functions' arguments.
        text = str(error)
        if isinstance(error, WrongOption) and not is_file:
            text = error.with_flags()
        if reads_line or (isinstance(error, WrongColumn) and not is_file):
            print(f"{name}: {text}; see {name} --help", file=sys.stderr)
            return 2
        print(f"{name}: {text}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as ended:
        _print(reports, is_file, _prints_records(todo))
        told = "interrupted; run the same command again"
        if any(step.writes_topic(given) for step, given in todo):
            told += f". {IN_TRANSACTIONS}"
        print(f"{name}: {told}", file=sys.stderr)
        return status_of(ended)
    _print(reports, is_file, _prints_records(todo))
    bad = any(r.get("ok") is False or r.get("valid") is False for r in reports)
    return 1 if bad else 0


def _print(reports: list[dict[str, Any]], is_file: bool, aside: bool) -> None:
    """Prints the summaries of the completed steps. With `aside` they go to standard error, because
    standard output has records, one a line."""
    if reports:
        print(steps.summary(reports if is_file else reports[0]), file=sys.stderr if aside else None)
        sys.stdout.flush()


def _prints_records(todo: list[tuple[Step, dict[str, Any]]]) -> bool:
    """Whether a step prints records to standard output."""
    return any(
        step.name == "slice" and str(given.get("output") or "-") == "-" for step, given in todo)


def given_to(step: Step, options: argparse.Namespace) -> dict[str, Any]:
    """The options of a step, from the command line. Raises PipelineError."""
    given = {}
    for option in step.options:
        value = getattr(options, option.name)
        if value is not None and option.kind == "table":
            pairs = [text.partition("=") for text in value]
            bad = [name for name, equals, sql in pairs if not equals or not sql.strip()]
            if bad:
                raise PipelineError(f"--{option.name}: write NAME = SQL, not {bad[0]!r}")
            value = {}
            for column, _, sql in pairs:
                if column.strip() in value:
                    raise PipelineError(
                        f"--{option.name}: two columns have the name {column.strip()}")
                value[column.strip()] = sql.strip()
        if value is not None:
            given[option.name] = value
    return steps.check_options(step, given, "ottla pipeline")


def _logged_in(
    todo: list[tuple[Step, dict[str, Any]]], config: str | None
) -> list[tuple[Step, dict[str, Any]]]:
    """Replaces addresses by clusters with the properties in the file `config`, if it is given."""
    if config is None:
        return todo
    return [
        (
            step,
            given
            | {k: Cluster.from_file(given[k], config) for k in ADDRESSES
               if isinstance(given.get(k), str)},
        )
        for step, given in todo
    ]  # fmt: skip


def _run(
    todo: list[tuple[Step, dict[str, Any]]], options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Runs the steps; yields the summary of each step when it is done."""
    spark = None
    for number, (step, given) in enumerate(todo, 1):
        where = f"step {number} of {len(todo)} ({step.name}): " if len(todo) > 1 else ""
        if spark is None and not (step.name == "check-history" and given.get("small")):
            spark = _told_session(options, step)
        show = False if options.quiet else None
        # If the brokers became unreachable after the checks, wait for them, as during a run.
        given = given | {
            name: Cluster.of(given[name]).patient()
            for name in ADDRESSES if given.get(name)
        }
        clock: AbstractContextManager[None] = nullcontext()
        if step.name in WITHOUT_PROGRESS:
            clock = query_run.clock(query_run.Progress(step.name, show))
        else:
            given = given | {"progress": show}
        if where and not options.quiet:
            print(f"step {number} of {len(todo)}: {step.name}", file=sys.stderr)
        try:
            with clock:
                report = step.run(spark, given)
        except PipelineError as error:
            if not where:
                raise
            raise PipelineError(f"{where}{error}") from error
        except OutputClosed:
            raise
        except Exception as error:  # unexpected errors of Spark and the JVM
            raise PipelineError(f"{where}{query_run.explained(error)}") from error
        yield {"step": step.name, **report} if len(todo) > 1 else report


def _told_session(options: argparse.Namespace, step: Step) -> Any:
    """The session; prints a line before and after its start."""
    if options.quiet:
        return _session(options)
    begun = time.monotonic()
    here = files_of(jar_directory(options.jars), spark_version())
    first = "" if here else ". Spark's Kafka connector is downloaded first; later runs reuse it"
    takes = "this takes up to half a minute on two idle cores"
    print(f"starting Spark: {takes}{first}", file=sys.stderr)
    spark = _session(options)
    seconds = time.monotonic() - begun
    print(f"Spark started after {seconds:.0f} s; now running {step.name}, which may take half a"
          " minute before its first result", file=sys.stderr)
    return spark


def _session(options: argparse.Namespace) -> Any:
    """The session; what Spark prints to standard error while it starts is discarded."""
    from ottla.spark_interop.spark_session import session

    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.dup2(null, 2)
    try:
        # pyspark installs a handler that may call the JVM during another call to the JVM;
        # `handled` restores our handler afterwards.
        with handled(signal.getsignal(signal.SIGINT)):
            spark = session(
                "ottla pipeline", master=options.master, memory=options.memory, jars=options.jars,
                log_level="OFF",
            )  # fmt: skip
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)
    # If a signal ends the JVM too, pyspark's server for accumulators loses its connection, and
    # would print a traceback beside the command's own message.
    spark.sparkContext._accumulatorServer.handle_error = lambda request, address: None
    _silence_pyspark()
    return spark


def _silence_pyspark() -> None:
    """pyspark logs each error about an expression, with the plan and the JVM's stack in one line of
    ten kilobytes. The command prints the error's sentence."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
