"""Checks that run after each step of a cluster's run, in addition to those of `checker.py`.

Cheap checks look at everything that has changed since the last step. Expensive checks run after
some of the steps, most of them for one random partition. At the end, `story.py` checks the
producers of all partitions.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from ottla.replication.metadata import MetadataImage
from ottla.replication.partition import Partition
from ottla.wire.marks import reached
from tests.simulation.applied import applied, check_applied
from tests.simulation.cluster.checker import partitions_of
from tests.simulation.cluster.losses import NOTHING
from tests.simulation.logs import at_rest, check_log_transactions
from tests.simulation.options import REFUSED
from tests.simulation.replay import check_producers
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from ottla.log.partition.partition_log import PartitionLog
    from ottla.log.partition.segment import Segment
    from tests.simulation.cluster.story import ClusterStory

IN_SYNC_SHARE = 0.25
"""The share of steps after which the logs of all in-sync replicas are compared with what their
leaders consider committed."""
DEAR_SHARE = 0.02
"""The share of steps after which the producers of one partition are compared with its log."""
OFTEN_SHARE = 0.25
"""In this share of the seeds, the transactions of one log are compared with its batches after every
second step on average. On other seeds this happens after DEAR_SHARE of the steps."""
WORKS_ALONE = ("damaged bytes", "io error", "missing directory", REFUSED)
"""Faults after which a replica may lack records that its broker has acknowledged, or may be unable
to read them."""


class Promises:
    """The checks of one run, and what they remember."""

    def __init__(self, story: ClusterStory) -> None:
        self.story, self.world = story, story.world
        self.chance = random.Random(f"cluster promises {story.world.seed}")
        self.shown: dict[int, MetadataImage] = {}
        """By broker, the image that was last compared with the metadata log."""
        self.followed: dict[int, MetadataImage] = {}
        """By broker, the image with which the broker's partitions were last compared."""
        self.apart = random.Random(f"aborted transactions {story.world.seed}")
        self.aborts_share = DEAR_SHARE
        if self.apart.random() < OFTEN_SHARE:
            self.aborts_share = 0.5
        self.listed: dict[PartitionLog, list[Segment]] = {}
        """By log, its list of segments at the last check. A truncation makes a new list."""
        self.unspoilt = "damaged bytes" not in " ".join(story.options.faults)
        self.harmed = any(each in " ".join(story.options.faults) for each in WORKS_ALONE)

    def look(self) -> None:
        """Check everything that a step may have broken."""
        self._images()
        self._applied()
        if not self.harmed and self.chance.random() < IN_SYNC_SHARE:
            self._in_sync()
        every = [each for machine in self.world.brokers for each in partitions_of(machine)]
        if self.chance.random() < DEAR_SHARE and every:
            check_producers(self.chance.choice(every))
        if self.unspoilt:
            if self.apart.random() < self.aborts_share and every:
                check_log_transactions(self.apart.choice(every))
            self._cuts(every)

    def _cuts(self, every: list[Partition]) -> None:
        """Check that a log that was truncated since the last check has forgotten the aborted
        transactions whose markers were cut off."""
        for each in every:
            log = each.log
            if log.offline is not None or log.damage is not None or at_rest(log):
                continue
            segments = log.segments
            known = self.listed.get(log)
            if known is not segments:
                self.listed[log] = segments
                if known is not None:
                    reached("a log was checked after a truncation")
                    check_log_transactions(each)

    def _images(self) -> None:
        """Check that each broker's metadata image is what the metadata log gives. A broker may have
        read entries or a snapshot."""
        known = self.story.truth.history
        for machine in self.world.brokers:
            if machine.server is None or not machine.up:
                continue
            image = machine.server.metadata_log.image
            if self.shown.get(machine.node_id) is image:
                continue
            self.shown[machine.node_id] = image
            right = known.get(image.entry)
            if right is None or right is image:
                continue
            for what in (
                "topics", "brokers", "configs", "former", "company", "recently_gone", "leaving"
            ):
                if getattr(image, what) != getattr(right, what):
                    raise Violation(
                        f"the image of {machine.name} at entry {image.entry} has other {what} than"
                        f" the metadata log: {getattr(image, what)} instead of"
                        f" {getattr(right, what)}"
                    )

    def _applied(self) -> None:
        """Check that each broker's partitions match its metadata image."""
        for machine in self.world.brokers:
            server = machine.server
            if server is None or not machine.up or machine.excuse is not None:
                continue
            image = applied(server)
            if image is not None and self.followed.get(machine.node_id) is not image:
                self.followed[machine.node_id] = image
                check_applied(server, image)

    def _in_sync(self) -> None:
        """Check that every in-sync replica has all records that its leader considers committed. It
        must also have all records that a follower considers committed, because followers return
        these to consumers."""
        truth = self.story.truth
        whole = {(each.topic, each.index) for each in self.story.parts if each.lost_at < 0}
        for machine in self.world.brokers:
            for own in partitions_of(machine):
                leads = own.led_here
                if not own.role.replicated or not (leads or (own.topic, own.index) in whole):
                    continue
                topic = truth.image.topics.get(own.topic)
                if topic is None or topic.topic_id != own.topic_id:
                    continue
                state = topic.partitions[own.index]
                epoch = truth.image.leader_epoch(topic, state)
                if leads and (state.leader, epoch) != (machine.node_id, own.leader_epoch):
                    continue                # the broker has not heard yet that it was replaced
                # A leader that has not heard of the newest decision is checked, too: it waits for
                # a replica from the time at which it proposes it for the in-sync set.
                missed = state.partition_epoch - own.partition_epoch
                if missed < 0 or (missed and not leads):
                    continue
                if missed:
                    reached("a leader has not heard of a change of its in-sync set")
                extra = state.extra or NOTHING
                for node in {*state.isr} - {*extra.doubtful, *extra.lost, *extra.offline}:
                    self._has_committed(own, node, machine.node_id)

    def _has_committed(self, shown: Partition, node: int, by: int) -> None:
        other = self.world.broker(node)
        if other is None or not other.up or other.server is None:
            return
        own = other.server.replicas.partition(shown.topic, shown.index)
        if own is None or own.topic_id != shown.topic_id or own.log.offline is not None:
            return
        if own.log.log_end_offset < shown.high_watermark:
            raise Violation(
                f"partition {shown!r}: the log of in-sync broker {node} ends at offset"
                f" {own.log.log_end_offset}, though broker {by} says that the records below"
                f" {shown.high_watermark} are committed"
            )
