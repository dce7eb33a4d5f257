"""`ottla log verify`: checks whether everything in a log directory is sound.

The command changes nothing. Exit status 0: sound; 1: something is wrong; 2: the check was not
possible.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from argparse import ArgumentParser, Namespace
from contextlib import nullcontext

from ottla.client.errors import reason_of
from ottla.client.similar_names import beside, directories_beside, similar, similar_are
from ottla.tools.check_directory import (
    DirectoryLocked,
    bytes_in,
    check_directory,
    held,
    known_of,
    partitions_in,
    read_directory,
    why_no_log_directory,
)
from ottla.tools.check_partition import SEGMENT, check_partition
from ottla.tools.findings import Report, size_text
from ottla.wire.wording import counted

SUFFIX = re.compile(r".+-\d+$")
"""The name of a partition's directory."""


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
        help="while a broker runs: check only closed segments that were flushed to disk",
    )  # fmt: skip
    parser.add_argument(
        "--deep", action="store_true", help="decompress every batch and check its records too"
    )
    parser.add_argument("--quiet", action="store_true", help="print only what is wrong")


def is_partition(path: str) -> bool:
    """Whether a directory belongs to one partition, and is not one of log.dirs."""
    return any(SEGMENT.fullmatch(name) for name in os.listdir(path))


def run(options: Namespace) -> int:
    """Check the named directories, each partition once."""
    try:
        for path in options.directories:
            os.stat(path)
    except OSError as error:
        near = nearest_path(path) if isinstance(error, FileNotFoundError) else ""
        print(f"ottla log verify: {reason_of(error)}{near}", file=sys.stderr)
        return 2
    for path in filter(os.path.isfile, options.directories):
        print(f"ottla log verify: {path} is a file. Name its directory: ottla log verify"
              f" {shlex.quote(os.path.dirname(path) or '.')}", file=sys.stderr)
        return 2
    report = Report(options.quiet)
    found: dict[str, str] = {}
    try:
        different = {os.path.realpath(path): path for path in options.directories}
        for path in options.directories:
            if not is_partition(path) and (why := why_no_log_directory(path.rstrip("/") or "/")):
                print(f"ottla log verify: {why}", file=sys.stderr)
                return 2
        # Log directories first, so that a partition of one of them is not checked a second time.
        for path in sorted(different.values(), key=is_partition):
            path = path.rstrip("/") or "/"
            if is_partition(path):
                verify_partition(path, options, report, found)
            else:
                verify_directory(path, options, report, found)
    except DirectoryLocked as error:
        print(
            f"ottla log verify: {error}. Stop the broker, or use --online to check only"
            " closed segments",
            file=sys.stderr,
        )
        return 2
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"ottla log verify: {reason_of(error)}", file=sys.stderr)
        return 2
    missing = set(options.partition) - set(found.values())
    if missing or (not found and report.errors == 0):
        what = f"has no partition {', '.join(sorted(missing))}" if missing else "has no partitions"
        print(f"ottla log verify: {', '.join(options.directories)} {what}"
              f"{nearest(missing, options)}", file=sys.stderr)
        if not report.errors:
            return 2
    report.say(
        f"{counted(len(found), 'partition')}, {size_text(report.bytes_done)} read: "
        f"{counted(report.errors, 'error')}, {counted(report.notes, 'note')}"
    )
    return 1 if report.errors else 0


def nearest(missing: set[str], options: Namespace) -> str:
    """The end of the message about a missing partition: similar names in the directories."""
    known = [
        os.path.basename(place) for path in options.directories if not is_partition(path)
        for place in partitions_in(path).values()
    ]
    return similar(min(missing), known) if missing else ""


def nearest_path(path: str) -> str:
    """The end of the message about a missing directory: similar directories beside it."""
    path = path.rstrip("/")
    known = [os.path.join(os.path.dirname(path), one.name) for one in beside(path) if one.is_dir()]
    # The name may be a topic's, without a partition's number: then suggest its partitions.
    own = sorted(one for one in known if one.rpartition("-")[0] == path and SUFFIX.match(one))
    return similar_are(own) or directories_beside(path)


def verify_directory(
    path: str, options: Namespace, report: Report, found: dict[str, str]
) -> None:
    """Check one of log.dirs. Adds the checked partitions to `found`, which maps paths to names."""
    with nullcontext() if options.online else held(path):
        places = partitions_in(path)
        report.bytes_due += sum(
            bytes_in(place)
            for (topic, index), place in places.items()
            if not options.partition or f"{topic}-{index}" in options.partition
        )
        checked = check_directory(
            path, set(options.partition), options.online, options.deep, report
        )
        # A running broker may have added partitions that are not in `places`.
        for topic, index in checked.partitions:
            place = os.path.join(path, f"{topic}-{index}")
            found[os.path.realpath(places.get((topic, index), place))] = f"{topic}-{index}"


def verify_partition(
    path: str, options: Namespace, report: Report, found: dict[str, str]
) -> None:
    """Check a single partition's directory, with the checkpoints beside it; add it to `found`."""
    parent, name = os.path.split(os.path.abspath(path))
    if os.path.realpath(path) in found or (options.partition and name not in options.partition):
        return
    found[os.path.realpath(path)] = name
    with nullcontext() if options.online else held(parent):
        topic, _, number = name.rpartition("-")
        key = topic or name, int(number) if number.isdecimal() else 0
        report.bytes_due += bytes_in(path)
        around = read_directory(parent, Report(quiet=True, now=lambda: 0.0))
        check_partition(path, known_of(around, key, options.online), options.deep, report)
