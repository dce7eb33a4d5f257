"""One of the directories in `log.dirs`: its owner, how it was closed, and what it contains."""

from base64 import urlsafe_b64decode
from collections.abc import Container, Mapping
from itertools import chain
from typing import Any

from ottla.log.files import aborted_sizes, checkpoints, closed_logs, topic_ids
from ottla.log.files.checkpoints import Partition, partition_of
from ottla.log.files.closed_logs import ClosedLog
from ottla.log.files.disk import Disk, File
from ottla.log.files.names import PARTITION_METADATA
from ottla.log.storage.space import Space

CLEAN_MARKER = ".kafka_cleanshutdown"
META = "meta.properties"
MODE, IN_ZOOKEEPER = "ottla.metadata", "zookeeper"
"""The key and the value of the line in meta.properties that says that the broker's metadata are in
ZooKeeper."""
UNFINISHED = "ottla.unfinished"
"""A key that `member_marks` writes to meta.properties while `ottla cluster create` runs. Its value
is the address of the ZooKeeper that gets the metadata. No broker starts on a directory with this
key, because the metadata may be in the directory or in ZooKeeper."""
ID_SIZE = 16
TORN_ID = b""


class StorageRefused(Exception):
    """The storage must not be used: it is locked, or belongs to another broker or cluster."""


