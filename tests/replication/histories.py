"""Hypothesis strategies for metadata records in an order in which they could be written."""

from __future__ import annotations

from hypothesis import strategies as st

from ottla.replication.metadata import (
    BrokerGone,
    BrokerImage,
    BrokerLeaving,
    BrokerRegistered,
    ConfigSet,
    ControllerElected,
    Endpoint,
    EpochsRaised,
    FeatureSet,
    MetadataImage,
    MetadataRecord,
    PartitionChanged,
    PartitionExtra,
    PartitionsAdded,
    PartitionsChanged,
    PartitionState,
    ProducerIdsTaken,
    RecentlyGone,
    TopicCreated,
    TopicDeleted,
)
from ottla.replication.principals import (
    AccessRule,
    QuotaSet,
    RuleSet,
    ScramCredential,
    ScramSet,
)

NAMES = st.sampled_from(["a", "b", "c.d", "ä\n\"é"])
NODES = st.integers(0, 4)
STATES = st.builds(
    PartitionState,
    leader=st.integers(-1, 4),
    leader_epoch=st.integers(0, 2**31 - 1),
    replicas=st.lists(NODES, min_size=1, max_size=3, unique=True).map(tuple),
    isr=st.lists(NODES, max_size=3, unique=True).map(tuple),
    partition_epoch=st.integers(0, 9),
    extra=st.sampled_from([None, PartitionExtra(elr=(3, 4)), PartitionExtra((1,), (2,), (), (0,))]),
)
ENDPOINTS = st.builds(
    Endpoint, st.sampled_from(["PLAINTEXT", "SSL"]), st.just("host"), st.integers(1, 65535)
)
BROKERS = st.builds(
    BrokerImage,
    NODES,
    st.integers(0, 2**62),
    st.lists(ENDPOINTS, max_size=2).map(tuple),
    st.none() | st.just("rack"),
    st.sampled_from(["", "b2f1"]),
    st.sampled_from([(), ("d1", "d2")]),
)
SOMEONE = (("client-id", None), ("user", "ä\n\"é"))
READER = AccessRule(2, 3, "t", "User:ä", "*", 3, 3)
# Samples are whole records: otherwise hypothesis would spend its time combining their parts.
PRINCIPALS: st.SearchStrategy[MetadataRecord] = st.sampled_from([
    RuleSet(READER, True), RuleSet(READER, False),
    RuleSet(AccessRule(4, 3, "kafka-cluster", "User:*", "::1", 8, 2), True),
    ScramSet("u", 1, ScramCredential(4096, b"", b"\0\xff", b"k")), ScramSet("u", 1, None),
    ScramSet("ä", 2, ScramCredential(16384, b"s", b"", b"")),
    QuotaSet(SOMEONE, "request_percentage", 0.1), QuotaSet(SOMEONE, "request_percentage", None),
    QuotaSet((("ip", None),), "connection_creation_rate", 1e9),
])
ANYWHERE: st.SearchStrategy[MetadataRecord] = st.one_of(
    st.builds(
        ConfigSet,
        st.sampled_from(["topic", "broker", "group"]),
        NAMES | st.just(""),
        st.sampled_from(["retention.ms", "cleanup.policy"]),
        st.none() | st.text(max_size=5),
    ),
    st.builds(BrokerRegistered, BROKERS),
    st.builds(BrokerGone, NODES, st.sampled_from([(), (1, 2)])),
    st.builds(RecentlyGone, st.sampled_from([(), (1,), (1, 2)])),
    st.builds(ControllerElected, NODES, st.integers(1, 2**31 - 1)),
    st.builds(FeatureSet, st.sampled_from(["group.version", "kraft.version"]), st.integers(0, 2)),
    st.builds(EpochsRaised, st.integers(1, 3)),
    PRINCIPALS,
)


NEW_NAMES = ("a", "b", "c.d")
PARTITIONS = st.lists(STATES, min_size=1, max_size=2).map(tuple)
KINDS = st.lists(st.integers(-2, 5), max_size=12)
CHOICES = st.integers(0, 11)


@st.composite
def histories(draw: st.DrawFn) -> list[MetadataRecord]:
    """Lists of records that a controller could have written in this order."""
    image, records = MetadataImage.empty("c"), []
    for number, kind in enumerate(draw(KINDS)):
        record = _next(draw, image, number, kind)
        image = image.apply([record])
        records.append(record)
    return records


def _next(draw: st.DrawFn, image: MetadataImage, number: int, kind: int) -> MetadataRecord:
    there = sorted(image.topics)
    missing = [name for name in NEW_NAMES if name not in image.topics]
    if kind >= 4:
        return draw(ANYWHERE)
    if kind == 3:
        return ProducerIdsTaken(image.next_producer_id + 1000)
    if missing and (kind == 2 or not there) and kind != -2:
        topic_id = (number + 1).to_bytes(16, "big")
        return TopicCreated(missing[draw(CHOICES) % len(missing)], topic_id, draw(PARTITIONS))
    if kind == -2:
        return BrokerLeaving(draw(st.sampled_from(sorted(image.brokers) or [0])))
    name = there[draw(CHOICES) % len(there)]
    if kind == -1:
        last, state = len(image.topics[name].partitions) - 1, draw(STATES)
        return PartitionsChanged(name, ((0, state), (last, state)))
    if kind == 2:
        return TopicDeleted(name)
    if kind == 1:
        return PartitionsAdded(name, draw(PARTITIONS))
    return PartitionChanged(name, 0, draw(STATES))
