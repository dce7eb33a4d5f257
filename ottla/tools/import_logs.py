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
from shlex import quote
from typing import TYPE_CHECKING

from ottla.client.command_line import INT32_MOST, limited
from ottla.client.errors import reason_of
from ottla.tools.adopted_files import adopt, topics_to_adopt
from ottla.tools.adoption_plan import Plan, make_plan, read_source
from ottla.tools.adoption_target import read_target
from ottla.tools.check_directory import DirectoryLocked, bytes_in, held
from ottla.tools.findings import ImportRefused, Report, size_text
from ottla.tools.kraft_image import KraftTopic, UnreadableKraft
from ottla.wire.errors import StorageFailed
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.replication.metadata import MetadataImage


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
            node_id = sources[0].node_id if options.node_id is None else options.node_id
            target = read_target(options.data_dir, node_id)
            plan = make_plan(sources, report, {each.topic_id for each in target.topics.values()})
            plan.node_id = node_id
            return carry_out(plan, target, options)
    except BrokenPipeError:
        raise
    except (ImportRefused, DirectoryLocked, UnreadableKraft, StorageFailed, OSError) as error:
        print(f"ottla log import: {reason_of(error)}", file=sys.stderr)
        return 1


def carry_out(plan: Plan, target: MetadataImage, options: Namespace) -> int:
    """Print what will be adopted, and adopt it."""
    for note in plan.notes:
        print(f"note: {note}")
    for part in plan.left_out:
        print(f"left out: {part}")
    if options.dry_run:
        topics = topics_to_adopt(plan, target)
        print(f"would adopt {counts_of(plan, topics)}{already(plan, topics)}")
        return 0
    topics = adopt(plan, options.data_dir, plan.node_id, options.link or options.move, print)
    if options.move:
        # Topics that an earlier run adopted stay in the source: since then, the source's topic or
        # the target's topic may have changed.
        for topic in topics:
            for index in topic.partitions:
                shutil.rmtree(plan.partitions[topic.name, index].path)
    print(f"adopted {counts_of(plan, topics)}{already(plan, topics)}")
    if not plan.clean:
        print("the source was not stopped cleanly: the first start recovers the logs")
    overrides = f"--override node.id={plan.node_id} --override log.dirs={quote(options.data_dir)}"
    print(f"start the broker with: ottla server start {overrides} "
          "--override listeners=PLAINTEXT://localhost:9092")
    if topics and plan.settings_known:
        print(
            "if Kafka's server.properties has log.retention.… or log.cleanup.policy, start with"
            f" that file instead: ottla server start server.properties {overrides}. Otherwise"
            " Ottla's defaults apply, which keep records for a week"
        )
    return 0


def already(plan: Plan, topics: Sequence[KraftTopic]) -> str:
    """The end of the line about the adopted topics: how many others an earlier run has adopted."""
    there = len(plan.topics) - len(topics) + plan.moved
    return f"; {there} of the topics existed already (not changed)" if there else ""


def counts_of(plan: Plan, topics: Sequence[KraftTopic]) -> str:
    """The numbers of these topics, their partitions and bytes, and their cluster."""
    parts = [plan.partitions[topic.name, index] for topic in topics for index in topic.partitions]
    return (
        f"{counted(len(topics), 'topic')}, {counted(len(parts), 'partition')},"
        f" {size_text(sum(each.size for each in parts))}, of cluster {plan.cluster_id}"
    )
