"""`ottla log dump`: prints the files of a partition, with kafka-dump-log's flags and output.

Segments, both indexes, the transaction index, producer snapshots and KRaft's snapshots are printed
as Apache Kafka 4.4 prints them, line for line. Checkpoints and `partition.metadata`, which Kafka's
tool ignores, are printed in the same style. The reference is the output of Kafka's DumpLogSegments.
"""

from __future__ import annotations

import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote

from ottla.client.command_line import is_number
from ottla.tools.batch_reader import DamagedFile
from ottla.tools.decoders import (
    Decoder,
    NotDecodable,
    coordinator_decoder,
    kraft_decoder,
    plain_decoder,
)

INT_MAX = 2**31 - 1
STRING_DECODER = "org.apache.kafka.tools.api.StringDecoder"
TOPIC_DECODERS = {
    "offsets_decoder": "__consumer_offsets",
    "transaction_log_decoder": "__transaction_state",
    "share_group_state_decoder": "__share_group_state",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Kafka's flags."""
    flags = (
        ("--print-data-log", "print keys and values; decoder flags imply this flag"),
        ("--deep-iteration", "go into the batches and print a line for each record"),
        ("--skip-record-metadata", "print keys and values alone, without offsets and sizes"),
        ("--verify-index-only", "check indexes against the log without printing them"),
        ("--index-sanity-check", "check indexes as a starting broker does, not against the log"),
        ("--offsets-decoder", "decode logs of __consumer_offsets: offsets and group metadata"),
        ("--transaction-log-decoder", "decode logs of __transaction_state"),
        ("--share-group-state-decoder", "decode logs of __share_group_state"),
        ("--cluster-metadata-decoder",
         "decode logs and snapshots of __cluster_metadata, which Apache Kafka's KRaft controllers"
         " write; records of Ottla's own metadata log are text: print them with --print-data-log"),
    )  # fmt: skip
    parser.add_argument(
        "paths", nargs="*", metavar="FILE", help="files to print",
    )  # fmt: skip
    parser.add_argument(
        "--files", metavar="FILE,FILE,…", action="append", default=[],
        help="the same as FILE, as a list separated by commas (Kafka's flag)",
    )  # fmt: skip
    for flag, what in flags:
        parser.add_argument(flag, action="store_true", help=what)
    for flag, what in (("--key-decoder-class", "keys"), ("--value-decoder-class", "values")):
        parser.add_argument(
            flag, nargs="?", const=STRING_DECODER, metavar="CLASS",
            help=f"how to read {what}: StringDecoder (usual), LongDecoder, IntegerDecoder,"
            " DoubleDecoder, or DefaultDecoder for hexadecimal digits",
        )  # fmt: skip
    parser.add_argument(
        "--max-bytes", type=positive, default=INT_MAX, metavar="BYTES",
        help="read no more than this from the beginning of each log file",
    )  # fmt: skip
    parser.add_argument(
        "--max-message-size", type=positive, default=5 << 20, metavar="BYTES",
        help="the largest batch in bytes that an index entry may point to (5242880)",
    )  # fmt: skip


def positive(text: str) -> int:
    """Parses a number of bytes."""
    if not is_number(text, INT_MAX) or not int(text):
        raise ArgumentTypeError(f"{text!r} is not a number of bytes from 1 to {INT_MAX}")
    return int(text)


def decoder_of(options: Namespace) -> Decoder | None:
    """The function that turns keys and values into text; None if they are not printed. Raises
    ValueError."""
    for option, topic in TOPIC_DECODERS.items():
        if getattr(options, option):
            return coordinator_decoder(topic)
    if options.cluster_metadata_decoder:
        return kraft_decoder
    key, value = options.key_decoder_class, options.value_decoder_class
    if options.print_data_log or key or value:
        return plain_decoder(key or STRING_DECODER, value or STRING_DECODER)
    return None


def report(path: str, error: Exception) -> int:
    """Prints why a file could not be read to its end; returns the exit status."""
    sys.stdout.flush()
    reason = error.strerror if isinstance(error, OSError) else None
    if isinstance(error, IsADirectoryError):
        there = _segments(Path(path))
        hint = f"name its files, such as {there[0]}" if there else "it has no segments"
        reason = f"{reason}; {hint}"
    print(f"{path}: {reason}" if reason else error, file=sys.stderr)
    return 1


def _segments(directory: Path) -> list[Path]:
    """The segments of a partition's directory. If the directory is a log directory, or contains
    log directories, returns the segments of all their partitions."""
    here = [each for each in directory.glob("*.log") if each.stem.isdigit()]
    of_partitions = (
        each for pattern in ("*/*.log", "*/*/*.log") for each in directory.glob(pattern)
        if each.stem.isdigit() and each.parent.name.rpartition("-")[2].isdigit()
    )  # fmt: skip
    return sorted(here or of_partitions)


def run(options: Namespace) -> int:
    """Prints the files. Returns 1 if a file could not be read to its end, 2 for wrong flags. Also
    returns 1 if a file is damaged, unless `options.as_kafka` is set: Kafka's tool returns 0."""
    from ottla.tools.dump_indexes import dump_index, dump_time_index
    from ottla.tools.dump_log import dump_log
    from ottla.tools.dump_small import dump_checkpoint, dump_snapshot, dump_transactions
    from ottla.tools.findings import DumpFindings

    try:
        decoder = decoder_of(options)
    except ValueError as error:
        print(f"ottla log dump: {error}", file=sys.stderr)
        return 2
    status = 0
    findings = DumpFindings()
    printers: dict[str, Callable[[str], Iterator[str]]] = {
        ".log": lambda path: dump_log(path, options, decoder, findings),
        ".checkpoint": lambda path: dump_log(path, options, decoder, findings),
        ".index": lambda path: dump_index(path, options, findings),
        ".timeindex": lambda path: dump_time_index(path, options, findings),
        ".txnindex": dump_transactions,
        ".snapshot": dump_snapshot,
    }
    listed = [path for given in options.files for path in given.split(",")]
    if not (listed or options.paths):
        print("ottla log dump: no file was named; usage: ottla log dump FILE; see ottla log dump "
              "--help", file=sys.stderr)  # fmt: skip
        return 2
    for path in (*listed, *options.paths):
        path = re.sub("//+", "/", path)
        name = path.rpartition("/")[2]
        printer = printers.get("." + name.rpartition(".")[2], dump_checkpoint)
        try:
            open(path, "rb").close()        # for a missing file, print only the error
        except OSError as error:
            status = report(path, error)
            continue
        print("Dumping", path)              # outside `try`: failed output is no fault of the file
        try:
            for line in printer(path):
                print(line)
        except (OSError, ValueError, DamagedFile, NotDecodable) as error:
            if isinstance(error, BrokenPipeError):
                raise
            status = report(path, error)
    sys.stdout.flush()
    for text in findings.texts:
        print(text, file=sys.stderr)
    if options.as_kafka or not findings.damaged:
        return status
    for path in findings.damaged:
        print(f"ottla log dump: {path} is damaged{advice(path)}", file=sys.stderr)
    return 1


def advice(path: str) -> str:
    """The end of the message about a damaged file; "" if `ottla log verify` would refuse the file's
    directory, as for a copy in /tmp."""
    from ottla.log.storage.log_directory import META
    from ottla.tools.verify import is_partition

    directory = os.path.dirname(path) or "."
    try:
        accepted = os.path.exists(os.path.join(directory, META)) or is_partition(directory)
    except OSError:                         # the directory cannot be listed
        return ""
    return f"; to see what to do: ottla log verify {quote(directory)}" if accepted else ""
