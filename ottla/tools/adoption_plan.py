"""Plans which topics and partitions to adopt from Kafka's log directories.

Kafka's metadata log (`__cluster_metadata-0`) contains the topics, their ids and their settings. If
a partition's directory has a topic id that is not in the metadata, the topic was deleted. If no
log directory has a metadata log, names and topic ids come from the partitions' directories.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ottla.client.command_line import INT32_MOST, is_number
from ottla.groups.transactions.records import decode_record
from ottla.log.files.checkpoints import (
    CLEANED,
    LOG_STARTS,
    RECOVERY_POINTS,
    Partition,
)
from ottla.log.storage.log_directory import CLEAN_MARKER
from ottla.replication.metadata import NO_LEADER, ConfigSet
from ottla.replication.topic_names import TRANSACTIONS_TOPIC, require_legal_name
from ottla.tools.batch_reader import DamagedFile, read_batches
from ottla.tools.carried_settings import carried_settings, settings_unknown
from ottla.tools.check_directory import (
    LogDirectoryCheck,
    known_of,
    partitions_in,
    read_directory,
    why_no_log_directory,
)
from ottla.tools.check_partition import Checked, check_partition
from ottla.tools.findings import Finding, ImportRefused, Report
from ottla.tools.kraft_image import KraftImage, KraftPartition, KraftTopic, read_kraft_image
from ottla.tools.replica_choice import Adopted, LeftOut, choose, left_out
from ottla.wire.batch import BatchView
from ottla.wire.errors import MalformedMessage, ProtocolError
from ottla.wire.wording import counted

METADATA_DIRECTORY = "__cluster_metadata-0"
CACHES = (".index", ".timeindex", ".snapshot", ".txnindex", "leader-epoch-checkpoint")
"""Files that can be rebuilt from the segments. If one of them is wrong in a partition's directory,
the import adopts none of them from this directory."""

SHOWN = 40
"""How many characters of a wrong value a message shows."""


@dataclass(slots=True)
class Source:
    """One of Kafka's log directories."""

    path: str
    check: LogDirectoryCheck
    clean: bool
    partitions: dict[Partition, str]
    node_id: int
    """The id of the broker that wrote the directory, -1 if it is unknown."""


@dataclass(slots=True)
class Plan:
    """Everything that is to be adopted."""

    cluster_id: str
    node_id: int
    clean: bool
    topics: list[KraftTopic] = field(default_factory=list)
    partitions: dict[Partition, Adopted] = field(default_factory=dict)
    configs: list[ConfigSet] = field(default_factory=list)
    next_producer_id: int = 0
    notes: list[str] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    settings_known: bool = False
    """Whether the topics' settings are known. Otherwise the topics keep all records."""
    moved: int = 0
    """How many topics an earlier run with --move has adopted and removed from the source."""


class ErrorsOfLogs(Report):
    """Counts faults of the logs themselves. A fault in one of the CACHES is not counted, but sets
    `caches_hold` to False."""

    caches_hold = True

    def add(self, finding: Finding) -> None:
        """Counts a finding. A log is not refused because of a damaged file of CACHES."""
        if not finding.note and finding.path.endswith(CACHES):
            self.caches_hold = False
            return
        super().add(finding)


def read_source(path: str, report: Report) -> Source:
    """Reads one log directory. Raises ImportRefused, OSError."""
    if why := why_no_log_directory(path):
        raise ImportRefused(why)
    check = read_directory(path, report)
    if "cluster.id" not in check.properties:
        raise ImportRefused(
            f"no cluster.id was found in {path}/meta.properties: is {path} in Kafka's log.dirs?"
        )
    clean = os.path.exists(f"{path}/{CLEAN_MARKER}")
    return Source(path, check, clean, partitions_in(path), node_id_in(check))


def node_id_in(check: LogDirectoryCheck) -> int:
    """The node id in a directory's meta.properties, -1 if it has none. Raises ImportRefused."""
    for name in ("node.id", "broker.id"):
        if text := check.properties.get(name):
            if not is_number(text, INT32_MOST):
                raise ImportRefused(
                    f"{check.path}/meta.properties is damaged: {name}={text[:SHOWN]} is not a whole"
                    f" number from 0 to {INT32_MOST}. Restore the file from a backup, or write the"
                    f" {name} of the broker that wrote {check.path}")
            return int(text)
    return -1