class LogDirectory:
    """A directory whose lock this process holds.

    `clean` says whether the last stop was clean; `closed` has each log's state at that stop. The
    two files that say this are removed once the directory is open, so that the next start
    recognizes a crash. A directory that could not be opened is `offline`, and its contents are not
    known.
    """

    __slots__ = (
        "aborted_sizes",
        "clean",
        "cleaned",
        "closed",
        "cluster_id",
        "directory_id",
        "disk",
        "high_watermarks",
        "lock",
        "log_starts",
        "names",
        "offline",
        "partitions",
        "path",
        "recovery_points",
        "space",
        "topic_ids",
        "unopened",
        "written_ids",
    )

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk, self.path = disk, path.rstrip("/") or "/"
        self.offline: str | None = None
        self.space = Space(disk, self.path)
        self.lock: File | None = None
        disk.makedirs(self.path)
        self.lock = self.take_lock()
        self.cluster_id, self.directory_id = "", ""
        self.clean = disk.exists(self.file(CLEAN_MARKER))
        self.recovery_points = self.offsets(checkpoints.RECOVERY_POINTS)
        self.log_starts = self.offsets(checkpoints.LOG_STARTS)
        self.cleaned = self.offsets(checkpoints.CLEANED)
        self.high_watermarks = self.offsets(checkpoints.HIGH_WATERMARKS)
        self.aborted_sizes = aborted_sizes.read(disk, self.file(aborted_sizes.ABORTED_SIZES))
        self.names = disk.subdirectories(self.path)
        self.partitions = self.find_partitions()
        self.closed = self.known_closed()
        self.written_ids = self.read_topic_ids()
        self.topic_ids = self.known_topics()
        self.unopened: set[Partition] = set()
        """Partitions whose log could not be opened, for example for lack of space or descriptors.
        """

    @classmethod
    def unusable(cls, disk: Disk, path: str, error: OSError) -> "LogDirectory":
        """A placeholder for a directory that cannot be opened."""
        self = cls.__new__(cls)
        self.disk, self.path = disk, path.rstrip("/") or "/"
        self.offline = f"log directory {self.path} could not be opened: {error}"
        self.space = Space(disk, self.path)
        self.lock, self.clean, self.cluster_id, self.directory_id = None, False, "", ""
        self.recovery_points, self.log_starts, self.cleaned = {}, {}, {}
        self.high_watermarks, self.partitions, self.closed, self.names = {}, set(), {}, []
        self.written_ids, self.topic_ids, self.aborted_sizes = {}, {}, {}
        self.unopened = set()
        return self

    @property
    def state(self) -> str:
        """`ok`, `full`, or why it is offline."""
        return self.offline or ("full" if self.space.full else "ok")

    @property
    def known(self) -> bool:
        """Whether the directory's partitions are known, even if the directory has failed since."""
        return self.lock is not None

    def close(self) -> None:
        """Releases the lock for another process."""
        if self.lock is not None:
            self.lock.close()

    def file(self, name: str) -> str:
        """The path of a file in this directory."""
        return f"{self.path}/{name}"

    def offsets(self, name: str) -> dict[Partition, int]:
        return checkpoints.read_offsets(self.disk, self.file(name))

    def read_topic_ids(self) -> dict[str, bytes | None] | None:
        """The ids of the topics that the checkpoints name, from the file of topic ids. None if this
        file is missing or damaged."""
        try:
            return topic_ids.decode(self.disk.read_bytes(self.file(topic_ids.TOPIC_IDS)))
        except (FileNotFoundError, ValueError):
            return None

    def known_topics(self) -> dict[str, bytes | None]:
        """The ids of the topics that the checkpoints name. If there is a file of topic ids, drops
        the entries of topics that it lacks: a crash interrupted a checkpoint after it had written
        these entries, and before it had written that file."""
        known = self.written_ids
        if known is None:
            # A directory of Apache Kafka or of an earlier version: the topic ids are only in the
            # partitions' directories.
            known = {}
            for key in chain.from_iterable(self.checkpointed()):
                if key[0] not in known:
                    known[key[0]] = self.topic_id(key) or None
        for offsets in self.checkpointed():
            if {topic for topic, _ in offsets} - known.keys():
                for key in [key for key in offsets if key[0] not in known]:
                    del offsets[key]
        return dict(known)

    def remember_topics(self) -> None:
        """Writes the file of topic ids if it is missing or damaged. Raises OSError."""
        if self.written_ids is None:
            self.disk.write_atomically(
                self.file(topic_ids.TOPIC_IDS), topic_ids.encode(self.topic_ids)
            )
            self.written_ids = dict(self.topic_ids)

    def claim(self, topic: str, topic_id: bytes | None) -> None:
        """Notes that the checkpoints' entries for this topic name belong to the topic with this id.
        If they belonged to another id, they are dropped."""
        if topic_id is None and topic in self.topic_ids:
            return                      # a topic without an id counts as the known topic
        if topic in self.topic_ids and self.topic_ids[topic] not in (None, topic_id):
            self.forget_topics({topic})
        self.topic_ids[topic] = topic_id

    def forget_topics(self, topics: Container[str]) -> None:
        """Forgets the checkpoints' entries of these topics, and their ids."""
        for offsets in self.checkpointed():
            for key in [key for key in offsets if key[0] in topics]:
                del offsets[key]
        self.topic_ids = {
            topic: topic_id for topic, topic_id in self.topic_ids.items() if topic not in topics
        }

    def checkpointed(self) -> tuple[dict[Partition, Any], ...]:
        """The entries of each checkpoint file."""
        return (
            self.recovery_points, self.log_starts, self.cleaned, self.high_watermarks,
            self.aborted_sizes,
        )  # fmt: skip

    def take_lock(self) -> File:
        try:
            return self.disk.lock(self.file(".lock"))
        except BlockingIOError as error:
            raise StorageRefused(
                f"{self.path} is in use by another process, which holds {self.file('.lock')}. "
                "Stop that process, or use another directory."
            ) from error

    def identify(self, node_id: int, cluster_id: str | None, clustered: bool = False) -> None:
        """Checks the owner in `meta.properties`; writes that file if it is missing.

        Raises StorageRefused if the file is damaged, if the directory belongs to another node or
        cluster, if it has the wrong mode (`check_mode`), or if the file is missing but another log
        directory is inside this one.
        """
        known = self.known_ids()
        if not known:
            self.refuse_other_directories()
        check_mode(self.path, known, clustered)
        self.expect(known, "node.id", str(node_id))
        if cluster_id is not None:
            self.expect(known, "cluster.id", cluster_id)
        self.cluster_id = known.get("cluster.id") or cluster_id or self.disk.new_id()
        self.directory_id = known.get("directory.id") or self.disk.new_id()
        properties = {
            "version": "1",
            "cluster.id": self.cluster_id,
            "node.id": str(node_id),
            "directory.id": self.directory_id,
        }
        if clustered:
            properties[MODE] = IN_ZOOKEEPER
        if known != properties:
            data = checkpoints.encode_properties(properties)
            self.disk.write_atomically(self.file(META), data)

    def refuse_other_directories(self) -> None:
        """Raises StorageRefused if a directory such as `broker-1`, which has the name of a
        partition, is a log directory itself."""
        for topic, index in sorted(self.partitions):
            inside = self.file(f"{topic}-{index}")
            if self.disk.exists(f"{inside}/{META}"):
                raise StorageRefused(
                    f"{self.path} is not a broker's log directory, but contains the log directory "
                    f"{inside}. Set log.dirs to {inside} or to another directory.")

    def known_ids(self) -> dict[str, str]:
        """The contents of `meta.properties`. A damaged file must not lead to a new cluster id."""
        try:
            known = checkpoints.decode_properties(self.disk.read_bytes(self.file(META)))
        except FileNotFoundError:
            return {}
        except UnicodeDecodeError:
            known = {}
        whose = known.get("node.id") or known.get("broker.id")
        if whose and known.get("cluster.id") and known.get("version", "1") in ("0", "1"):
            return known
        raise StorageRefused(
            f"{self.file(META)} is damaged: it must contain version=1, node.id and cluster.id. "
            "Restore it from a backup. Or copy this file from another log directory of the broker,"
            " and delete the line directory.id in the copy."
        )

    def expect(self, known: dict[str, str], key: str, value: str) -> None:
        stored = known.get(key, known.get("broker.id") if key == "node.id" else None)
        if stored is not None and stored != value:
            raise StorageRefused(
                f"{self.file(META)} says {key}={stored}, but this broker has {key}={value}. "
                "Correct the setting, or set log.dirs to this broker's own directory."
            )

    def remove_marker(self) -> None:
        """Removes the mark of a clean stop: after a crash, the next start must recover the logs."""
        if self.clean:
            self.disk.unlink(self.file(CLEAN_MARKER))
            self.disk.unlink(self.file(closed_logs.CLOSED_LOGS))
            self.disk.sync_directory(self.path)

    def find_partitions(self) -> set[Partition]:
        """The partitions that have a directory here."""
        partitions, topics = set(), dict[str, str]()
        for name in self.names:
            if (key := partition_of(name)) is not None:
                # A topic's partitions share one string for its name.
                partitions.add((topics.setdefault(key[0], key[0]), key[1]))
        return partitions

    def known_closed(self) -> dict[Partition, ClosedLog]:
        """The logs' state at the clean stop, only for logs that have not changed since."""
        if not self.clean:
            return {}
        known = closed_logs.read(self.disk, self.file(closed_logs.CLOSED_LOGS))
        return {
            key: log
            for key, log in known.items()
            if key in self.partitions and self.recovery_points.get(key) == log.log_end_offset
        }

    def deleted(self) -> list[str]:
        """Directories whose deletion was not finished, and copies of moves that never completed."""
        return [self.file(name) for name in self.names if name.endswith(("-delete", "-future"))]

    def written_upto(self, partition: Partition) -> int:
        """The end of the records that were durable and committed according to the checkpoints; 0 if
        there are none. No power cut and no election can remove these records."""
        end = min(self.recovery_points.get(partition, 0), self.high_watermarks.get(partition, 0))
        return end if end > self.log_starts.get(partition, 0) else 0

    def forget(self, partition: Partition) -> None:
        """Forgets everything about a partition."""
        self.partitions.discard(partition)
        self.unopened.discard(partition)
        for known in self.checkpointed():
            known.pop(partition, None)
        self.closed.pop(partition, None)

    def topic_id(self, partition: Partition) -> bytes | None:
        """The topic id in a partition's directory: empty if a power cut left it incomplete, None if
        there is none, as before Kafka 2.8."""
        return self.topic_id_in(f"{partition[0]}-{partition[1]}")

    def has_records(self, partition: Partition) -> bool:
        """Whether a partition's directory holds a segment."""
        names = self.disk.listdir(self.file(f"{partition[0]}-{partition[1]}"))
        return any(name.endswith(".log") for name in names)

    def topic_id_in(self, name: str) -> bytes | None:
        """Like `topic_id`, for a directory of any name."""
        path = self.file(f"{name}/{PARTITION_METADATA}")
        try:
            for line in self.disk.read_bytes(path).decode().splitlines():
                key, _, value = line.partition(":")
                if key == "topic_id":
                    topic_id = urlsafe_b64decode(value.strip() + "==")
                    return topic_id if len(topic_id) == ID_SIZE else TORN_ID
        except FileNotFoundError:
            return None
        except ValueError:
            pass
        return TORN_ID

    def is_of(self, partition: Partition, topic_id: bytes | None) -> bool:
        """Whether a partition's directory may belong to this topic."""
        known = self.topic_id(partition)
        if known == TORN_ID and self.written_ids is not None:
            # The first flush makes the id durable, and a checkpoint follows. If neither happened,
            # the directory has no record that was acknowledged with acks=all, and may belong to a
            # deleted topic.
            return self.written_ids.get(partition[0]) == topic_id
        return topic_id is None or known in (None, TORN_ID, topic_id)


def check_mode(path: str, known: Mapping[str, str], clustered: bool) -> None:
    """Raise StorageRefused if the directory belongs to a standalone broker and this broker is
    clustered; if it belongs to a clustered broker and this broker is standalone; or if a conversion
    of the directory was interrupted."""
    if UNFINISHED in known:
        raise StorageRefused(
            f"`ottla cluster create` was interrupted while it converted {path}. Run it"
            f" again with --zookeeper {known[UNFINISHED]}, to complete the conversion."
        )
    if not known or (known.get(MODE) == IN_ZOOKEEPER) == clustered:
        return
    if clustered:
        raise StorageRefused(
            f"{path} belongs to a standalone broker, but zookeeper.connect is set, so this broker"
            " would join a cluster. To make the standalone broker the first broker of a cluster,"
            " run `ottla cluster create --from`. To start another broker, set log.dirs to another"
            " directory. To start the standalone broker, remove zookeeper.connect."
        )
    raise StorageRefused(
        f"{path} belongs to a broker of a cluster, which has its metadata in ZooKeeper. Set"
        " zookeeper.connect, or set log.dirs to another directory."
    )
