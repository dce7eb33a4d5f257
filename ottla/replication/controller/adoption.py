"""The adoption of a ZooKeeper that was restored from a backup.

Brokers' logs may have later leader epochs and producer ids than the backup's metadata. If the
controller assigned a leader epoch a second time, different records could have the same offset and
epoch. If it assigned a producer id twice, new records would look like duplicates. So each broker
that starts with the backup reports the highest epoch and producer id in its logs. There are no
leaders and no new producer ids until every broker in the metadata has reported or is unregistered.
Then epochs and ids continue above all reported ones.

    first report ──► BackupAdopting, which awaits the other brokers
    the last awaited broker reports or is unregistered
                 ──► PartitionsChanged with higher leader epochs, topic after topic
                 ──► ProducerIdsTaken and BackupAdopted

A broker sends a report if its metadata checkpoint is missing, as after `ottla cluster
accept-backup`, or if the image awaits its report. If other brokers are already registered when the
first report arrives, the cluster already works with its metadata. Then the adoption awaits no other
broker.
"""

from __future__ import annotations

from ottla.replication.controller.brokers import PARTITIONS_AT_A_TIME
from ottla.replication.controller.producer_ids import PRODUCER_ID_MAX
from ottla.replication.metadata import (
    BackupAdopted,
    BackupAdopting,
    Decision,
    Held,
    MetadataImage,
    PartitionsChanged,
    ProducerIdsTaken,
)

EPOCHS_SKIPPED, PRODUCER_IDS_SKIPPED = 10_000, 1_000_000_000
"""A margin for epochs and ids that were assigned after the backup and are in no log: clients may
remember them."""

LEADER_EPOCH_MAX = 2**31 - 1


def report(image: MetadataImage, node_id: int, held: Held | None) -> Decision[None]:
    """Record the report of a broker that is about to be registered; `held` is None if it sends no
    report."""
    adopting = image.adopting
    if adopting is None:
        if held is None:
            return Decision((), None)
        away = (node for node, broker in image.former.items() if broker.endpoints)
        adopting = BackupAdopting(() if image.brokers else tuple(sorted(away)))
    after = adopting._replace(awaited=tuple(n for n in adopting.awaited if n != node_id))
    if held is not None:
        after = after._replace(
            next_id=max(after.next_id, held.next_id), epoch=max(after.epoch, held.epoch)
        )
    return Decision((), None) if after == image.adopting else Decision([after], None)


def outdo_logs(image: MetadataImage, name: str, first: int = 0) -> Decision[bool]:
    """Raise the leader epochs of a topic's partitions above all reported epochs, beginning with
    partition `first`. Returns whether the topic has more partitions to change."""
    adopting, topic = image.adopting, image.topics.get(name)
    if adopting is None or topic is None:
        return Decision((), False)
    end = first + PARTITIONS_AT_A_TIME
    lowest = min(adopting.epoch + EPOCHS_SKIPPED, LEADER_EPOCH_MAX)
    rows = tuple(
        (index, state._replace(leader_epoch=lowest, partition_epoch=state.partition_epoch + 1))
        for index, state in enumerate(topic.partitions[first:end], first)
        if state.leader_epoch < lowest
    )
    more = len(topic.partitions) > end
    return Decision([PartitionsChanged(name, rows)] if rows else (), more)


def end_adoption(image: MetadataImage) -> Decision[None]:
    """Continue producer ids above all reported ids, and end the adoption."""
    adopting = image.adopting
    if adopting is None:
        return Decision((), None)
    next_id = max(image.next_producer_id, adopting.next_id) + PRODUCER_IDS_SKIPPED
    return Decision([ProducerIdsTaken(min(next_id, PRODUCER_ID_MAX)), BackupAdopted()], None)
