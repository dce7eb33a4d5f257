"""What was promised to the clients of a run: the ground truth with which everything read is
compared.

A record is identified by its value, which is sent once in a run. `Batch.fate` is what is known of
it, `Batch.durable` whether it must survive a power cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.wire.records import Record

OPEN, ACKED, REFUSED, UNKNOWN = "open", "acked", "refused", "unknown"
COMMITTED, ABORTED = "committed", "aborted"


@dataclass(eq=False)
class Transaction:
    """One transaction; its fate is COMMITTED or ABORTED once that is certain."""

    name: str
    fate: str = OPEN
    batches: list[Batch] = field(default_factory=list)
    offsets: list[tuple[OffsetKey, int]] = field(default_factory=list)


@dataclass(eq=False)
class Batch:
    """The part of one produce for one partition."""

    partition: PartitionModel
    producer: str
    number: int                     # ascends by producer and partition
    values: list[bytes]
    keys: list[bytes | None]
    timestamps: list[int]
    acks: int
    idempotent: bool = False
    transaction: Transaction | None = None
    fate: str = OPEN
    base_offset: int = -1
    durable: bool = False
    lost_ok: bool = False
    incarnation: int = 0            # of the broker, when it was sent first
    appended_ms: int = -1           # as the answer says, where the topic has LogAppendTime
    by_name: bool = False           # it may reach the next topic with that name


@dataclass(eq=False)
class PartitionModel:
    """One partition of one incarnation of a topic."""

    topic: TopicModel
    index: int
    batches: list[Batch] = field(default_factory=list)
    delete_asked: int = 0           # DeleteRecords that may have happened
    delete_acked: int = 0           # and that have certainly happened
    places: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """What any reader has read, by leader epoch and offset: later reads must agree."""

    def __repr__(self) -> str:
        return f"{self.topic.name}({self.topic.number})-{self.index}"

    @property
    def deleted_below(self) -> int:
        """Records before this offset may have been deleted by request."""
        return max(self.delete_asked, self.delete_acked, *self.late_deletions)

    @property
    def late_deletions(self) -> list[int]:
        """Offsets of DeleteRecords by this name and index whose outcome is not known, or not yet:
        they may reach any later topic of the name."""
        return self.topic.late_deletions.setdefault(self.index, [])

    def known(self, value: bytes | None) -> tuple[Batch, int] | None:
        """What was sent with this value, if it may be in this partition."""
        found = self.topic.by_value.get(value or b"")
        if found is None:
            return None
        batch = found[0]
        if batch.partition is self:
            return found
        sent_to = batch.partition
        late = batch.by_name and sent_to.topic.number < self.topic.number
        same = (sent_to.topic.name, sent_to.index) == (self.topic.name, self.index)
        return found if late and same else None

    def add(self, batch: Batch) -> None:
        self.batches.append(batch)
        for at, value in enumerate(batch.values):
            self.topic.by_value[value] = batch, at


TOMBSTONE = b"-"
"""How the identity of a record without a value begins, which a header holds."""


def identity(record: Record) -> bytes | None:
    """What identifies a record in a run: its value, or a substitute for it."""
    if record.value is None and record.headers:
        return record.headers[0][1]
    return record.value


LIVE, GOING, GONE = "live", "going", "gone"
RETENTION_MS = 7 * 86_400_000
"""Without a setting of the topic: longer than any run."""


@dataclass(eq=False)
class TopicModel:
    """One incarnation of a topic. GOING: a deletion was requested."""

    name: str
    number: int
    topic_id: bytes
    by_value: dict[bytes, tuple[Batch, int]]        # shared by all topics
    partitions: list[PartitionModel] = field(default_factory=list)
    state: str = LIVE
    gone_in: int = -1
    """The incarnation of the broker that has deleted it, if a single one was asked for that."""
    retention_ms_least: int = RETENTION_MS       # the least ever requested
    retention_bytes_least: int = -1              # also; -1: never
    compacted: bool = False
    tombstones_go: bool = False                 # delete.retention.ms was 0 for a while
    append_time: bool = False                   # message.timestamp.type was LogAppendTime
    settings: dict[str, set[str]] = field(default_factory=dict)
    """What each setting that was changed may be by now."""
    late_deletions: dict[int, list[int]] = field(default_factory=dict)
    """By partition; shared by all topics of the name."""
    indexed_whole: bool = False
    changing: dict[str, int] = field(default_factory=dict)
    """Changes of a setting that are under way, or of unknown outcome."""

    def may_be_set(self, name: str, value: str) -> None:
        """A client has asked for this setting, of this topic or of one of its name before it."""
        self.may_follow(name, value)
        self.settings.setdefault(name, {"default"}).add(value)

    def may_follow(self, name: str, value: str) -> None:
        """This topic may be treated as this setting says, its own or the broker's."""
        if value == "default":
            return
        if name == "retention.ms" and value != "-1":
            self.retention_ms_least = min(self.retention_ms_least, int(value))
        if name == "retention.bytes" and value != "-1":
            least = self.retention_bytes_least
            self.retention_bytes_least = int(value) if least < 0 else min(least, int(value))
        if "compact" in value:
            self.compacted = True
        if name == "delete.retention.ms":
            self.tombstones_go = True
        if value == "LogAppendTime":
            self.append_time = True
        if name == "index.interval.bytes" and value != "0":
            self.indexed_whole = False


