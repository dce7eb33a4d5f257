"""`ottla log import`: turns log directories that Apache Kafka wrote into an Ottla data directory.

The command checks everything first, and adds all topics in one step at the end. It does not change
the source, except with --move: then, as its last step, it removes the adopted partitions.
"""

from __future__ import annotations

import os
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import ExitStack

from ottla.client.command_line import INT32_MOST, limited
from ottla.client.errors import reason_of
from ottla.tools.adopted_files import adopt
from ottla.tools.adoption_plan import Plan, Source, make_plan, read_source
from ottla.tools.check_directory import DirectoryLocked, bytes_in, held
from ottla.tools.findings import ImportRefused, Report, size_text
from ottla.tools.kraft_image import KraftTopic, UnreadableKraft
from ottla.wire.errors import StorageFailed
from ottla.wire.wording import counted


def add_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    parser.add_argument(
        "sources", nargs="+", metavar="SOURCE",
        help="log directories of a stopped Apache Kafka (3.3 or newer, with KRaft). Name all"
        " log.dirs of a node. If they lack some partitions, name the log.dirs of other nodes too",
    )  # fmt: skip
    parser.add_argument(
        "--data-dir", required=True, metavar="DIR", help="Ottla's data directory, new or in use"
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--link", action="store_true",
        help="link closed segments instead of copying them; the source stays complete",
    )  # fmt: skip
    way.add_argument(
        "--move", action="store_true",
        help="link as with --link, then remove the partitions from the source",
    )  # fmt: skip
    parser.add_argument(
        "--node-id", type=limited(0, INT32_MOST), metavar="N",
        help="node.id of the new broker (by default, the node.id of the source)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="check, and say what would be adopted"
    )


def run(options: Namespace) -> int:
    """Checks everything, then adopts it. Returns 0 if done, 1 if the import was refused or failed.
    """
    try:
        with ExitStack() as locks:
            for path in options.sources:
                if not os.path.isdir(path):
                    raise ImportRefused(f"{path} is not a directory")
                if os.path.realpath(path) == os.path.realpath(options.data_dir):
                    raise ImportRefused("--data-dir is the source itself: name another directory")
                locks.enter_context(held(path))
            report = Report()
            sources = [read_source(path.rstrip("/"), report) for path in options.sources]
            report.bytes_due = sum(
                bytes_in(path) for source in sources for path in source.partitions.values()
            )
            plan = make_plan(sources, report)
            return carry_out(plan, sources, options)
    except BrokenPipeError:
        raise
    except (ImportRefused, DirectoryLocked, UnreadableKraft, StorageFailed, OSError) as error:
        print(f"ottla log import: {reason_of(error)}", file=sys.stderr)
        return 1


def carry_out(plan: Plan, sources: list[Source], options: Namespace) -> int:
    """Print what will be adopted, and adopt it."""
    node_id = plan.node_id if options.node_id is None else options.node_id
    for note in plan.notes:
        print(f"note: {note}")
    for part in plan.left_out:
        print(f"left out: {part}")
    if options.dry_run:
        print(f"would adopt {counts_of(plan, plan.topics)}")
        return 0
    topics = adopt(plan, options.data_dir, node_id, options.link or options.move, print)
    if options.move:
        # Topics that an earlier run adopted stay in the source: since then, the source's topic or
        # the target's topic may have changed.
        for topic in topics:
            for index in topic.partitions:
                shutil.rmtree(plan.partitions[topic.name, index].path)
    there = len(plan.topics) - len(topics)
    print(f"adopted {counts_of(plan, topics)}"
          + (f"; {there} of the topics existed already (not changed)" if there else ""))
    if not plan.clean:
        print("the source was not stopped cleanly: the first start recovers the logs")
    print(
        f"start the broker with: ottla server start --override node.id={node_id} "
        f"--override log.dirs={options.data_dir} --override listeners=PLAINTEXT://localhost:9092"
    )
    return 0


def counts_of(plan: Plan, topics: Sequence[KraftTopic]) -> str:
    """The numbers of these topics, their partitions and bytes, and their cluster."""
    parts = [plan.partitions[topic.name, index] for topic in topics for index in topic.partitions]
    return (
        f"{counted(len(topics), 'topic')}, {counted(len(parts), 'partition')},"
        f" {size_text(sum(each.size for each in parts))}, of cluster {plan.cluster_id}"
    )
