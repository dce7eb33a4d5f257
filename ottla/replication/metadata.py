"""The cluster's metadata: an immutable image, and the records from which it is built.

The controller decides by returning records; `MetadataImage.apply` is the only way from one image
to the next. Consecutive images share everything that did not change, so handlers may keep an image
as long as they like.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar

from ottla.replication.principals import (
    AccessRule,
    DelegationToken,
    Entity,
    Identity,
    QuotaSet,
    RuleSet,
    ScramCredential,
    ScramSet,
    TokenSet,
)
from ottla.replication.steps import Steps, at_once

NO_LEADER = -1

Result = TypeVar("Result")


class PartitionExtra(NamedTuple):
    """The fields that few partitions have, each a tuple of node ids.

    `adding` and `removing` are the replicas that a reassignment adds and removes (KIP-455). `elr`
    are replicas outside the in-sync set that have all committed records; `last_elr` are replicas
    that had all of them, but may have lost some since (KIP-966). `doubtful` are in-sync
    replicas whose machine stopped without warning: the end of their logs may be lost. `lost` are
    in-sync replicas whose log is missing, damaged or outdated. `awaited` are replicas outside the
    in-sync set that stopped shortly before a doubtful one: they may have records that the doubtful
    one has lost.
    `offline` are replicas in log directories that have failed while their broker runs (KIP-112):
    they neither lead nor join the in-sync set.
    """

    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    doubtful: tuple[int, ...] = ()
    last_elr: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    awaited: tuple[int, ...] = ()


class PartitionState(NamedTuple):
    """Leader and replicas of a partition. `leader` is -1 while there is none; replicas[0] is the
    preferred leader."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int = 0
    extra: PartitionExtra | None = None


class TopicImage(NamedTuple):
    """A topic in one image; `partitions[n]` is partition n.

    `raised_at` is the value of `MetadataImage.raised` when the topic was created; see
    `MetadataImage.leader_epoch`.
    """

    name: str
    topic_id: bytes
    partitions: tuple[PartitionState, ...]
    raised_at: int = 0


class Endpoint(NamedTuple):
    """The address of one listener of a broker."""

    listener: str
    host: str
    port: int


class BrokerImage(NamedTuple):
    """A registered broker.

    In a cluster, `epoch` is the broker epoch: the id of the ZooKeeper transaction that created the
    broker's registration. `incarnation` is chosen anew by each process. `directories` are the ids
    of the broker's log directories.
    """

    node_id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    incarnation: str = ""
    directories: tuple[str, ...] = ()

    def endpoint(self, listener: str) -> Endpoint | None:
        """The address at which clients of `listener` reach this broker."""
        return next((e for e in self.endpoints if e.listener == listener), None)