OffsetKey = tuple[str, TopicModel, int]
"""Group, topic and partition index of a committed offset."""


@dataclass
class GroupOffset:
    """What OffsetFetch may return: -1 is none."""

    possible: set[int] = field(default_factory=lambda: {-1})
    committed_ms: int = 0
    """By the wall clock, when the oldest of the possible ones was committed, or before."""


class Model:
    """All promises of a run."""

    def __init__(self) -> None:
        self.topics: list[TopicModel] = []
        self.by_id: dict[bytes, TopicModel] = {}
        self.transactions: list[Transaction] = []
        self.by_value: dict[bytes, tuple[Batch, int]] = {}
        self.offsets: dict[OffsetKey, GroupOffset] = {}
        self.incarnation = 0
        self.wall_ms_most = 0
        self.records_sent = 0
        self.producer_ids: dict[int, str] = {}
        self.late_deletions: dict[str, dict[int, list[int]]] = {}
        self.of_all: list[tuple[str, str]] = []
        """Settings that the broker may have for all topics."""
        self.late_changes: list[tuple[str, str, str]] = []
        """Topic, setting and value that were asked for by name and may reach the topic's successor:
        they are not answered, or were answered after its deletion was asked for."""

    def new_topic(self, name: str, topic_id: bytes, partitions: int) -> TopicModel:
        topic = TopicModel(name, len(self.topics), topic_id, self.by_value)
        topic.late_deletions = self.late_deletions.setdefault(name, {})
        topic.partitions = [PartitionModel(topic, index) for index in range(partitions)]
        for of, setting, value in self.late_changes:
            if of == name:
                topic.may_be_set(setting, value)
        for setting, value in self.of_all:
            topic.may_follow(setting, value)
        self.topics.append(topic)
        self.by_id[topic_id] = topic
        return topic

    @property
    def sparse(self) -> bool:
        """Whether the broker may leave batches out of the indexes of new topics."""
        return any(name == "index.interval.bytes" for name, _ in self.of_all)

    def everywhere(self, name: str, value: str) -> None:
        """The broker was asked to have this setting for topics without an own one."""
        self.of_all.append((name, value))
        for topic in self.topics:
            topic.may_follow(name, value)

    def live(self) -> list[TopicModel]:
        return [topic for topic in self.topics if topic.state == LIVE]

    def batches(self) -> list[Batch]:
        return [b for topic in self.topics for p in topic.partitions for b in p.batches]

    def power_was_cut(self) -> None:
        """Only what was flushed is still promised."""
        for batch in self.batches():
            if not batch.durable and not (batch.fate == ACKED and batch.acks == -1):
                batch.lost_ok = True
