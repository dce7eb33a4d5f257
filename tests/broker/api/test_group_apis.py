"""A group's life cycle over the wire, in every version of every API, and errors for bad
requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.client.frames import Sent
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.headers import RequestHeader
from ottla.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tests.broker.groups import commit_request, find, topic_id
from tests.broker.running import RunningBroker, WireClient
from tests.waiting import until

SUBSCRIPTION = b"\0\0\0\0\0\0\xff\xff\xff\xff"
STEPS = range(11)
"""Step N uses version N of every API, or the API's newest version if that is lower."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(
        tmp_path_factory.mktemp("data"), group_initial_rebalance_delay_ms=0
    ) as running:
        yield running


def at(key: ApiKey, step: int) -> int:
    return min(step, APIS[key].versions[-1])


def join(client: WireClient, group: str, version: int, member_id: str = "", **more: Any) -> Any:
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=10_000, member_id=member_id, protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=SUBSCRIPTION)], **more,
    )
    if version >= 1:
        request.rebalance_timeout_ms = 20_000
    return client.call(request, version)


def fetch(client: WireClient, topic: str, known_id: bytes, group: str, version: int) -> Any:
    if version < 8:
        named = OffsetFetchRequest.Topic(name=topic, partition_indexes=[1, 0])
        answer = client.call(OffsetFetchRequest(group_id=group, topics=[named]), version)
        return answer.topics[0].partitions
    made = OffsetFetchRequest.Group
    named = made.Topic(partition_indexes=[1, 0])
    if version >= 10:
        named.topic_id = known_id
    else:
        named.name = topic
    request = OffsetFetchRequest(groups=[made(group_id=group, topics=[named])])
    return client.call(request, version).groups[0].topics[0].partitions


@pytest.mark.parametrize("step", STEPS)
def test_a_classic_group_lives_in_every_version(
    client: WireClient, topic: str, step: int
) -> None:
    group, known_id = f"life-{step}", topic_id(client, topic)
    assert find(client, group, at(ApiKey.FIND_COORDINATOR, step)).node_id >= 0
    version = at(ApiKey.JOIN_GROUP, step)
    joined = join(client, group, version)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = join(client, group, version, joined.member_id)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert joined.leader == joined.member_id and joined.protocol_name == "range"
    assert [(each.member_id, each.metadata) for each in joined.members] == [
        (joined.member_id, SUBSCRIPTION)
    ]
    synced = client.call(
        SyncGroupRequest(
            group_id=group, generation_id=1, member_id=joined.member_id,
            assignments=[
                SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=b"mine")
            ],
            **({"protocol_type": "consumer", "protocol_name": "range"} if step >= 5 else {}),
        ),
        at(ApiKey.SYNC_GROUP, step),
    )
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    beat = HeartbeatRequest(group_id=group, generation_id=1, member_id=joined.member_id)
    assert client.call(beat, at(ApiKey.HEARTBEAT, step)).error_code == 0
    version = at(ApiKey.OFFSET_COMMIT, step)
    told: dict[str, Any] = {}
    if version >= 1:
        told = {"generation_id_or_member_epoch": 1, "member_id": joined.member_id}
    committed = client.call(commit_request(topic, known_id, group, version, **told), version)
    expected = ErrorCode.UNKNOWN_MEMBER_ID if version == 0 else ErrorCode.NONE
    assert committed.topics[0].partitions[0].error_code == expected
    found = fetch(client, topic, known_id, group, at(ApiKey.OFFSET_FETCH, step))
    assert [p.partition_index for p in found] == [1, 0]
    if version > 0:
        assert [(p.committed_offset, p.metadata) for p in found] == [(7, "m"), (-1, "")]
    _look_at(client, group, step)
    version = at(ApiKey.LEAVE_GROUP, step)
    if version < 3:
        leaving = LeaveGroupRequest(group_id=group, member_id=joined.member_id)
    else:
        member = LeaveGroupRequest.Member(member_id=joined.member_id)
        leaving = LeaveGroupRequest(group_id=group, members=[member])
    assert client.call(leaving, version).error_code == 0
    deleted = client.call(
        DeleteGroupsRequest(groups_names=[group, "nobody"]), at(ApiKey.DELETE_GROUPS, step)
    )
    codes = {each.group_id: each.error_code for each in deleted.results}
    assert codes == {group: 0, "nobody": ErrorCode.GROUP_ID_NOT_FOUND}