class TopicCreated(NamedTuple):
    """A topic with its first partitions."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionState, ...]


class PartitionsAdded(NamedTuple):
    """More partitions, after the existing ones of a topic."""

    topic: str
    partitions: tuple[PartitionState, ...]


@dataclass(frozen=True, slots=True)
class PartitionChanged:
    """The new state of one partition: leader, epochs, in-sync set, assignment."""

    topic: str
    index: int
    state: PartitionState


class PartitionsChanged(NamedTuple):
    """The new states of several partitions of one topic, with their indexes."""

    topic: str
    rows: tuple[tuple[int, PartitionState], ...]


class TopicDeleted(NamedTuple):
    """A topic is deleted with all of its settings."""

    name: str


class ConfigSet(NamedTuple):
    """One setting of a resource; None resets it to its default.

    Resource types are "topic", "broker" (name "" is the default for all brokers), "group" and
    "client-metrics".
    """

    resource_type: str
    resource_name: str
    name: str
    value: str | None


class BrokerRegistered(NamedTuple):
    """A broker has registered, or registered again with another epoch or address."""

    broker: BrokerImage


class BrokerGone(NamedTuple):
    """A broker is no longer registered. `company` are brokers that had gone shortly before: this
    broker may have stopped at the same time, without learning that they had gone."""

    node_id: int
    company: tuple[int, ...] = ()


class RecentlyGone(NamedTuple):
    """The new value of `MetadataImage.recently_gone`. BrokerGone adds a broker to that set. Once
    all other brokers have run for long enough since then, a RecentlyGone record removes the
    broker."""

    nodes: tuple[int, ...] = ()


class BrokerLeaving(NamedTuple):
    """A broker is shutting down cleanly: it gives up its leadership wherever another replica can
    lead, and joins no in-sync set."""

    node_id: int


class ControllerElected(NamedTuple):
    """A broker has become the controller; the records up to the next ControllerElected are its
    decisions."""

    node_id: int
    epoch: int


class ProducerIdsTaken(NamedTuple):
    """Producer ids below `next_id` were allocated to brokers, in blocks."""

    next_id: int


class FeatureSet(NamedTuple):
    """A feature is finalised at a level (KIP-584); 0 is the decision not to use it."""

    name: str
    level: int


class Held(NamedTuple):
    """Upper bounds for a broker's logs: all their producer ids are below `next_id`, and all their
    leader epochs are below `epoch`."""

    next_id: int = 0
    epoch: int = 0


class BackupAdopting(NamedTuple):
    """ZooKeeper was restored from a backup: there are no leaders and no new producer ids until the
    brokers `awaited` have reported what their logs have. The other fields are the maxima of the
    reports (`Held`)."""

    awaited: tuple[int, ...] = ()
    next_id: int = 0
    epoch: int = 0


class BackupAdopted(NamedTuple):
    """The adoption of a backup has ended: leader epochs and producer ids are above those of all
    logs again."""


class EpochsRaised(NamedTuple):
    """The leader epoch of every existing partition rises by `by`: the standalone broker has
    restarted."""

    by: int = 1


MetadataRecord = (
    TopicCreated
    | PartitionsAdded
    | PartitionChanged
    | PartitionsChanged
    | TopicDeleted
    | ConfigSet
    | BrokerRegistered
    | BrokerGone
    | RecentlyGone
    | BrokerLeaving
    | ControllerElected
    | ProducerIdsTaken
    | FeatureSet
    | EpochsRaised
    | BackupAdopting
    | BackupAdopted
    | ScramSet
    | QuotaSet
    | RuleSet
    | TokenSet
)

Resource = tuple[str, str]


def topics_of(records: Iterable[MetadataRecord]) -> set[str]:
    """The topics that these records create, change or delete."""
    names = set()
    for record in records:
        match record:
            case TopicCreated() | TopicDeleted():
                names.add(record.name)
            case PartitionsAdded() | PartitionChanged() | PartitionsChanged():
                names.add(record.topic)
    return names


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """Everything that the cluster has decided. `offset` is the number of records that led to it.

    In a cluster, `entry` is the number of the last log entry in ZooKeeper that the image contains.
    `leaving` are the brokers that are shutting down. `former` has the last registrations of brokers
    that are gone; `company` has the brokers that had gone shortly before each of them.
    `recently_gone` are brokers that went so recently that other brokers may have stopped at the
    same moment. A broker stays in this set even if it registers again. `adopting` is set while a
    restored backup is being adopted. `raised` is the sum of all EpochsRaised. A standalone broker
    has no controller.
    """

    cluster_id: str = ""
    offset: int = 0
    entry: int = 0
    controller_id: int = -1
    controller_epoch: int = 0
    leaving: frozenset[int] = frozenset()
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    former: Mapping[int, BrokerImage] = field(default_factory=dict)
    company: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    recently_gone: frozenset[int] = frozenset()
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    names: Mapping[bytes, str] = field(default_factory=dict)
    configs: Mapping[Resource, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    raised: int = 0
    adopting: BackupAdopting | None = None
    credentials: Mapping[Identity, ScramCredential] = field(default_factory=dict)
    quotas: Mapping[Entity, Mapping[str, float]] = field(default_factory=dict)
    rules: Mapping[AccessRule, None] = field(default_factory=dict)
    tokens: Mapping[str, DelegationToken] = field(default_factory=dict)

    @classmethod
    def empty(cls, cluster_id: str = "") -> MetadataImage:
        """The image of a new cluster."""
        return cls(cluster_id=cluster_id)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        """The topic with this id."""
        name = self.names.get(topic_id)
        return None if name is None else self.topics[name]

    def leader_epoch(self, topic: TopicImage, state: PartitionState) -> int:
        """The leader epoch of a topic's partition: the epoch in its state, plus all EpochsRaised
        since the topic was created."""
        return state.leader_epoch + self.raised - topic.raised_at

    def is_registered(self, node_id: int, incarnation: str) -> bool:
        """Whether the process with this `incarnation` is registered, and not an earlier or later
        process with the same node id."""
        broker = self.brokers.get(node_id)
        return broker is not None and broker.incarnation == incarnation

    def last_known(self, node_id: int) -> BrokerImage | None:
        """A broker's registration, or its last registration if it is gone; None for a broker that
        was never registered."""
        return self.brokers.get(node_id) or self.former.get(node_id)

    def config_of(self, resource_type: str, resource_name: str) -> Mapping[str, str]:
        """The values that were set for a resource; empty if there are none."""
        return self.configs.get((resource_type, resource_name), {})

    def apply(self, records: Iterable[MetadataRecord]) -> MetadataImage:
        """The image after `records`, in their order. A dictionary is copied only if it changes."""
        return at_once(self.applying(records))

    def applying(self, records: Iterable[MetadataRecord]) -> Steps[MetadataImage]:
        """Do the same as `apply`, in steps of one record."""
        draft = _Draft(self)
        for record in records:
            draft.add(record)
            yield
        return draft.image()


class Decision(NamedTuple, Generic[Result]):
    """What a controller function returns: the records to write, and the result for the
    client."""

    records: Sequence[MetadataRecord]
    result: Result


class _Draft:
    """Builds an image: its dictionaries are copied on the first write."""

    def __init__(self, base: MetadataImage) -> None:
        self.base = base
        self.count = 0
        self.controller_id, self.controller_epoch = base.controller_id, base.controller_epoch
        self.leaving = base.leaving
        self.brokers: dict[int, BrokerImage] | None = None
        self.former, self.company = base.former, base.company
        self.recently_gone = base.recently_gone
        self.topics: dict[str, TopicImage] | None = None
        self.names: dict[bytes, str] | None = None
        self.configs: dict[Resource, Mapping[str, str]] | None = None
        self.features: dict[str, int] | None = None
        self.next_producer_id, self.raised = base.next_producer_id, base.raised
        self.adopting = base.adopting
        self.credentials: dict[Identity, ScramCredential] | None = None
        self.quotas: dict[Entity, Mapping[str, float]] | None = None
        self.rules: dict[AccessRule, None] | None = None
        self.tokens: dict[str, DelegationToken] | None = None

    def add(self, record: MetadataRecord) -> None:
        self.count += 1
        match record:
            case TopicCreated():
                self._put_topic(
                    TopicImage(record.name, record.topic_id, record.partitions, self.raised)
                )
            case PartitionsAdded():
                topic = self._topic(record.topic)
                self._put_topic(topic._replace(partitions=topic.partitions + record.partitions))
            case PartitionChanged():
                self._change(record.topic, ((record.index, record.state),))
            case PartitionsChanged():
                self._change(record.topic, record.rows)
            case TopicDeleted():
                self._delete_topic(record.name)
            case ConfigSet():
                self._set_config(record)
            case BrokerRegistered():
                self.brokers = dict(self.base.brokers if self.brokers is None else self.brokers)
                self.brokers[record.broker.node_id] = record.broker
                self._set_former(record.broker.node_id, None)
                self._set_company(record.broker.node_id, ())
                self.leaving -= {record.broker.node_id}
            case BrokerGone():
                self.brokers = dict(self.base.brokers if self.brokers is None else self.brokers)
                broker = self.brokers.pop(record.node_id, None)
                if broker is not None and broker.incarnation:
                    self._set_former(record.node_id, broker)
                    self.recently_gone |= {record.node_id}
                if record.node_id in self.former:
                    self._set_company(record.node_id, record.company)
                self.leaving -= {record.node_id}
            case RecentlyGone():
                self.recently_gone = frozenset(record.nodes)
            case BrokerLeaving():
                self.leaving |= {record.node_id}
            case ControllerElected():
                self.controller_id, self.controller_epoch = record.node_id, record.epoch
            case ProducerIdsTaken():
                if record.next_id < self.next_producer_id:
                    raise ValueError(
                        f"the record sets the next producer id to {record.next_id}, but it is"
                        f" {self.next_producer_id} already"
                    )
                self.next_producer_id = record.next_id
            case FeatureSet():
                self.features = dict(self.base.features if self.features is None else self.features)
                self.features[record.name] = record.level
            case EpochsRaised():
                self.raised += record.by
            case BackupAdopting():
                self.adopting = record
            case BackupAdopted():
                self.adopting = None
            case ScramSet():
                self._set_credential(record)
            case TokenSet():
                self._set_token(record)
            case QuotaSet():
                self._set_quota(record)
            case RuleSet():
                if self.rules is None:
                    self.rules = dict(self.base.rules)
                self.rules.pop(record.rule, None)
                if record.present:
                    self.rules[record.rule] = None

    def _set_former(self, node_id: int, broker: BrokerImage | None) -> None:
        if broker is not None or node_id in self.former:
            kept = {node: of for node, of in self.former.items() if node != node_id}
            self.former = kept if broker is None else {**kept, node_id: broker}

    def _set_company(self, node_id: int, company: tuple[int, ...]) -> None:
        if company or node_id in self.company:
            kept = {node: of for node, of in self.company.items() if node != node_id}
            self.company = {**kept, node_id: company} if company else kept

    def _topic(self, name: str) -> TopicImage:
        return (self.base.topics if self.topics is None else self.topics)[name]

    def _change(self, name: str, rows: Iterable[tuple[int, PartitionState]]) -> None:
        topic = self._topic(name)
        states = list(topic.partitions)
        for index, state in rows:
            states[index] = state
        self._put_topic(topic._replace(partitions=tuple(states)))

    def _put_topic(self, topic: TopicImage) -> None:
        if self.topics is None or self.names is None:
            self.topics, self.names = dict(self.base.topics), dict(self.base.names)
        self.topics[topic.name] = topic
        self.names[topic.topic_id] = topic.name

    def _delete_topic(self, name: str) -> None:
        if self.topics is None or self.names is None:
            self.topics, self.names = dict(self.base.topics), dict(self.base.names)
        topic = self.topics.pop(name)
        del self.names[topic.topic_id]
        resource = ("topic", name)
        if resource in (self.base.configs if self.configs is None else self.configs):
            self.configs = dict(self.base.configs if self.configs is None else self.configs)
            del self.configs[resource]

    def _set_config(self, record: ConfigSet) -> None:
        if self.configs is None:
            self.configs = dict(self.base.configs)
        resource = (record.resource_type, record.resource_name)
        settings = dict(self.configs.get(resource, {}))
        settings.pop(record.name, None)
        if record.value is not None:
            settings[record.name] = record.value
        if settings:
            self.configs[resource] = settings
        else:
            self.configs.pop(resource, None)

    def _set_credential(self, record: ScramSet) -> None:
        if self.credentials is None:
            self.credentials = dict(self.base.credentials)
        self.credentials.pop((record.user, record.mechanism), None)
        if record.credential is not None:
            self.credentials[record.user, record.mechanism] = record.credential

    def _set_token(self, record: TokenSet) -> None:
        if self.tokens is None:
            self.tokens = dict(self.base.tokens)
        self.tokens.pop(record.token_id, None)
        if record.token is not None:
            self.tokens[record.token_id] = record.token

    def _set_quota(self, record: QuotaSet) -> None:
        if self.quotas is None:
            self.quotas = dict(self.base.quotas)
        limits = dict(self.quotas.pop(record.entity, {}))
        limits.pop(record.key, None)
        if record.value is not None:
            limits[record.key] = record.value
        if limits:
            self.quotas[record.entity] = limits

    def image(self) -> MetadataImage:
        base = self.base
        return replace(
            base,
            offset=base.offset + self.count,
            controller_id=self.controller_id,
            controller_epoch=self.controller_epoch,
            leaving=self.leaving,
            brokers=base.brokers if self.brokers is None else self.brokers,
            former=self.former,
            company=self.company,
            recently_gone=self.recently_gone,
            topics=base.topics if self.topics is None else self.topics,
            names=base.names if self.names is None else self.names,
            configs=base.configs if self.configs is None else self.configs,
            features=base.features if self.features is None else self.features,
            next_producer_id=self.next_producer_id,
            raised=self.raised,
            adopting=self.adopting,
            credentials=base.credentials if self.credentials is None else self.credentials,
            quotas=base.quotas if self.quotas is None else self.quotas,
            rules=base.rules if self.rules is None else self.rules,
            tokens=base.tokens if self.tokens is None else self.tokens,
        )
