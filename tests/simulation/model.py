"""What was promised to the clients of a run. Everything that is read is compared with it.

A record is identified by its value, because no other record of the run has this value.
`Batch.fate` says what is known about a batch, and `Batch.durable` whether the batch must survive a
power cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.wire.records import Record

OPEN, ACKED, REFUSED, UNKNOWN = "open", "acked", "refused", "unknown"
COMMITTED, ABORTED = "committed", "aborted"


@dataclass(eq=False)
class Transaction:
    """One transaction. Its fate is COMMITTED or ABORTED as soon as this is certain."""

    name: str
    fate: str = OPEN
    batches: list[Batch] = field(default_factory=list)
    offsets: list[tuple[OffsetKey, int]] = field(default_factory=list)


@dataclass(eq=False)
class Batch:
    """The batch that one produce request has for one partition."""

    partition: PartitionModel
    producer: str
    number: int                     # rises within a producer and partition
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
    incarnation: int = 0            # of the broker, when the batch was first sent
    appended_ms: int = -1           # according to the answer, if the topic has LogAppendTime
    by_name: bool = False           # sent by name: it may reach the next topic with that name


@dataclass(eq=False)
class PartitionModel:
    """One partition of one incarnation of a topic."""

    topic: TopicModel
    index: int
    batches: list[Batch] = field(default_factory=list)
    delete_asked: int = 0           # DeleteRecords may have deleted records below this offset
    delete_acked: int = 0           # DeleteRecords has certainly deleted records below this offset
    places: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """By leader epoch and offset, what readers have read: later reads must return the same."""

    def __repr__(self) -> str:
        return f"{self.topic.name}({self.topic.number})-{self.index}"

    @property
    def deleted_below(self) -> int:
        """Records before this offset may have been deleted by request."""
        return max(self.delete_asked, self.delete_acked, *self.late_deletions)

    @property
    def late_deletions(self) -> list[int]:
        """Offsets of DeleteRecords requests for this topic name and partition whose outcome is not
        known (yet): the requests may reach any later topic of this name."""
        return self.topic.late_deletions.setdefault(self.index, [])

    def known(self, value: bytes | None) -> tuple[Batch, int] | None:
        """The batch with the record that has this value, and the record's index in the batch; None
        if this record cannot be in this partition."""
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
"""The first byte of the identity of a record without a value. A header has the whole identity."""


def identity(record: Record) -> bytes | None:
    """What identifies a record in a run: its value, or a substitute for it."""
    if record.value is None and record.headers:
        return record.headers[0][1]
    return record.value


LIVE, GOING, GONE = "live", "going", "gone"
RETENTION_MS = 7 * 86_400_000
"""The retention time of topics without a setting of their own: longer than any run."""


@dataclass(eq=False)
class TopicModel:
    """One incarnation of a topic. A topic that is created again has another TopicModel. State GOING
    means that its deletion was requested."""

    name: str
    number: int
    topic_id: bytes
    by_value: dict[bytes, tuple[Batch, int]]        # shared by all topics
    partitions: list[PartitionModel] = field(default_factory=list)
    state: str = LIVE
    gone_in: int = -1
    """The incarnation of the broker that has deleted the topic, if all requests to delete it went
    to the same incarnation."""
    retention_ms_least: int = RETENTION_MS       # the lowest value ever requested
    retention_bytes_least: int = -1              # the lowest value ever requested; -1: none was
    compacted: bool = False
    tombstones_go: bool = False                 # delete.retention.ms was 0 for a while
    append_time: bool = False                   # message.timestamp.type was LogAppendTime
    settings: dict[str, set[str]] = field(default_factory=dict)
    """The possible values of each setting that was changed."""
    late_deletions: dict[int, list[int]] = field(default_factory=dict)
    """By partition, as `PartitionModel.late_deletions`; shared by all topics of the name."""
    indexed_whole: bool = False
    changing: dict[str, int] = field(default_factory=dict)
    """By setting, the number of changes that are under way or whose outcome is unknown."""

    def may_be_set(self, name: str, value: str) -> None:
        """Note that a client has requested this value of a setting, for this topic or for an
        earlier one of its name."""
        self.may_follow(name, value)
        self.settings.setdefault(name, {"default"}).add(value)

    def may_follow(self, name: str, value: str) -> None:
        """Note that the broker may apply this value of a setting to the topic, because the topic
        itself or the broker may have this value."""
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
    """The offsets that OffsetFetch may return. -1 means that no offset is committed."""

    possible: set[int] = field(default_factory=lambda: {-1})
    committed_ms: int = 0
    """A time of the wall clock that is not after the commit of the oldest possible offset."""


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
        """Topic, setting and value of changes that were requested by the topic's name and may reach
        the next topic of this name: they are not answered, or were answered after the deletion of
        the topic was requested."""

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
        """Note that the broker was asked to use this setting for topics without one of their
        own."""
        self.of_all.append((name, value))
        for topic in self.topics:
            topic.may_follow(name, value)

    def live(self) -> list[TopicModel]:
        return [topic for topic in self.topics if topic.state == LIVE]

    def batches(self) -> list[Batch]:
        return [b for topic in self.topics for p in topic.partitions for b in p.batches]

    def power_was_cut(self) -> None:
        """Give up the promises about everything that was not flushed."""
        for batch in self.batches():
            if not batch.durable and not (batch.fate == ACKED and batch.acks == -1):
                batch.lost_ok = True