def make_plan(
    sources: list[Source], report: Report, there: Collection[bytes] = frozenset()
) -> Plan:
    """Makes the plan, and checks every log in it. `there` has the ids of the target's topics.
    Raises ImportRefused, OSError."""
    clusters = {source.check.properties["cluster.id"] for source in sources}
    if len(clusters) > 1:
        raise ImportRefused(
            f"the directories belong to different clusters, {' and '.join(clusters)}: name the"
            " log.dirs of one cluster"
        )
    plan = Plan(clusters.pop(), sources[0].node_id, all(source.clean for source in sources))
    image, plan.settings_known = find_image(sources, plan)
    plan.next_producer_id = image.next_producer_id
    for topic in image.topics.values():
        policy = image.configs.get(("topic", topic.name), {}).get("cleanup.policy", "")
        if topic.topic_id in there and not is_complete(topic, sources):
            plan.moved += 1
            continue
        adopt_topic(topic, "compact" in policy, sources, plan, report)
    adopted = {topic.name for topic in plan.topics}
    plan.configs = (
        carried_settings(image, adopted, plan.node_id, plan.notes)
        if plan.settings_known else settings_unknown(adopted)
    )
    ignored = {"RegisterBrokerRecord", "RegisterControllerRecord", "BrokerRegistrationChangeRecord",
            "FenceBrokerRecord", "UnfenceBrokerRecord", "UnregisterBrokerRecord", "NoOpRecord",
            "FeatureLevelRecord", "ZkMigrationStateRecord"}  # fmt: skip
    for kind, count in image.others.items():
        if kind not in ignored:
            plan.notes.append(
                f"{counted(count, 'metadata record')} of type {kind} will not be carried over")
    names = {(topic.name, index) for topic in image.topics.values() for index in topic.partitions}
    for source in sources:
        for key, path in source.partitions.items():
            if key not in names and not path.endswith(METADATA_DIRECTORY):
                plan.notes.append(f"{path} belongs to no existing topic; it is not imported")
    return plan


def find_image(sources: list[Source], plan: Plan) -> tuple[KraftImage, bool]:
    """Returns a controller's newest metadata and True. Without metadata, returns an image made from
    the directories' names and topic ids, and False."""
    places = [source.partitions.get(("__cluster_metadata", 0)) for source in sources]
    images = [read_kraft_image(path) for path in places if path is not None]
    if images:
        return max(images, key=lambda image: image.at), True
    plan.notes.append(
        "there is no __cluster_metadata-0: topics are known from their directories only, so"
        " partitions on other brokers are left out. Settings are not known: all records are kept"
        " (retention.ms=-1, retention.bytes=-1, cleanup.policy=delete) until you set them"
    )
    image = KraftImage()
    for source in sources:
        for (name, index), path in source.partitions.items():
            topic_id = topic_id_of(path)
            if topic_id is None:
                plan.notes.append(f"{path} has no topic id; it is not imported")
                continue
            topic = image.topics.setdefault(topic_id, KraftTopic(name, topic_id))
            found = topic.partitions.setdefault(index, KraftPartition(NO_LEADER, -1, [], []))
            found.replicas.append(source.node_id)
    return image, False


def topic_id_of(path: str) -> bytes | None:
    """The topic id in a partition's directory, None if there is none."""
    from ottla.tools.check_partition import PartitionCheck, RememberedPartition

    nothing = RememberedPartition()
    return PartitionCheck(path, [], [], nothing, False, Report(quiet=True)).read_topic_id()


def is_complete(topic: KraftTopic, sources: list[Source]) -> bool:
    """Whether the sources have each partition of a topic. Without metadata, `topic` has only the
    partitions that the sources have, so that some below the last one may be missing."""
    return all(
        any((topic.name, index) in source.partitions for source in sources)
        for index in range(max(topic.partitions, default=-1) + 1)
    )


