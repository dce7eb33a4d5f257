"""What must hold after each step of several brokers, beside one leader in an epoch.

Cheap checks look at what has changed since the last step; dear ones at one partition now and then,
and at all of them in the end.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from ottla.log.files.producers import Producers
from ottla.replication.metadata import MetadataImage
from ottla.replication.partition import Partition
from ottla.wire.batch import batches
from ottla.wire.errors import CorruptMessage, StorageFailed
from ottla.wire.marks import reached
from tests.simulation.cluster.checker import bytes_of, partitions_of
from tests.simulation.cluster.losses import NOTHING
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster.story import ClusterStory

IN_SYNC_SHARE = 0.25
"""Of the looks at which in-sync sets are compared with their replicas' logs."""
DEAR_SHARE = 0.02
"""Of the looks at which the producers of one partition are compared with its log."""
WORKS_ALONE = ("damaged bytes", "io error", "missing directory")
"""Faults after which a replica may lack, or not be able to read, what its broker promised."""


class Promises:
    """The checks of one run, with what they have seen."""

    def __init__(self, story: ClusterStory) -> None:
        self.story, self.world = story, story.world
        self.chance = random.Random(f"cluster promises {story.world.seed}")
        self.shown: dict[int, MetadataImage] = {}
        """By broker, the image that was compared last."""
        self.harmed = any(each in " ".join(story.options.faults) for each in WORKS_ALONE)

    def look(self) -> None:
        """Check what a step may have broken."""
        self._images()
        if not self.harmed and self.chance.random() < IN_SYNC_SHARE:
            self._in_sync()
        if self.chance.random() < DEAR_SHARE:
            every = [each for machine in self.world.brokers for each in partitions_of(machine)]
            if every:
                check_producers(self.chance.choice(every))

    def _images(self) -> None:
        """Each broker's image is what the log gives, whichever way the broker came to it."""
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
            for what in ("topics", "brokers", "configs", "former", "company", "leaving"):
                if getattr(image, what) != getattr(right, what):
                    raise Violation(
                        f"{machine.name}'s image of entry {image.entry} has other {what} than the"
                        f" log: {getattr(image, what)} instead of {getattr(right, what)}"
                    )

    def _in_sync(self) -> None:
        """Whoever is in the in-sync set has all that its leader calls committed."""
        truth = self.story.truth
        for machine in self.world.brokers:
            for led in partitions_of(machine):
                if not led.led_here or not led.role.replicated:
                    continue
                topic = truth.image.topics.get(led.topic)
                if topic is None or topic.topic_id != led.topic_id:
                    continue
                state = topic.partitions[led.index]
                if state.partition_epoch != led.partition_epoch or state.leader != machine.node_id:
                    continue                # it has not heard of the newest decision
                extra = state.extra or NOTHING
                for node in {*state.isr} - {*extra.doubtful, *extra.lost, *extra.offline}:
                    self._has_committed(led, node)

    def _has_committed(self, led: Partition, node: int) -> None:
        other = self.world.broker(node)
        if other is None or not other.up or other.server is None:
            return
        own = other.server.replicas.partition(led.topic, led.index)
        if own is None or own.topic_id != led.topic_id or own.log.offline is not None:
            return
        if own.log.log_end_offset < led.high_watermark:
            raise Violation(
                f"{led!r}: {led.high_watermark} is committed, broker {node} is in sync and ends at"
                f" {own.log.log_end_offset}"
            )


def check_producers(partition: Partition) -> None:
    """Check that a log's producers are those that its batches show, as far as they are known."""
    log = partition.log
    if log.offline is not None or log.log_start_offset > 0 or log.first_dirty_offset > 0:
        return                              # batches that were removed count, too
    right = Producers()
    try:
        for view in batches(bytes_of(partition)):
            right.replay(bytes(view.data))
        states = log.active_producers()
    except (CorruptMessage, StorageFailed, OSError):
        return
    for state in states:
        wanted = right.get(state.producer_id)
        if wanted is None:
            raise Violation(
                f"{partition!r} knows producer {state.producer_id}, of which it has no batch"
            )
        for what in ("epoch", "last_sequence", "last_offset", "transaction_start"):
            if getattr(state, what) != getattr(wanted, what):
                raise Violation(
                    f"{partition!r}: {what} of producer {state.producer_id} is"
                    f" {getattr(state, what)}, its batches say {getattr(wanted, what)}"
                )
        if state.transaction_start >= 0:
            reached("a log's producers were checked amid a transaction")
