"""Bad requests of clients of groups and transactions, and the error code that each gets.

`tests/` sends them to Ottla, `compat_tests/test_refusals.py` to any broker. The codes are those of
Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.groups.classic.subscription import Subscription, write_subscription
from ottla.groups.records import Producer
from ottla.wire.errors import RETRIABLE, ErrorCode
from ottla.wire.messages import (
    AddOffsetsToTxnRequest,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from tests.broker.running import WireClient
from tests.broker.transactions import add_offsets, init
from tests.waiting import until

CLASSIC, MODERN, UNKNOWN = "classic", "modern", "unknown"
FOREVER_MS = 300_000
BIG = "m" * 4097


class Stage:
    """A classic group with a static member, a KIP-848 group with a static and a dynamic member,
    committed offsets in both, and a producer with an open transaction."""

    def __init__(self, client: WireClient, topic: str) -> None:
        self.client, self.topic = client, topic
        created = CreateTopicsRequest.Topic(name=topic, num_partitions=2, replication_factor=1)
        client.call(CreateTopicsRequest(topics=[created], timeout_ms=10_000), 5)
        described = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)])
        until(
            lambda: any(client.call(described, 12).topics[0].topic_id),
            "Metadata names the topic",
        )
        self.topic_id = client.call(described, 12).topics[0].topic_id
        for key_type, key in ((0, CLASSIC), (0, MODERN), (1, topic)):
            self.find(key, key_type)
        self.zombie, self.producer = self.initialised(), self.initialised()
        # The transaction has begun already, so that the refused commits do not begin it (KIP-890).
        for group in (CLASSIC, MODERN):
            while code := add_offsets(client, topic, self.producer, group, 3):
                assert code in RETRIABLE, code
        self.member = self.join_classic()
        self.epoch = self.join_modern()
        for request, version in (
            (self.commit(CLASSIC, self.member, 1, instance="one"), 9),
            (self.commit(MODERN, "m", self.epoch), 9),
        ):
            assert codes(client.call(request, version)) == [0]

    def find(self, key: str, key_type: int) -> None:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        until(
            lambda: not self.client.call(request, 6).coordinators[0].error_code,
            "a coordinator is found",
        )

    def initialised(self) -> Producer:
        """Initialise the producer, which gets a new epoch, once the coordinator has loaded."""
        while not isinstance(producer := init(self.client, self.topic), Producer):
            assert producer in RETRIABLE, producer
        return producer

    def join_classic(self) -> str:
        """Make a group of one static member, in generation 1; returns the member id."""
        request = self.join("", "one")
        while (joined := self.client.call(request, 9)).error_code:
            assert joined.error_code in RETRIABLE, joined
        assert joined.generation_id == 1, joined
        given = SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=b"all")
        sync = self.sync(joined.member_id, 1, "one")
        sync.assignments = [given]
        assert self.client.call(sync, 5).error_code == 0
        return str(joined.member_id)

    def join_modern(self) -> int:
        """Make a KIP-848 group of two members that have reached its epoch; returns the epoch."""
        epochs = {"m": 0, "s": 0}
        owned: dict[str, list[tuple[bytes, list[int]]]] = {"m": [], "s": []}
        while True:
            for member, instance in (("m", None), ("s", "one")):
                request = self.beat(member, epochs[member], instance, owned=owned[member])
                told = self.client.call(request, 1)
                assert told.error_code == 0, told
                epochs[member] = told.member_epoch
                if told.assignment is not None:
                    given = told.assignment.topic_partitions
                    owned[member] = [(each.topic_id, list(each.partitions)) for each in given]
            described = self.client.call(ConsumerGroupDescribeRequest(group_ids=[MODERN]), 1)
            if described.groups[0].group_state == "Stable" and all(owned.values()):
                return epochs["m"]

    def state(self) -> list[Any]:
        """Everything that the refused requests could have changed."""
        told: list[Any] = []
        classic = self.client.call(DescribeGroupsRequest(groups=[CLASSIC, UNKNOWN]), 5)
        told += [(g.group_state, [(m.member_id, m.group_instance_id, m.member_assignment)
                                  for m in g.members]) for g in classic.groups]  # fmt: skip
        modern = self.client.call(ConsumerGroupDescribeRequest(group_ids=[MODERN]), 1).groups[0]
        told += [(modern.group_state, modern.group_epoch)]
        told += [(m.member_id, m.instance_id, m.member_epoch) for m in modern.members]
        for group in (CLASSIC, MODERN, UNKNOWN):
            made = OffsetFetchRequest.Group(group_id=group, topics=None)
            answer = self.client.call(OffsetFetchRequest(groups=[made]), 8).groups[0]
            told += [(t.name, p.partition_index, p.committed_offset, p.metadata)
                     for t in answer.topics for p in t.partitions]  # fmt: skip
        request = DescribeTransactionsRequest(transactional_ids=[self.topic])
        found = self.client.call(request, 0).transaction_states[0]
        return [*told, (found.transaction_state, found.producer_id, found.producer_epoch)]

    # Requests, which are valid if the arguments are

    def join(self, member: str, instance: str | None, **more: Any) -> Any:
        data = write_subscription(Subscription((self.topic,)), 1)
        made = JoinGroupRequest.Protocol(name=more.pop("protocol", "range"), metadata=data)
        return JoinGroupRequest(
            **{
                "group_id": CLASSIC, "session_timeout_ms": FOREVER_MS,
                "rebalance_timeout_ms": FOREVER_MS, "member_id": member,
                "group_instance_id": instance, "protocol_type": "consumer", "protocols": [made],
                **more,
            }
        )  # fmt: skip

    def sync(self, member: str, generation: int, instance: str | None = None, **more: Any) -> Any:
        return SyncGroupRequest(
            **{
                "group_id": CLASSIC, "generation_id": generation, "member_id": member,
                "group_instance_id": instance, "protocol_type": "consumer",
                "protocol_name": "range", **more,
            }
        )  # fmt: skip

    def heartbeat(
        self, member: str, generation: int, instance: str | None = None, group: str = CLASSIC
    ) -> Any:
        return HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
        )

    def leave(self, member: str, instance: str | None = None, group: str = CLASSIC) -> Any:
        made = LeaveGroupRequest.Member(member_id=member, group_instance_id=instance)
        return LeaveGroupRequest(group_id=group, members=[made])

    def beat(
        self, member: str, epoch: int, instance: str | None = None, group: str = MODERN,
        owned: list[tuple[bytes, list[int]]] | None = None, **more: Any,
    ) -> Any:
        made = ConsumerGroupHeartbeatRequest.TopicPartition
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, instance_id=instance
        )
        if epoch == 0:
            request.rebalance_timeout_ms, request.topic_partitions = FOREVER_MS, []
            request.subscribed_topic_names = [self.topic]
        if owned is not None:
            request.topic_partitions = [made(topic_id=t, partitions=p) for t, p in owned]
        for name, value in more.items():
            setattr(request, name, value)
        return request

    def commit(
        self, group: str, member: str = "", generation: int = -1, instance: str | None = None,
        topic: str | bytes | None = None, partition: int = 0, metadata: str = "",
    ) -> Any:
        made = OffsetCommitRequest.Topic
        where = self.topic if topic is None else topic
        named = made(topic_id=where) if isinstance(where, bytes) else made(name=where)
        named.partitions = [
            made.Partition(
                partition_index=partition, committed_offset=7, committed_metadata=metadata
            )
        ]
        return OffsetCommitRequest(
            group_id=group, member_id=member, generation_id_or_member_epoch=generation,
            group_instance_id=instance, topics=[named],
        )

    def commit_in_transaction(
        self, group: str, producer: Producer | None = None, **more: Any
    ) -> Any:
        made = TxnOffsetCommitRequest.Topic
        metadata = more.pop("metadata", "")
        partition = made.Partition(
            partition_index=more.pop("partition", 0), committed_offset=8,
            committed_metadata=metadata,
        )
        where = more.pop("topic", self.topic)
        topic = made(topic_id=where) if isinstance(where, bytes) else made(name=where)
        topic.partitions = [partition]
        generation = more.pop("generation", 1)
        producer = producer or self.producer
        return TxnOffsetCommitRequest(
            transactional_id=self.topic, group_id=group, producer_id=producer.producer_id,
            producer_epoch=producer.epoch, topics=[topic],
            generation_id_or_member_epoch=generation, **more,
        )

    def fetch(self, group: str, member: str, epoch: int) -> Any:
        made = OffsetFetchRequest.Group
        wanted = made.Topic(name=self.topic, partition_indexes=[0])
        return OffsetFetchRequest(
            groups=[made(group_id=group, member_id=member, member_epoch=epoch, topics=[wanted])]
        )

    def forget(self, group: str, topic: str) -> Any:
        made = OffsetDeleteRequest.Topic
        named = made(name=topic, partitions=[made.Partition(partition_index=0)])
        return OffsetDeleteRequest(group_id=group, topics=[named])


def codes(answer: Any) -> list[int]:
    """Every error code of an answer, the outer ones first."""
    found = [answer.error_code] if hasattr(answer, "error_code") else []
    for name in ("members", "groups", "topics", "partitions", "results"):
        for each in getattr(answer, name, None) or []:
            found += codes(each)
    return found


Row = tuple[str, Callable[[Stage], Any], int, str]
"""A description, the request, its version, and the name of the expected code."""

UNKNOWN_MEMBERS: list[Row] = [
    ("heartbeat", lambda s: s.heartbeat("nobody", 1), 4, "UNKNOWN_MEMBER_ID"),
    ("heartbeat, no group", lambda s: s.heartbeat("a", 1, group=UNKNOWN), 4, "UNKNOWN_MEMBER_ID"),
    ("heartbeat, no member id", lambda s: s.heartbeat("", 1), 4, "UNKNOWN_MEMBER_ID"),
    ("join", lambda s: s.join("nobody", None), 9, "UNKNOWN_MEMBER_ID"),
    ("sync", lambda s: s.sync("nobody", 1), 5, "UNKNOWN_MEMBER_ID"),
    ("leave", lambda s: s.leave("nobody"), 5, "UNKNOWN_MEMBER_ID"),
    ("leave, no group", lambda s: s.leave("a", group=UNKNOWN), 5, "UNKNOWN_MEMBER_ID"),
    ("commit", lambda s: s.commit(CLASSIC, "nobody", 1), 9, "UNKNOWN_MEMBER_ID"),
    ("commit as no member", lambda s: s.commit(CLASSIC), 9, "UNKNOWN_MEMBER_ID"),
    ("commit, no group", lambda s: s.commit(UNKNOWN, "a", 1), 9, "GROUP_ID_NOT_FOUND"),
    ("commit, no group, before", lambda s: s.commit(UNKNOWN, "a", 1), 8, "ILLEGAL_GENERATION"),
    ("transaction", lambda s: s.commit_in_transaction(CLASSIC, member_id="nobody",
     generation=1), 5, "UNKNOWN_MEMBER_ID"),
    ("transaction, no group", lambda s: s.commit_in_transaction(UNKNOWN, member_id="a",
     generation=1), 5, "ILLEGAL_GENERATION"),
    ("transaction by id, no group", lambda s: s.commit_in_transaction(UNKNOWN, member_id="a",
     generation=1, topic=s.topic_id), 6, "GROUP_ID_NOT_FOUND"),
    ("beat", lambda s: s.beat("nobody", 1), 1, "UNKNOWN_MEMBER_ID"),
    ("beat, no group", lambda s: s.beat("a", 1, group=UNKNOWN), 1, "GROUP_ID_NOT_FOUND"),
    ("beat, no member id", lambda s: s.beat("", 1), 1, "INVALID_REQUEST"),
    ("commit modern", lambda s: s.commit(MODERN, "nobody", 1), 9, "UNKNOWN_MEMBER_ID"),
    ("commit modern as no member", lambda s: s.commit(MODERN), 9, "UNKNOWN_MEMBER_ID"),
    ("transaction modern", lambda s: s.commit_in_transaction(MODERN, member_id="nobody",
     generation=1), 5, "UNKNOWN_MEMBER_ID"),
    ("fetch", lambda s: s.fetch(MODERN, "nobody", 1), 9, "UNKNOWN_MEMBER_ID"),
]  # fmt: skip
STALE: list[Row] = [
    ("heartbeat", lambda s: s.heartbeat(s.member, 0), 4, "ILLEGAL_GENERATION"),
    ("heartbeat ahead", lambda s: s.heartbeat(s.member, 2), 4, "ILLEGAL_GENERATION"),
    ("sync", lambda s: s.sync(s.member, 0), 5, "ILLEGAL_GENERATION"),
    ("commit", lambda s: s.commit(CLASSIC, s.member, 0), 9, "ILLEGAL_GENERATION"),
    ("commit ahead", lambda s: s.commit(CLASSIC, s.member, 2), 9, "ILLEGAL_GENERATION"),
    ("transaction", lambda s: s.commit_in_transaction(CLASSIC, member_id=s.member,
     generation=0), 5, "ILLEGAL_GENERATION"),
    ("beat ahead", lambda s: s.beat("m", s.epoch + 1), 1, "FENCED_MEMBER_EPOCH"),
    ("beat behind", lambda s: s.beat("m", s.epoch - 1, owned=[(s.topic_id, [0, 1])]), 1,
     "FENCED_MEMBER_EPOCH"),
    ("beat of no epoch", lambda s: s.beat("m", -3), 1, "INVALID_REQUEST"),
    ("commit modern ahead", lambda s: s.commit(MODERN, "m", s.epoch + 1), 9, "STALE_MEMBER_EPOCH"),
    ("commit modern, before", lambda s: s.commit(MODERN, "m", s.epoch + 1), 8,
     "UNSUPPORTED_VERSION"),
    ("transaction modern", lambda s: s.commit_in_transaction(MODERN, member_id="m",
     generation=s.epoch + 1), 5, "ILLEGAL_GENERATION"),
    ("transaction modern by id", lambda s: s.commit_in_transaction(MODERN, member_id="m",
     generation=s.epoch + 1, topic=s.topic_id), 6, "STALE_MEMBER_EPOCH"),
    ("fetch", lambda s: s.fetch(MODERN, "m", s.epoch + 1), 9, "STALE_MEMBER_EPOCH"),
]  # fmt: skip
FOREIGN_INSTANCES: list[Row] = [
    ("heartbeat", lambda s: s.heartbeat("other", 1, "one"), 4, "FENCED_INSTANCE_ID"),
    ("heartbeat, unknown", lambda s: s.heartbeat(s.member, 1, "two"), 4, "UNKNOWN_MEMBER_ID"),
    ("join", lambda s: s.join("other", "one"), 9, "FENCED_INSTANCE_ID"),
    ("join, unknown", lambda s: s.join("other", "two"), 9, "UNKNOWN_MEMBER_ID"),
    ("sync", lambda s: s.sync("other", 1, "one"), 5, "FENCED_INSTANCE_ID"),
    ("leave", lambda s: s.leave("other", "one"), 5, "FENCED_INSTANCE_ID"),
    ("leave, unknown", lambda s: s.leave("", "two"), 5, "UNKNOWN_MEMBER_ID"),
    ("commit", lambda s: s.commit(CLASSIC, "other", 1, "one"), 9, "FENCED_INSTANCE_ID"),
    ("commit, unknown", lambda s: s.commit(CLASSIC, s.member, 1, "two"), 9, "UNKNOWN_MEMBER_ID"),
    ("transaction", lambda s: s.commit_in_transaction(CLASSIC, member_id="other",
     generation=1, group_instance_id="one"), 5, "FENCED_INSTANCE_ID"),
    ("beat", lambda s: s.beat("other", s.epoch, "one"), 1, "FENCED_INSTANCE_ID"),
    ("beat that joins", lambda s: s.beat("other", 0, "one"), 1, "UNRELEASED_INSTANCE_ID"),
    ("beat, unknown", lambda s: s.beat("m", s.epoch, "two"), 1, "UNKNOWN_MEMBER_ID"),
]  # fmt: skip
BAD_OFFSETS: list[Row] = [
    ("metadata", lambda s: s.commit(CLASSIC, s.member, 1, metadata=BIG), 9,
     "OFFSET_METADATA_TOO_LARGE"),
    ("metadata modern", lambda s: s.commit(MODERN, "m", s.epoch, metadata=BIG), 9,
     "OFFSET_METADATA_TOO_LARGE"),
    ("metadata in a transaction", lambda s: s.commit_in_transaction(CLASSIC, metadata=BIG,
     member_id=s.member, generation=1), 5, "OFFSET_METADATA_TOO_LARGE"),
    ("topic", lambda s: s.commit(CLASSIC, s.member, 1, topic="absent"), 9,
     "UNKNOWN_TOPIC_OR_PARTITION"),
    ("topic id", lambda s: s.commit(CLASSIC, s.member, 1, topic=b"x" * 16), 10,
     "UNKNOWN_TOPIC_ID"),
    ("partition", lambda s: s.commit(CLASSIC, s.member, 1, partition=9), 9,
     "UNKNOWN_TOPIC_OR_PARTITION"),
    ("topic in a transaction", lambda s: s.commit_in_transaction(CLASSIC, topic="absent",
     member_id=s.member, generation=1), 5, "UNKNOWN_TOPIC_OR_PARTITION"),
    ("partition in a transaction", lambda s: s.commit_in_transaction(CLASSIC, partition=9,
     member_id=s.member, generation=1), 5, "UNKNOWN_TOPIC_OR_PARTITION"),
    ("deleting what is read", lambda s: s.forget(CLASSIC, s.topic), 0,
     "GROUP_SUBSCRIBED_TO_TOPIC"),
    ("deleting a topic's that is none", lambda s: s.forget(CLASSIC, "absent"), 0,
     "UNKNOWN_TOPIC_OR_PARTITION"),
    ("deleting a group with members", lambda s: DeleteGroupsRequest(groups_names=[CLASSIC]), 2,
     "NON_EMPTY_GROUP"),
]  # fmt: skip
OTHERS: list[Row] = [
    ("join, no group id", lambda s: s.join("", None, group_id=""), 9, "INVALID_GROUP_ID"),
    ("join, a short session", lambda s: s.join("", None, session_timeout_ms=1), 9,
     "INVALID_SESSION_TIMEOUT"),
    ("join, another protocol", lambda s: s.join("", None, protocol="other"), 9,
     "INCONSISTENT_GROUP_PROTOCOL"),
    ("join, another type", lambda s: s.join("", None, protocol_type="connect"), 9,
     "INCONSISTENT_GROUP_PROTOCOL"),
    ("sync, another protocol", lambda s: s.sync(s.member, 1, protocol_name="other"), 5,
     "INCONSISTENT_GROUP_PROTOCOL"),
    ("beat, another assignor", lambda s: s.beat("n", 0, server_assignor="best"), 1,
     "UNSUPPORTED_ASSIGNOR"),
    ("beat that joins a classic group with partitions", lambda s: s.beat(
     "n", 0, owned=[(s.topic_id, [0])]), 1, "INVALID_REQUEST"),
    ("end of a zombie", lambda s: EndTxnRequest(transactional_id=s.topic, committed=True,
     producer_id=s.zombie.producer_id, producer_epoch=s.zombie.epoch), 5, "PRODUCER_FENCED"),
    ("end of a foreign producer", lambda s: EndTxnRequest(transactional_id=s.topic,
     committed=True, producer_id=s.zombie.producer_id + 9_999, producer_epoch=0), 5,
     "INVALID_PRODUCER_ID_MAPPING"),
    ("offsets of a zombie", lambda s: AddOffsetsToTxnRequest(transactional_id=s.topic,
     producer_id=s.zombie.producer_id, producer_epoch=s.zombie.epoch, group_id=CLASSIC), 3,
     "PRODUCER_FENCED"),
    ("commit of a zombie", lambda s: s.commit_in_transaction(CLASSIC, s.zombie,
     member_id=s.member, generation=1), 5, "INVALID_PRODUCER_EPOCH"),
    ("initialising a zombie", lambda s: InitProducerIdRequest(transactional_id=s.topic,
     transaction_timeout_ms=60_000, producer_id=s.zombie.producer_id + 9_999,
     producer_epoch=0), 5, "PRODUCER_FENCED"),
    ("a timeout that is too long", lambda s: InitProducerIdRequest(transactional_id=s.topic,
     transaction_timeout_ms=901_000), 5, "INVALID_TRANSACTION_TIMEOUT"),
]  # fmt: skip
TABLES = {
    "unknown members": UNKNOWN_MEMBERS,
    "stale generations and epochs": STALE,
    "foreign instance ids": FOREIGN_INSTANCES,
    "bad offsets": BAD_OFFSETS,
    "others": OTHERS,
}
ROWS = [(f"{table}: {row[0]}", *row[1:]) for table, rows in TABLES.items() for row in rows]


def refused(stage: Stage, request: Callable[[Stage], Any], version: int) -> str:
    """Send a bad request, check that it changes nothing, and return the name of its code."""
    before = stage.state()
    found = codes(stage.client.call(request(stage), version))
    assert stage.state() == before, "a refused request has changed something"
    return ErrorCode(next(filter(None, found), 0)).name
