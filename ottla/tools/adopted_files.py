"""Puts planned partitions into a data directory: files first, then the metadata that adds them.

    .ottla-import/<topic>-<n>/   unfinished copies or links; a starting broker ignores them
    <topic>-<n>/                 complete and durable; unused until the metadata has the topic
    checkpoints                  recovery points, log starts
    __ottla_metadata-0           one batch adds the topics: after a crash, all exist or none

A crash before that batch leaves the source unchanged, and the target without the topics. Run the
import again to start over. Closed segments may be hard links to the source's files: a broker
replaces a link before it changes the file (`File.separate`). The last segment and all small files
are always copied.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.log.files.clock import Clock
from ottla.log.files.disk import Disk
from ottla.log.files.names import partition_metadata
from ottla.log.storage.clean_stop import flush_everything
from ottla.log.storage.log_directory import LogDirectory, StorageRefused
from ottla.log.storage.storage import Storage
from ottla.replication.metadata import (
    MetadataImage,
    MetadataRecord,
    PartitionState,
    ProducerIdsTaken,
    TopicCreated,
)
from ottla.replication.standalone import StandaloneStore
from ottla.replication.topic_names import colliding_name
from ottla.tools.adoption_plan import CACHES, Plan
from ottla.tools.findings import ImportRefused
from ottla.tools.replica_choice import Adopted, keep_aside

if TYPE_CHECKING:
    from ottla.tools.kraft_image import KraftTopic

STAGING = ".ottla-import"
FILES = re.compile(r"\d{20}\.(log|index|timeindex|txnindex|snapshot)(\.swap)?")
ROOM_BYTES = 64 << 20
"""Bytes that are kept free on the target's disk."""

Say = Callable[[str], None]


def adopt(plan: Plan, target: str, node_id: int, link: bool, say: Say) -> list[KraftTopic]:
    """Adopts the planned topics that the target lacks, and returns them. Raises ImportRefused,
    OSError."""
    disk = Disk()
    new = not os.path.exists(f"{target}/meta.properties")
    try:
        storage = Storage.open(
            disk, Clock(), [target], node_id=node_id, cluster_id=plan.cluster_id if new else None
        )
    except StorageRefused as error:
        raise ImportRefused(str(error)) from error
    directory = storage.directories[0]
    clean = directory.clean or new
    try:
        store = StandaloneStore.open(storage, Clock())
        image = store.load()
        topics = topics_to_adopt(plan, image)
        partitions = [
            plan.partitions[topic.name, index] for topic in topics for index in topic.partitions
        ]
        if not link:
            require_room(target, partitions)
        # The next start must recover the logs if the source was not stopped cleanly, or if a
        # partition's indexes are not adopted.
        sound = not partitions or (plan.clean and all(each.caches_hold for each in partitions))
        was_clean, clean = clean, False
        for adopted in partitions:
            say(f"adopting {adopted.path} up to log end offset {adopted.end_offset}")
            stage(disk, directory, adopted, plan, link)
        for adopted in partitions:
            put_in_place(disk, storage, directory, adopted)
        keys = {each.key for each in partitions}
        for part in plan.left_out:
            if part.replica.key in keys:
                say(f"{part}; the records were copied to {keep_aside(part, directory.path)}")
        shutil.rmtree(directory.file(STAGING), ignore_errors=True)
        disk.sync_directory(directory.path)
        storage.begin_checkpoint([(each.key, each.end_offset) for each in partitions]).run()
        records = records_of(plan, topics, image, node_id)
        if records:
            store.append(records, image.apply(records))
        clean = was_clean and sound
    finally:
        let_go(storage, clean)
    return topics


def let_go(storage: Storage, clean: bool) -> None:
    """Closes the target directory. With `clean`, marks the stop as clean. Without this mark, the
    next start recovers the logs."""
    if clean:
        storage.close()
        return
    flush_everything(storage)
    storage.checkpoint()
    for directory in storage.directories:
        directory.close()


def topics_to_adopt(plan: Plan, image: MetadataImage) -> list[KraftTopic]:
    """The topics that the target lacks. Raises ImportRefused if a topic's name collides with the
    name of another topic in the target."""
    topics = []
    for topic in plan.topics:
        there = image.topics.get(topic.name)
        if there is not None:
            if there.topic_id == topic.topic_id:
                continue                        # an earlier run adopted it
            raise ImportRefused(
                f"--data-dir already has a topic {topic.name}, with another topic id. Delete one of"
                " the two topics, or import into another directory"
            )
        other = colliding_name(topic.name, image.topics)
        if other is not None:
            raise ImportRefused(
                f"topic {topic.name} cannot be adopted: --data-dir has topic {other}, whose name"
                " differs only in dots and underscores. Import into another directory")
        topics.append(topic)
    return topics