def _look_at(client: WireClient, group: str, step: int) -> None:
    version = at(ApiKey.DESCRIBE_GROUPS, step)
    described = client.call(DescribeGroupsRequest(groups=[group, "nobody"]), version).groups
    assert [each.group_state for each in described] == ["Stable", "Dead"]
    assert described[0].members[0].member_assignment == b"mine"
    assert described[0].members[0].client_host == "/127.0.0.1"
    assert described[1].error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    version = at(ApiKey.LIST_GROUPS, step)
    listed = client.call(ListGroupsRequest(), version)
    assert group in {each.group_id for each in listed.groups}
    if version >= 4:
        listed = client.call(ListGroupsRequest(states_filter=["empty"]), version)
        assert group not in {each.group_id for each in listed.groups}
    if version >= 5:
        listed = client.call(ListGroupsRequest(types_filter=["consumer"]), version)
        assert group not in {each.group_id for each in listed.groups}


@pytest.mark.parametrize("version", [0, 1])
def test_a_kip_848_group_lives_in_every_version(
    client: WireClient, topic: str, version: int
) -> None:
    group, known_id = f"modern-{version}", topic_id(client, topic)
    find(client, group, 6)
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="m" if version else "", member_epoch=0,
        rebalance_timeout_ms=30_000, subscribed_topic_names=[topic], topic_partitions=[],
    )
    joined = client.call(request, version)
    assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval_ms) == (0, 2, 5_000)
    given = joined.assignment.topic_partitions
    assert [(each.topic_id, each.partitions) for each in given] == [(known_id, [0, 1])]
    beat = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=joined.member_id, member_epoch=2
    )
    again = client.call(beat, version)
    assert (again.error_code, again.member_epoch, again.assignment) == (0, 2, None)
    described = client.call(ConsumerGroupDescribeRequest(group_ids=[group, "nobody"]), version)
    first, second = described.groups
    assert (first.group_state, first.group_epoch, first.assignor_name) == ("Stable", 2, "uniform")
    assert first.members[0].assignment.topic_partitions[0].topic_name == topic
    assert second.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    told = {"generation_id_or_member_epoch": 2, "member_id": joined.member_id}
    committed = client.call(commit_request(topic, known_id, group, 9, **told), 9)
    assert committed.topics[0].partitions[0].error_code == 0
    committed = client.call(commit_request(topic, known_id, group, 8, **told), 8)
    assert committed.topics[0].partitions[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    beat.member_epoch = -1
    assert client.call(beat, version).error_code == 0


def test_offsets_of_topics_that_do_not_exist_are_refused(client: WireClient) -> None:
    find(client, "g", 6)
    codes = {9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 10: ErrorCode.UNKNOWN_TOPIC_ID}
    for version, code in codes.items():
        request = commit_request("absent", b"x" * 16, "g", version)
        answer = client.call(request, version)
        assert answer.topics[0].partitions[0].error_code == code
    made = OffsetDeleteRequest.Topic
    absent = made(name="absent", partitions=[made.Partition(partition_index=0)])
    request = OffsetDeleteRequest(group_id="g", topics=[absent])
    assert client.call(request, 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_requests_that_make_no_sense_get_kafkas_codes(client: WireClient) -> None:
    find(client, "g", 6)
    sync = SyncGroupRequest(group_id="absent", generation_id=1, member_id="m")
    assert client.call(sync, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.call(sync, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    old = LeaveGroupRequest(group_id="absent", member_id="m")
    assert client.call(old, 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    leaving = LeaveGroupRequest.Member(member_id="m")
    answer = client.call(LeaveGroupRequest(group_id="absent", members=[leaving]), 3)
    codes = [each.error_code for each in answer.members]
    assert (answer.error_code, codes) == (0, [ErrorCode.UNKNOWN_MEMBER_ID])
    deletion = OffsetDeleteRequest(group_id="", topics=[])
    assert client.call(deletion, 0).error_code == ErrorCode.INVALID_GROUP_ID
    described = client.call(ConsumerGroupDescribeRequest(group_ids=["", "absent"]), 1)
    assert [each.error_code for each in described.groups] == [
        ErrorCode.INVALID_GROUP_ID, ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    beat = ConsumerGroupHeartbeatRequest(
        group_id="r", member_id="m", member_epoch=0, rebalance_timeout_ms=1000,
        subscribed_topic_regex="(", topic_partitions=[],
    )
    assert client.call(beat, 1).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_all_offsets_of_a_group_are_told_where_none_is_named(
    client: WireClient, topic: str
) -> None:
    known_id = topic_id(client, topic)
    find(client, "all", 6)
    client.call(commit_request(topic, known_id, "all", 9), 9)
    for version in range(2, 8):
        answer = client.call(OffsetFetchRequest(group_id="all", topics=None), version)
        assert [(each.name, len(each.partitions)) for each in answer.topics] == [(topic, 1)]
    for version in range(8, 11):
        group = OffsetFetchRequest.Group(group_id="all", topics=None)
        answer = client.call(OffsetFetchRequest(groups=[group]), version)
        assert answer.groups[0].topics[0].partitions[0].committed_offset == 7
    made = OffsetDeleteRequest.Topic
    partitions = [made.Partition(partition_index=1), made.Partition(partition_index=99)]
    request = OffsetDeleteRequest(group_id="all", topics=[made(name=topic, partitions=partitions)])
    codes = [each.error_code for each in client.call(request, 0).topics[0].partitions]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert client.call(OffsetFetchRequest(group_id="all", topics=None), 7).topics == []


def test_what_a_member_has_yet_to_give_up_is_described_as_its_own(
    client: WireClient, topic: str
) -> None:
    """As in Kafka 4.3's ConsumerGroupDescribeRequestTest, IncludesPartitionsPendingRevocation."""

    def beat(member: str, epoch: int, **more: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id="revoking", member_id=member, member_epoch=epoch, **more
        )
        return client.call(request, 1)

    topic_id(client, topic)
    find(client, "revoking", 6)
    joining = {
        "rebalance_timeout_ms": 30_000, "subscribed_topic_names": [topic], "topic_partitions": [],
    }
    assert beat("a", 0, **joining).member_epoch == 2
    assert beat("b", 0, **joining).member_epoch == 3
    [kept] = beat("a", 2).assignment.topic_partitions
    assert len(kept.partitions) == 1, "the other partition is asked back"
    described = client.call(ConsumerGroupDescribeRequest(group_ids=["revoking"]), 1).groups[0]
    members = {each.member_id: each for each in described.members}
    assert members["a"].assignment.topic_partitions[0].partitions == [0, 1]
    assert members["a"].target_assignment.topic_partitions[0].partitions == kept.partitions
    assert members["b"].assignment.topic_partitions == []


def test_offsets_of_consumers_that_do_not_tell_their_topics_are_kept(
    client: WireClient, topic: str
) -> None:
    """As in Kafka, a consumer with an unreadable subscription is treated as subscribed to the
    topic."""
    find(client, "opaque", 6)
    protocols = [JoinGroupRequest.Protocol(name="mine", metadata=b"")]
    joined = client.call(
        JoinGroupRequest(
            group_id="opaque", session_timeout_ms=30_000, rebalance_timeout_ms=30_000,
            protocol_type="consumer", protocols=protocols,
        ),
        3,
    )
    assert joined.error_code == 0
    made = OffsetDeleteRequest.Topic
    partitions = [made.Partition(partition_index=0)]
    request = OffsetDeleteRequest(
        group_id="opaque", topics=[made(name=topic, partitions=partitions)]
    )
    answer = client.call(request, 0)
    assert answer.error_code == 0
    assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_groups_and_offsets_are_there_after_a_restart(data: Path) -> None:
    with RunningBroker(data, group_initial_rebalance_delay_ms=0) as broker:
        with WireClient(broker.address) as client:
            find(client, "g", 6)
            client.call(MetadataRequest(topics=[MetadataRequest.Topic(name="t")]), 4)
            joined = join(client, "g", 3)
            member = joined.member_id
            assignment = SyncGroupRequest.Assignment(member_id=member, assignment=b"all")
            client.call(
                SyncGroupRequest(
                    group_id="g", generation_id=1, member_id=member, assignments=[assignment]
                ), 3,
            )
            made = OffsetCommitRequest.Topic
            partition = made.Partition(partition_index=0, committed_offset=42)
            request = OffsetCommitRequest(
                group_id="g", generation_id_or_member_epoch=1, member_id=member,
                topics=[made(name="t", partitions=[partition])],
            )
            assert client.call(request, 5).topics[0].partitions[0].error_code == 0
    with RunningBroker(data) as broker:
        with WireClient(broker.address) as client:
            beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
            assert client.call(beat, 3).error_code == 0
            answer = client.call(OffsetFetchRequest(group_id="g", topics=None), 5)
            assert answer.topics[0].partitions[0].committed_offset == 42


def test_a_member_that_waits_holds_up_nobody_else(broker: RunningBroker) -> None:
    with WireClient(broker.address) as one, WireClient(broker.address) as other:
        find(one, "w", 6)
        joined = join(one, "w", 3)
        member = SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=b"x")
        sync = SyncGroupRequest(
            group_id="w", generation_id=1, member_id=joined.member_id, assignments=[member]
        )
        assert one.call(sync, 3).error_code == 0
        request = JoinGroupRequest(
            group_id="w", session_timeout_ms=10_000, rebalance_timeout_ms=20_000, member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name="range", metadata=SUBSCRIPTION)],
        )
        waiting = other.send(request, 3)
        beat = HeartbeatRequest(group_id="w", generation_id=1, member_id=joined.member_id)
        code = until(lambda: one.call(beat, 3).error_code, "the member is asked to join again")
        assert code == ErrorCode.REBALANCE_IN_PROGRESS
        again = join(one, "w", 3, joined.member_id)
        assert again.generation_id == other.answer(waiting).generation_id == 2


def offset_of(client: WireClient, group: str) -> int:
    answer = client.call(OffsetFetchRequest(group_id=group, topics=None), 5)
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset


def test_commits_in_flight_on_many_connections_are_each_answered_in_order(
    broker: RunningBroker, client: WireClient, topic: str
) -> None:
    known_id = topic_id(client, topic)
    find(client, "flight", 6)
    others = [WireClient(broker.address) for _ in range(4)]
    sent = []
    for round_number in range(5):
        for each in others:
            request = commit_request(topic, known_id, "flight", 5)
            request.topics[0].partitions[0].committed_offset = round_number
            sent.append((each, each.send(request, 5)))
    for each in others:
        sent.append((each, each.send(OffsetFetchRequest(group_id="flight", topics=None), 5)))
    for each, what in sent[:-4]:
        assert each.answer(what).topics[0].partitions[0].error_code == 0
    for each, what in sent[-4:]:
        assert each.answer(what).topics[0].partitions[0].committed_offset >= 0
        each.socket.close()
    assert offset_of(client, "flight") == 4


def test_who_goes_away_before_the_answer_has_committed_all_the_same(
    broker: RunningBroker, client: WireClient, topic: str
) -> None:
    known_id = topic_id(client, topic)
    find(client, "gone", 6)
    with WireClient(broker.address) as other:
        other.send(commit_request(topic, known_id, "gone", 5), 5)
    client.call(commit_request(topic, known_id, "kept", 5), 5)
    until(
        lambda: client.call(OffsetFetchRequest(group_id="gone", topics=None), 5).topics,
        "the commit is applied",
    )
    assert offset_of(client, "gone") == offset_of(client, "kept") == 7


def test_a_group_id_that_is_no_utf_8_is_the_one_that_kafka_would_read(
    client: WireClient, topic: str
) -> None:
    replacement = "\N{REPLACEMENT CHARACTER}"
    request = commit_request(topic, topic_id(client, topic), "odd#", 5)
    request.topics[0].partitions[0].committed_metadata = "#"
    find(client, f"odd{replacement}", 6)
    header = RequestHeader(request.API_KEY, 5, 1, "test").encode()
    client.send_frame(header + request.encode(5).replace(b"#", b"\xff"))
    answer = client.answer(Sent(request.API_KEY, 5, 1))
    assert answer.topics[0].partitions[0].error_code == 0
    answer = client.call(OffsetFetchRequest(group_id=f"odd{replacement}", topics=None), 5)
    assert answer.topics[0].partitions[0].metadata == replacement
