"""Leaders change as brokers come and go: absent brokers lead nothing, committed records stay."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.controller import brokers as decisions
from ottla.replication.controller.brokers import (
    BrokerNotRegistered,
    Deposed,
    StaleBrokerEpoch,
    broker_registered,
    brokers_gone,
    controlled_shutdown,
    controller_elected,
    distrust,
    in_sync_everywhere,
    preferred_leaders,
    repair,
    unregister_broker,
)
from ottla.replication.metadata import (
    BackupAdopting,
    BrokerGone,
    BrokerImage,
    BrokerLeaving,
    BrokerRegistered,
    Endpoint,
    MetadataImage,
    MetadataRecord,
    PartitionExtra,
    PartitionsChanged,
    PartitionState,
    TopicCreated,
)
from ottla.wire.errors import InvalidRequest

THREE = PartitionState(1, 5, (1, 2, 3), (1, 2, 3), 7)


def broker(node_id: int, epoch: int = 1, incarnation: str = "i") -> BrokerImage:
    return BrokerImage(node_id, epoch, (), None, incarnation)


def cluster(*states: PartitionState, there: tuple[int, ...] = (1, 2, 3)) -> MetadataImage:
    """An image with brokers of epoch 1, and a topic with these partitions."""
    image = MetadataImage.empty("c").apply(BrokerRegistered(broker(n)) for n in there)
    return image.apply([TopicCreated("t", b"t" * 16, states)])


def partitions(image: MetadataImage) -> list[tuple[int, int, tuple[int, ...], int]]:
    """Leader, leader epoch, in-sync replicas and partition epoch of each partition."""
    return [
        (s.leader, s.leader_epoch, s.isr, s.partition_epoch) for s in image.topics["t"].partitions
    ]


def test_of_a_broker_that_is_gone_leaders_move_and_in_sync_sets_shrink() -> None:
    led_by_2 = THREE._replace(leader=2)
    alone = PartitionState(1, 0, (1,), (1,))
    image = cluster(THREE, led_by_2, alone)
    after = image.apply(brokers_gone(image, {1: 1}).records)
    assert 1 not in after.brokers
    assert partitions(after) == [
        (2, 6, (2, 3), 8),                  # a new leader in a new epoch
        (2, 5, (2, 3), 8),                  # the leader stays in its epoch
        (-1, 1, (1,), 1),                   # the last in-sync replica stays listed
    ]


def test_brokers_that_are_gone_together_leave_no_set_for_the_sake_of_each_other() -> None:
    image = cluster(THREE)
    after = image.apply(brokers_gone(image, {1: 1, 2: 1, 3: 1, 5: 1}).records)
    assert not after.brokers
    assert partitions(after) == [(-1, 6, (1, 2, 3), 8)]
    after = image.apply(brokers_gone(image, {1: 1, 2: 1, 3: 7}).records)
    assert partitions(after) == [(3, 6, (3,), 8)]


def test_a_preferred_replica_that_is_not_trusted_does_not_lead_for_being_preferred() -> None:
    doubtful = THREE._replace(leader=-1, extra=PartitionExtra(doubtful=(1, 2, 3)))
    assert not preferred_leaders(cluster(doubtful)).result
    image = cluster(THREE._replace(leader=2))
    assert preferred_leaders(image).result == 1


def test_preferred_leaders_are_counted_as_they_are_elected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "PARTITIONS_AT_A_TIME", 2)
    image = cluster(*[THREE._replace(leader=2)] * 3)
    image = image.apply([TopicCreated("u", b"u" * 16, (THREE._replace(leader=3),) * 2)])
    moved = []
    while (decision := preferred_leaders(image)).result:
        moved.append(decision.result)
        image = image.apply(decision.records)
    assert moved == [2, 2, 1]


def test_whoever_comes_back_leads_what_nobody_could_in_a_new_epoch() -> None:
    image = cluster(PartitionState(1, 0, (1,), (1,)))
    image = image.apply(brokers_gone(image, {1: 1}).records)
    image = image.apply(broker_registered(image, broker(1, 9, "j")).records)
    assert partitions(image) == [(1, 2, (1,), 2)]
    assert image.brokers[1].epoch == 9


def test_a_restarted_broker_gets_a_new_leader_epoch_though_nobody_led_meanwhile() -> None:
    image = cluster(THREE._replace(replicas=(1,), isr=(1,)))
    image = image.apply(brokers_gone(image, {1: 1}).records)
    image = image.apply(broker_registered(image, broker(1, 2, "j")).records)
    assert image.topics["t"].partitions[0].leader_epoch == THREE.leader_epoch + 2


def test_gone_is_about_one_registration() -> None:
    image = cluster(THREE)
    assert brokers_gone(image, {1: 7}) == ([], False)
    assert brokers_gone(image, {5: 1}) == ([], False)
    with pytest.raises(StaleBrokerEpoch):
        broker_registered(image, broker(1, 1))


def test_the_same_process_with_a_new_session_keeps_what_it_leads() -> None:
    image = cluster(THREE)
    after = image.apply(broker_registered(image, broker(1, 4)).records)
    assert partitions(after) == partitions(image)
    assert after.brokers[1].epoch == 4


def test_large_changes_come_in_pieces_and_any_controller_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decisions, "PARTITIONS_AT_A_TIME", 2)
    image = cluster(*[THREE] * 5)
    decision = brokers_gone(image, {1: 1})
    assert decision.result
    image = image.apply(decision.records)
    assert [leader for leader, *_ in partitions(image)] == [2, 2, 1, 1, 1]
    steps = 0
    while (decision := repair(image)).records:
        image, steps = image.apply(decision.records), steps + 1
    assert [leader for leader, *_ in partitions(image)] == [2] * 5 and steps == 2
    assert not decision.result


def test_a_broker_that_leaves_gives_away_all_that_somebody_can_take() -> None:
    image = cluster(THREE, THREE._replace(leader=2), PartitionState(1, 0, (1,), (1,)))
    decision = controlled_shutdown(image, 1, 1)
    after = image.apply(decision.records)
    assert decision.result and after.leaving == {1}
    assert partitions(after) == [(2, 6, (2, 3), 8), (2, 5, (2, 3), 8), (1, 0, (1,), 0)]
    assert repair(after).records == []
    with pytest.raises(StaleBrokerEpoch):
        controlled_shutdown(image, 1, 2)


def test_of_two_that_leave_the_last_one_goes_on_leading() -> None:
    image = cluster(THREE._replace(replicas=(1, 2), isr=(1, 2)))
    for node in (1, 2):
        image = image.apply(controlled_shutdown(image, node, 1).records)
    assert partitions(image) == [(2, 6, (2,), 8)]


def test_preferred_leaders_come_back_where_they_are_in_sync() -> None:
    image = cluster(THREE._replace(leader=2), THREE._replace(leader=2, isr=(2, 3)))
    decision = preferred_leaders(image)
    assert decision.result == 1
    assert partitions(image.apply(decision.records)) == [(1, 6, (1, 2, 3), 8), (2, 5, (2, 3), 7)]
    leaving = image.apply([BrokerLeaving(1)])
    assert preferred_leaders(leaving).records == []


NODES = st.integers(1, 4)


@st.composite
def states(draw: st.DrawFn) -> PartitionState:
    replicas = tuple(draw(st.lists(NODES, min_size=1, max_size=3, unique=True)))
    isr = tuple(n for n in replicas if draw(st.booleans())) or replicas[:1]
    leader = draw(st.sampled_from((*isr, -1)))
    return PartitionState(leader, draw(st.integers(0, 3)), replicas, isr, draw(st.integers(0, 3)))


@given(
    st.lists(states(), min_size=1, max_size=5),
    st.lists(st.tuples(st.sampled_from(["gone", "back", "leave", "repair"]), NODES), max_size=12),
)
def test_whatever_comes_and_goes(
    begin: list[PartitionState], events: list[tuple[str, int]]
) -> None:
    image = cluster(*begin, there=(1, 2, 3, 4))
    image = image.apply(repair(image).records)
    for number, (kind, node) in enumerate(events, 2):
        before = image
        known = image.brokers.get(node)
        if kind == "gone" and known is not None:
            image = image.apply(brokers_gone(image, {node: known.epoch}).records)
        elif kind == "back":
            if known is not None:
                image = image.apply(brokers_gone(image, {node: known.epoch}).records)
            record = broker_registered(image, broker(node, number, f"i{number}"))
            image = image.apply(record.records)
        elif kind == "leave" and known is not None:
            image = image.apply(controlled_shutdown(image, node, known.epoch).records)
        else:
            assert repair(image).records == [], "nothing is left to repair"
        pairs = zip(before.topics["t"].partitions, image.topics["t"].partitions, strict=True)
        for old, new in pairs:
            assert new.isr and set(new.isr) <= set(old.isr), "only proposals let members join"
            assert new.leader in (*new.isr, -1)
            assert new.leader == -1 or new.leader in image.brokers
            there = [n for n in new.isr if n in image.brokers]
            assert new.leader != -1 or not [n for n in there if n not in image.leaving]
            assert new.leader_epoch >= old.leader_epoch
            assert new.leader == old.leader or new.leader_epoch > old.leader_epoch
            assert new == old or new.partition_epoch > old.partition_epoch
            if kind == "back" and node in (old.leader,):
                assert new.leader_epoch > old.leader_epoch, "another process, another epoch"


def test_a_term_does_not_begin_after_a_later_one() -> None:
    image = cluster(THREE)
    image = image.apply(controller_elected(image, 2, 4).records)
    for epoch in (3, 4):
        with pytest.raises(Deposed):
            controller_elected(image, 1, epoch)


def test_gone_and_registered_are_records_of_one_image() -> None:
    image = cluster(THREE)
    assert BrokerGone(1) in brokers_gone(image, {1: 1}).records


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_a_decision_says_whether_another_one_is_needed(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """In this test, a decision changes two partitions at most."""
    monkeypatch.setattr(decisions, "PARTITIONS_AT_A_TIME", 2)
    image = cluster(*[THREE] * count)

    def changed(records: Iterable[MetadataRecord]) -> int:
        rows = [row for each in records if isinstance(each, PartitionsChanged) for row in each.rows]
        return len(rows)

    more = count > 2
    gone = brokers_gone(image, {1: 1})
    assert (gone.result, changed(gone.records)) == (more, min(count, 2))
    shutdown = controlled_shutdown(image, 1, 1)
    assert (shutdown.result, changed(shutdown.records)) == (not more, min(count, 2))
    gone_image = image.apply([BrokerGone(1)])
    assert (repair(gone_image).result, changed(repair(gone_image).records)) == (more, min(count, 2))
    doubts = distrust(image.apply([BrokerGone(1)]), broker(1, 2, "j"), "machine", ())
    assert (doubts.result, changed(doubts.records)) == (more, min(count, 2))
    awaited = THREE._replace(leader=-1, extra=PartitionExtra(awaited=(3, 2)))
    image = cluster(*[awaited] * count).apply([BrokerGone(3)])
    forgotten = unregister_broker(image, 3, 1)
    assert (forgotten.result, changed(forgotten.records)) == (more, min(count, 2))
    state = image.apply(forgotten.records).topics["t"].partitions[0]
    assert state.extra == PartitionExtra(awaited=(2,)) and state.partition_epoch == 8


def test_a_broker_that_is_forgotten_is_waited_for_no_more() -> None:
    image = cluster(THREE._replace(extra=PartitionExtra(awaited=(2,))))
    address = (Endpoint("PLAINTEXT", "h", 1),)
    image = image.apply([
        BrokerRegistered(broker(3)._replace(endpoints=address)), BrokerGone(3, (1, 2)),
        BrokerGone(2, (3, 1)), BackupAdopting((1, 3)),
    ])
    decision = unregister_broker(image, 3, 1)
    after = image.apply(decision.records)
    assert after.former[3].endpoints == () and after.former[2] == image.former[2]
    assert after.company == {3: (1, 2), 2: (1,)}
    assert after.adopting is not None and after.adopting.awaited == (1,)
    assert after.topics == image.topics and not decision.result
    again = unregister_broker(after, 3, 1)
    assert (again.records, again.result) == ([], False)


def test_a_broker_that_runs_is_not_forgotten() -> None:
    image = cluster(THREE)
    with pytest.raises(InvalidRequest, match="Broker 2 is running"):
        unregister_broker(image, 2, 1)
    with pytest.raises(BrokerNotRegistered, match="Broker ID 9 is not"):
        unregister_broker(image, 9, 1)
    alone = MetadataImage.empty("c").apply([
        BrokerRegistered(broker(n, incarnation="")) for n in (1, 2)
    ])
    with pytest.raises(InvalidRequest, match="Broker 1 is running"):
        unregister_broker(alone, 1, 1)
    assert unregister_broker(alone, 2, 1) == ([BrokerGone(2)], False)


def test_replicas_in_failed_directories_need_not_be_in_sync() -> None:
    image = cluster(THREE, THREE._replace(replicas=(1, 2), isr=(1, 2)))
    assert in_sync_everywhere(image, 3) and in_sync_everywhere(image, 9)
    image = cluster(THREE, THREE._replace(isr=(1, 2)))
    assert not in_sync_everywhere(image, 3) and in_sync_everywhere(image, 2)
    failed = THREE._replace(isr=(1, 2), extra=PartitionExtra(offline=(3,)))
    assert in_sync_everywhere(cluster(THREE, failed), 3)


def test_a_broker_that_leaves_looks_at_all_partitions() -> None:
    image = cluster(THREE._replace(leader=2, isr=(2, 3)), THREE)
    after = image.apply(controlled_shutdown(image, 1, 1).records)
    assert partitions(after) == [(2, 5, (2, 3), 7), (2, 6, (2, 3), 8)]