def require_room(target: str, partitions: list[Adopted]) -> None:
    """Raises ImportRefused if there is not enough disk space for the copies."""
    needed = sum(each.size for each in partitions) + ROOM_BYTES
    status = os.statvfs(target)
    free = status.f_bavail * status.f_frsize
    if free < needed:
        raise ImportRefused(
            f"{target} has {free} bytes free, but {needed} are needed; if the source is on the same"
            " file system, --link needs almost no space"
        )


def staged_path(directory: LogDirectory, adopted: Adopted) -> str:
    """The path where a partition is stored until it is complete."""
    topic, index = adopted.key
    return directory.file(f"{STAGING}/{topic}-{index}")


def files_of(adopted: Adopted, clean: bool) -> Iterator[tuple[str, bool]]:
    """The files to adopt, and whether each may be a link to the source's file."""
    names = sorted(name for name in os.listdir(adopted.path) if FILES.fullmatch(name))
    logs = [name for name in names if name.endswith(".log")]
    for name in names:
        if name.endswith(CACHES):
            # After an unclean stop of Kafka, the indexes of the last segment still have their
            # maximum size, with zeros at the end. They are not adopted.
            open_index = not clean and logs and name.startswith(logs[-1][:20])
            if not adopted.caches_hold or (open_index and not name.endswith(".txnindex")):
                continue
        yield name, name in logs[:-1]
    if adopted.caches_hold and os.path.exists(f"{adopted.path}/leader-epoch-checkpoint"):
        yield "leader-epoch-checkpoint", False


def stage(disk: Disk, directory: LogDirectory, adopted: Adopted, plan: Plan, link: bool) -> None:
    """Copy or link the files of a partition, and make them durable."""
    target = staged_path(directory, adopted)
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)
    for name, sealed in files_of(adopted, plan.clean):
        source = f"{adopted.path}/{name}"
        if not (link and sealed and linked(source, f"{target}/{name}")):
            copy(source, f"{target}/{name}")
    topic_id = next(topic.topic_id for topic in plan.topics if topic.name == adopted.key[0])
    disk.write_atomically(f"{target}/partition.metadata", partition_metadata(topic_id))
    disk.sync_directory(target)


def linked(source: str, target: str) -> bool:
    """Tries to make a hard link. Returns False if this fails, for example across file systems."""
    try:
        os.link(source, target)
    except OSError:
        return False
    return True


def copy(source: str, target: str) -> None:
    """Copy a file and sync it."""
    with open(source, "rb") as reading, open(target, "wb") as writing:
        shutil.copyfileobj(reading, writing, 1 << 20)
        writing.flush()
        os.fsync(writing.fileno())


def put_in_place(
    disk: Disk, storage: Storage, directory: LogDirectory, adopted: Adopted
) -> None:
    """Gives a staged partition its final name. Replaces the directory of an earlier run."""
    topic, index = adopted.key
    final = directory.file(f"{topic}-{index}")
    if os.path.exists(final):
        keep_if_foreign(final, staged_path(directory, adopted))
        shutil.rmtree(final)
    disk.rename(staged_path(directory, adopted), final)
    storage.homes[adopted.key] = directory
    directory.claim(topic, directory.topic_id(adopted.key))
    known = (
        (directory.recovery_points, adopted.recovery_point),
        (directory.log_starts, adopted.log_start),
        (directory.cleaned, adopted.cleaned),
        (directory.high_watermarks, adopted.end_offset),
    )
    for offsets, offset in known:
        offsets[adopted.key] = offset
    if not adopted.cleaned:
        directory.cleaned.pop(adopted.key)


def keep_if_foreign(final: str, staged: str) -> None:
    """Raises ImportRefused if `final` has another topic id than `staged`. Then `final` is not from
    an earlier run of this import, and must not be replaced."""
    ids = []
    for path in (final, staged):
        try:
            with open(f"{path}/partition.metadata", "rb") as file:
                ids.append(file.read())
        except FileNotFoundError:
            ids.append(b"")
    if ids[0] != ids[1]:
        raise ImportRefused(
            f"{final} already exists, but its topic id shows that it belongs to another topic with"
            " the same name: move it away, or import into another directory"
        )


def records_of(
    plan: Plan, topics: list[KraftTopic], image: MetadataImage, node_id: int
) -> list[MetadataRecord]:
    """The metadata records that add the topics. This node leads each partition in a new epoch."""
    records: list[MetadataRecord] = []
    for topic in topics:
        epochs = [topic.partitions[index].leader_epoch for index in sorted(topic.partitions)]
        states = tuple(
            PartitionState(node_id, epoch + 1, (node_id,), (node_id,)) for epoch in epochs
        )
        records.append(TopicCreated(topic.name, topic.topic_id, states))
    names = {topic.name for topic in topics}
    records += [each for each in plan.configs if each.resource_name in names]
    if topics and plan.next_producer_id > image.next_producer_id:
        # A new producer must not get an id that the logs contain: the broker would take its
        # records for duplicates.
        records.append(ProducerIdsTaken(plan.next_producer_id))
    return records
