"""`ottla log verify`: checks whether everything in a log directory is sound.

The command changes nothing. Exit status 0: sound; 1: something is wrong; 2: the check was not
possible.
"""

from __future__ import annotations

import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from contextlib import nullcontext

from ottla.client.errors import reason_of
from ottla.tools.check_directory import (
    DirectoryLocked,
    bytes_in,
    check_directory,
    held,
    known_of,
    partitions_in,
    read_directory,
)
from ottla.tools.check_partition import SEGMENT, check_partition
from ottla.tools.findings import Report, size_text
from ottla.wire.wording import counted


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument(
        "directories", nargs="*", default=["./data"], metavar="DIR",
        help="log directories, or directories of single partitions (./data)",
    )  # fmt: skip
    parser.add_argument(
        "--partition", action="append", default=[], metavar="TOPIC-N",
        help="check only this partition; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--online", action="store_true",
        help="while a broker runs: check only segments that are closed and on disk",
    )  # fmt: skip
    parser.add_argument(
        "--deep", action="store_true", help="decompress every batch and check its records too"
    )
    parser.add_argument("--quiet", action="store_true", help="print only what is wrong")


def is_partition(path: str) -> bool:
    """Whether a directory belongs to one partition, and is not one of log.dirs."""
    return any(SEGMENT.fullmatch(name) for name in os.listdir(path))


def run(options: Namespace) -> int:
    """Check the named directories."""
    report = Report(options.quiet)
    partitions = 0
    try:
        for path in options.directories:
            path = path.rstrip("/") or "/"
            if os.path.isfile(path):
                print(f"ottla log verify: {path} is a file: name its directory: ottla log verify"
                      f" {shlex.quote(os.path.dirname(path) or '.')}", file=sys.stderr)
                return 2
            if is_partition(path):
                partitions += verify_partition(path, options, report)
            else:
                partitions += verify_directory(path, options, report)
    except DirectoryLocked as error:
        print(
            f"ottla log verify: {error}. Stop it, or check only closed segments with --online",
            file=sys.stderr,
        )
        return 2
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"ottla log verify: {reason_of(error)}", file=sys.stderr)
        return 2
    if partitions == 0 and (options.partition or report.errors == 0):
        print("ottla log verify: no such partition exists", file=sys.stderr)
        return 2
    report.say(
        f"{counted(partitions, 'partition')}, {size_text(report.bytes_done)} read: "
        f"{counted(report.errors, 'error')}, {counted(report.notes, 'note')}"
    )
    return 1 if report.errors else 0


def verify_directory(path: str, options: Namespace, report: Report) -> int:
    """Check one of log.dirs; returns the number of checked partitions."""
    with nullcontext() if options.online else held(path):
        report.bytes_due += sum(
            bytes_in(place)
            for (topic, index), place in partitions_in(path).items()
            if not options.partition or f"{topic}-{index}" in options.partition
        )
        checked = check_directory(
            path, set(options.partition), options.online, options.deep, report
        )
        return len(checked.partitions)


def verify_partition(path: str, options: Namespace, report: Report) -> int:
    """Check a single partition's directory, with the checkpoints beside it."""
    parent, name = os.path.split(os.path.abspath(path))
    with nullcontext() if options.online else held(parent):
        topic, _, number = name.rpartition("-")
        key = topic or name, int(number) if number.isdecimal() else 0
        report.bytes_due += bytes_in(path)
        around = read_directory(parent, Report(quiet=True, now=lambda: 0.0))
        check_partition(path, known_of(around, key, options.online), options.deep, report)
        return 1
