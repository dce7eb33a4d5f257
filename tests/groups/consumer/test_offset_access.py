"""Who may commit and fetch offsets of a KIP-848 group, and in which epochs."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.offset_access import check_commit, check_fetch
from ottla.groups.errors import IllegalGeneration, StaleMemberEpoch, UnknownMember
from ottla.groups.offset_requests import Commit, OffsetToCommit
from ottla.groups.records import ClassicProtocols, ConsumerMemberValue, CurrentMemberValue
from ottla.wire.errors import UnsupportedVersion
from tests.groups.bench import FakeCluster


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.make("t", 4)
    return cluster


@pytest.fixture
def group(cluster: FakeCluster) -> ConsumerGroup:
    """`m`, at epoch 5, has owned t-0 since epoch 3, and has to revoke t-1, which it has owned since
    epoch 2. `c` is a classic member at epoch 5."""
    group = ConsumerGroup("g")
    topic_id = cluster.topics["t"].topic_id
    group.replay_member("m", ConsumerMemberValue("client", "/h", topics=frozenset({"t"})))
    group.replay_current("m", CurrentMemberValue(
        5, 4, assigned={(topic_id, 0): 3}, revoking={(topic_id, 1): 2}))
    classic = ClassicProtocols(10_000, (("range", b""),))
    group.replay_member("c", ConsumerMemberValue("client", "/h", classic=classic))
    group.replay_current("c", CurrentMemberValue(5, 4))
    return group


def commit(member_id: str, epoch: int, *indexes: int, topic: str = "t", **fields: Any) -> Commit:
    offsets = [OffsetToCommit(topic, index, 1, -1, "") for index in indexes or (0,)]
    return Commit("g", offsets, member_id, None, epoch, **{"version": 9, **fields})


def test_a_member_commits_in_its_epoch(group: ConsumerGroup, cluster: FakeCluster) -> None:
    assert check_commit(group, commit("m", 5, 0, 1, 2), cluster) is group.members["m"]
    with pytest.raises(StaleMemberEpoch):
        check_commit(group, commit("m", 6), cluster)
    with pytest.raises(IllegalGeneration):
        check_commit(group, commit("m", 6, version=5, transactional=True), cluster)
    with pytest.raises(StaleMemberEpoch):
        check_commit(group, commit("m", 6, version=6, transactional=True), cluster)
    with pytest.raises(UnknownMember):
        check_commit(group, commit("x", 5), cluster)
    with pytest.raises(UnknownMember):
        check_commit(group, commit("", -1), cluster)


@pytest.mark.parametrize(("epoch", "indexes", "accepted"), [
    (4, (0,), True), (3, (0,), True), (2, (0,), False), (2, (1,), True), (1, (1,), False),
    (4, (2,), False), (3, (0, 1), True), (2, (1, 0), False), (-1, (0,), False),
])
def test_an_older_epoch_counts_for_what_was_its_own_since_then(
    group: ConsumerGroup, cluster: FakeCluster, epoch: int, indexes: tuple[int, ...],
    accepted: bool,
) -> None:
    """KIP-1251 accepts a commit with an older epoch if the member has owned the partition since."""
    if accepted:
        assert check_commit(group, commit("m", epoch, *indexes), cluster) is group.members["m"]
        return
    with pytest.raises(StaleMemberEpoch):
        check_commit(group, commit("m", epoch, *indexes), cluster)
    with pytest.raises(IllegalGeneration):
        check_commit(
            group, commit("m", epoch, *indexes, version=5, transactional=True), cluster)


def test_an_older_epoch_does_not_count_for_a_topic_that_is_gone(
    group: ConsumerGroup, cluster: FakeCluster
) -> None:
    with pytest.raises(StaleMemberEpoch):
        check_commit(group, commit("m", 4, topic="gone"), cluster)


@pytest.mark.parametrize(("version", "transactional", "accepted"), [
    (8, False, False), (9, False, True), (3, True, True),
])
def test_a_member_of_kip_848_needs_a_client_that_knows_its_errors(
    group: ConsumerGroup, cluster: FakeCluster, version: int, transactional: bool, accepted: bool
) -> None:
    request = commit("m", 5, version=version, transactional=transactional)
    if accepted:
        assert check_commit(group, request, cluster) is group.members["m"]
    else:
        with pytest.raises(UnsupportedVersion, match="version 9 or later"):
            check_commit(group, request, cluster)


@pytest.mark.parametrize(("epoch", "accepted"), [(4, False), (5, True), (6, False), (-1, False)])
def test_a_classic_member_commits_in_its_generation_alone(
    group: ConsumerGroup, cluster: FakeCluster, epoch: int, accepted: bool
) -> None:
    request = commit("c", epoch, version=5)
    if accepted:
        assert check_commit(group, request, cluster) is group.members["c"]
    else:
        match = f"generation 5, but the request has generation {epoch}"
        with pytest.raises(IllegalGeneration, match=match):
            check_commit(group, request, cluster)


def test_clients_without_a_member_commit_to_an_empty_group_or_in_a_transaction(
    group: ConsumerGroup, cluster: FakeCluster
) -> None:
    assert check_commit(ConsumerGroup("e"), commit("", -1), cluster) is None
    assert check_commit(ConsumerGroup("e"), commit("x", -1), cluster) is None
    with pytest.raises(UnknownMember):
        check_commit(ConsumerGroup("e"), commit("x", 0), cluster)
    assert check_commit(group, commit("", -1, transactional=True), cluster) is None
    for request in (commit("", 0, transactional=True), commit("x", -1, transactional=True),
                    commit("", -1)):
        with pytest.raises(UnknownMember):
            check_commit(group, request, cluster)


def test_offsets_are_fetched_as_a_member_in_its_epoch_or_as_nobody(group: ConsumerGroup) -> None:
    check_fetch(group, None, -1)
    check_fetch(group, "m", 5)
    check_fetch(group, "c", 4)
    for epoch in (4, 6, -1):
        with pytest.raises(StaleMemberEpoch):
            check_fetch(group, "m", epoch)
    for member_id, epoch in ((None, 0), ("x", -1), ("", 5)):
        with pytest.raises(UnknownMember):
            check_fetch(group, member_id, epoch)