def adopt_topic(
    topic: KraftTopic, compacted: bool, sources: list[Source], plan: Plan, report: Report
) -> None:
    """Find and check the partitions of one topic. Raises ImportRefused, OSError."""
    try:
        require_legal_name(topic.name)
    except ProtocolError as error:
        raise ImportRefused(f"topic {topic.name!r}: {error}") from error
    missing = sorted(set(range(max(topic.partitions, default=-1) + 1)) - set(topic.partitions))
    if missing:
        raise ImportRefused(
            f"topic {topic.name}: the given directories have partitions {sorted(topic.partitions)},"
            f" but lack partitions {missing}: also give the directories of the other brokers"
        )
    for index, partition in topic.partitions.items():
        key = topic.name, index
        replicas: list[Adopted] = []
        for source in sources:
            path = source.partitions.get(key)
            if path is None:
                continue
            if topic_id_of(path) not in (topic.topic_id, None):
                plan.notes.append(f"{path} is of an older topic of this name; it is not imported")
                continue
            replicas.append(check_one(source, key, path, compacted, report))
        if not replicas:
            raise ImportRefused(
                f"{topic.name}-{index} is not in {', '.join(s.path for s in sources)}; its replicas"
                f" are on brokers {partition.replicas}: also give the directory of one of these"
                " brokers"
            )
        chosen = choose(partition, replicas)
        plan.partitions[key] = chosen
        plan.left_out += left_out(chosen, replicas)
        # `records_of` adds 1 to this epoch, so that the result is above all epochs in the logs.
        epochs = [each.epochs.latest for each in replicas]
        partition.leader_epoch = max(partition.leader_epoch, *epochs)
        ids = [each.producer_id_max for each in replicas]
        plan.next_producer_id = max(plan.next_producer_id, max(ids) + 1)
    plan.topics.append(topic)


def check_one(
    source: Source, key: Partition, path: str, compacted: bool, report: Report
) -> Adopted:
    """Check a partition's log as `ottla log verify` does. Raises ImportRefused, OSError."""
    mine = ErrorsOfLogs(True, report.bytes_due, report.bytes_done)
    known = known_of(source.check, key, False)
    known = replace(known, cleaned=known.cleaned or compacted)
    checked: Checked = check_partition(path, known, False, mine)
    report.bytes_done = mine.bytes_done
    if mine.errors:
        raise ImportRefused(
            f"{path} is damaged, as the lines above say. Restore it from another replica. Without"
            " a replica, move the directory away, start Kafka, delete the topic in Kafka, and stop"
            " Kafka before the import"
        )
    offsets = source.check.offsets
    start = offsets[LOG_STARTS].get(key, 0)
    return Adopted(
        key, path, source.node_id, checked.start_offset, checked.end_offset, checked.size,
        mine.caches_hold,
        min(offsets[RECOVERY_POINTS].get(key, 0), checked.end_offset),
        min(max(start, 0), checked.end_offset),
        # The offset up to which the log was compacted. Above this offset, recovery treats a gap
        # between segments as a loss.
        max(offsets[CLEANED].get(key, 0), checked.gaps_below),
        checked.epochs,
        max(checked.producer_id_max, transactional_id_max(key, path)),
    )  # fmt: skip


def transactional_id_max(key: Partition, path: str) -> int:
    """The highest producer id in a transaction coordinator's log, -1 if there is none. No other log
    contains the id of a producer that has not written a record yet. Raises ImportRefused, OSError.
    """
    highest = -1
    if key[0] != TRANSACTIONS_TOPIC:
        return highest
    try:
        for batch in batches_of(path):
            for record in () if batch.control else batch.records():
                known = decode_record(record.key or b"", record.value)
                if known is not None and (value := known.value) is not None:
                    ids = value.producer_id, value.previous_producer_id, value.next_producer_id
                    highest = max(highest, *ids)
    except (MalformedMessage, ProtocolError) as error:
        raise ImportRefused(
            f"the producer ids in {path} are unknown, since a record cannot be read: {error}"
        ) from error
    return highest


def batches_of(path: str) -> Iterator[BatchView]:
    """The batches of a checked log, without an incomplete one at its end."""
    for name in sorted(name for name in os.listdir(path) if name.endswith(".log")):
        with suppress(DamagedFile):
            for _, batch in read_batches(f"{path}/{name}"):
                if not isinstance(batch, BatchView) or not batch.crc_holds():
                    break
                yield batch
