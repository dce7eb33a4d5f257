"""The rules of elections one by one: who is trusted, available, eligible, asked, and elected."""

from __future__ import annotations

import pytest

from ottla.replication.controller.elections import (
    EligibleLeadersNotAvailable,
    LogEnd,
    all_doubtful,
    available,
    changed,
    elect,
    leaderless,
    led_alone,
    longest,
    may_lead,
    min_isr,
    moved,
    repaired_state,
    to_ask,
    trusted,
    unclean_elections,
    unclean_is_enabled,
)
from ottla.replication.metadata import (
    NO_LEADER,
    BackupAdopting,
    BrokerImage,
    BrokerLeaving,
    BrokerRegistered,
    ConfigSet,
    MetadataImage,
    MetadataRecord,
    PartitionExtra,
    PartitionState,
    TopicCreated,
)

ALL = PartitionState(1, 5, (1, 2, 3), (1, 2, 3), 7)
LED_BY_NOBODY = ALL._replace(leader=NO_LEADER)


def cluster(*nodes: int, then: tuple[MetadataRecord, ...] = ()) -> MetadataImage:
    """An image with these brokers, after the records `then`; the epoch of broker n is 100 + n."""
    return MetadataImage.empty("c").apply([
        *(BrokerRegistered(BrokerImage(node, 100 + node, (), None, "i")) for node in nodes), *then,
    ])


@pytest.mark.parametrize(("topic", "broker", "expected"), [
    (None, None, 1), ("3", None, 3), (None, "2", 2), ("3", "2", 3),
])
def test_a_topics_own_min_isr_comes_first(
    topic: str | None, broker: str | None, expected: int
) -> None:
    name = "min.insync.replicas"
    image = cluster().apply([
        ConfigSet("topic", "t", name, topic), ConfigSet("broker", "", name, broker),
        ConfigSet("broker", "1", name, "9"), ConfigSet("topic", "u", name, "8"),
    ])
    assert min_isr(image, "t") == expected


@pytest.mark.parametrize("otherwise", [True, False])
def test_unclean_elections_are_allowed_by_the_closest_setting(otherwise: bool) -> None:
    name = "unclean.leader.election.enable"
    assert unclean_is_enabled(cluster(), "t", otherwise) is otherwise
    of_all = cluster().apply([ConfigSet("broker", "", name, " True ")])
    assert unclean_is_enabled(of_all, "t", otherwise)
    of_topic = of_all.apply([ConfigSet("topic", "t", name, "false")])
    assert not unclean_is_enabled(of_topic, "t", otherwise)
    assert unclean_is_enabled(of_topic, "u", otherwise)


def test_who_is_trusted_available_and_may_lead() -> None:
    extra = PartitionExtra(doubtful=(1,), lost=(4,), offline=(5,))
    state = PartitionState(2, 0, (5, 4, 3, 2, 1), (2, 3), 0, extra)
    assert trusted(state, (1, 2, 3, 4, 5, 6)) == (5, 3, 2), "in the order of assignment"
    assert trusted(state, (2,)) == (2,)
    image = cluster(1, 2, 4, 5, 6)
    assert available(image, state, (6, 3, 5, 2, 1)) == (6, 2, 1), "in their own order"
    assert may_lead(image, state, (2, 1)) == (2, 1)
    leaving = image.apply([BrokerLeaving(2)])
    assert may_lead(leaving, state, (2, 1)) == (1,)
    assert available(leaving, state, (2, 1)) == (2, 1)
    adopting = image.apply([BackupAdopting((3,))])
    assert available(adopting, state, (1, 2)) == may_lead(adopting, state, (1, 2)) == ()


def test_epochs_rise_with_what_they_are_about() -> None:
    assert changed(ALL, 1, (1, 2, 3), PartitionExtra()) is ALL
    assert changed(ALL, 1, (1, 2, 3), None) is ALL
    assert changed(ALL, 1, (1, 2), None) == ALL._replace(isr=(1, 2), partition_epoch=8)
    assert changed(ALL, 2, (1, 2, 3), None) == ALL._replace(
        leader=2, leader_epoch=6, partition_epoch=8)
    extra = PartitionExtra(elr=(3,))
    assert changed(ALL, 1, (1, 2, 3), extra) == ALL._replace(extra=extra, partition_epoch=8)


@pytest.mark.parametrize(("isr", "wanted", "elr"), [
    ((1, 2), 3, (3,)), ((1, 2), 2, ()), ((1, 2), 1, ()), ((1,), 2, (2, 3)), ((1, 2), 9, (3,)),
    ((1, 2, 3), 9, ()),
])
def test_who_leaves_a_set_that_is_too_small_is_eligible(
    isr: tuple[int, ...], wanted: int, elr: tuple[int, ...]
) -> None:
    extra = moved(ALL, 1, isr, wanted).extra or PartitionExtra()
    assert (extra.elr, extra.last_elr) == (elr, ())


def test_those_that_were_eligible_stay_so_unless_they_are_not_trusted() -> None:
    before = PartitionExtra(elr=(2,), last_elr=(4,), doubtful=(1,), offline=(5, 9), lost=(3,))
    state = PartitionState(1, 0, (1, 2, 3, 4, 5), (1, 3, 5), 0, before)
    after = moved(state, 3, (3,), 3)
    assert after.extra == PartitionExtra(
        elr=(2,), last_elr=(1, 4, 5), offline=(5,), lost=(3,), doubtful=())
    distrusted = moved(state, 3, (3,), 3, distrusted=(2,)).extra
    assert distrusted is not None and (distrusted.elr, distrusted.last_elr) == ((), (1, 2, 4, 5))
    assert moved(state, 3, (1, 2, 3), 3).extra == PartitionExtra(
        doubtful=(1,), offline=(5,), lost=(3,))


def test_a_leader_is_not_doubtful_and_none_is_awaited_without_a_doubtful_one() -> None:
    extra = PartitionExtra(doubtful=(1, 2), awaited=(3, 4))
    state = PartitionState(NO_LEADER, 0, (1, 2, 3), (1, 2), 0, extra)
    assert moved(state, 1, (1, 2), 1).extra == PartitionExtra(doubtful=(2,), awaited=(3,))
    assert moved(state, 1, (1,), 1).extra is None
    assert moved(state, 1, (1, 2, 3), 1).extra == PartitionExtra(doubtful=(2,))


def test_a_leader_is_elected_by_the_rules_in_their_order() -> None:
    image = cluster(1, 2, 3)
    assert elect(image, ALL, (2, 3)) == (2, (2, 3))
    assert elect(cluster(3), ALL, (1, 2, 3)) == (3, (1, 2, 3))
    stopping = cluster(1, then=(BrokerLeaving(1),))
    assert elect(stopping, ALL, (1, 2, 3)) == (1, (1, 2, 3)), "it leads until it is gone"
    assert elect(stopping, ALL._replace(leader=2), (1, 2, 3)) == (NO_LEADER, (1, 2, 3))
    eligible = ALL._replace(isr=(1,), extra=PartitionExtra(elr=(3, 2)))
    assert elect(cluster(2, 3), eligible, (1,)) == (2, (2,))
    assert elect(cluster(1, 2, 3), eligible, (1,)) == (1, (1,))
    doubtful = LED_BY_NOBODY._replace(isr=(1,), extra=PartitionExtra(doubtful=(1,)))
    assert elect(cluster(1), doubtful, (1,)) == (1, (1,))
    assert elect(cluster(1, 2), doubtful, (1,)) == (NO_LEADER, (1,)), "another log may be longer"


def test_a_leader_that_may_lead_is_not_moved() -> None:
    state = ALL._replace(leader=2)
    assert repaired_state(cluster(1, 2, 3), state, 1) is state
    assert repaired_state(cluster(1, 2), state, 1) == state._replace(isr=(1, 2), partition_epoch=8)
    after = repaired_state(cluster(1, 2, 3, then=(BrokerLeaving(2),)), state, 1)
    assert (after.leader, after.isr) == (1, (1, 2, 3))
    none = repaired_state(cluster(), state, 1)
    assert (none.leader, none.isr, none.leader_epoch) == (NO_LEADER, (1, 2, 3), 6)


@pytest.mark.parametrize(("extra", "nodes", "doubtful"), [
    (PartitionExtra(doubtful=(1, 2)), (1, 2), True),
    (PartitionExtra(doubtful=(1, 2)), (1, 2, 3), True),
    (PartitionExtra(doubtful=(1,)), (1, 2, 3), False),
    (PartitionExtra(doubtful=(1, 2)), (1, 3), False),
    (PartitionExtra(doubtful=(1, 2), awaited=(3,)), (1, 2), False),
    (PartitionExtra(doubtful=(1, 2), awaited=(3,)), (1, 2, 3), True),
    (PartitionExtra(doubtful=(1, 2), elr=(3,)), (1, 2, 3), False),
    (None, (1, 2, 3), False),
])
def test_the_longest_log_leads_if_all_that_may_be_better_are_there_and_none_is_trusted(
    extra: PartitionExtra | None, nodes: tuple[int, ...], doubtful: bool
) -> None:
    state = LED_BY_NOBODY._replace(isr=(1, 2), extra=extra)
    image = cluster(*nodes, then=(TopicCreated("t", b"t" * 16, (ALL, state)),))
    assert all_doubtful(image, state) is doubtful
    assert to_ask(image, state, False) == (nodes if doubtful else ())
    assert to_ask(image, state, True) == nodes
    assert to_ask(image, state._replace(leader=1), True) == ()
    asked = ("t", 1, nodes)
    assert list(leaderless(image, True)) == [(*asked, not doubtful)]
    assert list(leaderless(image, False)) == ([(*asked, False)] if doubtful else [])
    stopping = image.apply([BrokerLeaving(1)])
    assert not all_doubtful(stopping, state)


def test_replicas_that_lost_their_logs_are_asked_if_there_is_no_other() -> None:
    state = LED_BY_NOBODY._replace(isr=(1,), extra=PartitionExtra(lost=(1, 2)))
    assert to_ask(cluster(1, 2, 3), state, True) == (3,)
    assert to_ask(cluster(1, 2), state, True) == (1, 2)
    assert to_ask(cluster(), state, True) == ()


def end(node: int, last_epoch: int, offset: int) -> dict[int, LogEnd]:
    return {node: LogEnd(100 + node, last_epoch, offset)}


def test_the_longest_log_is_that_of_the_last_epoch_then_of_the_highest_end() -> None:
    image = cluster(1, 2, 3)
    state = LED_BY_NOBODY._replace(isr=(2,), extra=PartitionExtra(doubtful=(2,)))
    assert longest(image, state, end(1, 5, 9) | end(2, 5, 10) | end(3, 6, 1), False) == 3
    assert longest(image, state, end(1, 5, 11) | end(2, 5, 10) | end(3, 4, 99), False) == 1
    assert longest(image, state, end(1, 5, 9) | end(2, 5, 9) | end(3, 5, 9), False) == 2
    assert longest(image, state, end(1, 5, 9) | end(2, 5, 8) | end(3, 5, 9), False) == 1


def test_an_election_needs_the_answers_of_all_that_may_be_better() -> None:
    image = cluster(1, 2, 3)
    extra = PartitionExtra(doubtful=(2,), awaited=(3,))
    state = LED_BY_NOBODY._replace(isr=(2,), extra=extra)
    assert longest(image, state, end(2, 1, 1) | end(3, 1, 2), False) == 3
    for ends in (end(2, 1, 1), end(3, 1, 1), end(2, 1, 1) | {3: LogEnd(102, 1, 2)}):
        with pytest.raises(EligibleLeadersNotAvailable):
            longest(image, state, ends, False)
        assert longest(image, state, ends, True) in ends
    with pytest.raises(EligibleLeadersNotAvailable):
        longest(image, state, {3: LogEnd(99, 1, 2)}, True)


def test_a_leader_that_may_lack_records_is_alone_in_sync() -> None:
    extra = PartitionExtra((), (), (2,), (3,), (1,), (3,), (2,), (3,))
    state = LED_BY_NOBODY._replace(isr=(1,), extra=extra)
    after = led_alone(state, 2)
    assert (after.leader, after.isr, after.leader_epoch) == (2, (2,), 6)
    kept = after.extra or PartitionExtra()
    assert (kept.elr, kept.last_elr, kept.doubtful, kept.lost, kept.awaited) == ((),) * 5
    assert kept.offline == extra.offline


def test_elections_of_replicas_that_were_not_known_to_have_everything_are_counted() -> None:
    def image(topic_id: bytes, *states: PartitionState) -> MetadataImage:
        return MetadataImage.empty("c").apply([TopicCreated("t", topic_id * 16, states)])

    extra = PartitionExtra(elr=(2,), awaited=(4,))
    before = PartitionState(NO_LEADER, 0, (1, 2, 3, 4), (1,), 0, extra)
    led = [before._replace(leader=n, isr=(n,), leader_epoch=1) for n in (1, 2, 3, 4)]
    old = image(b"t", before, before, before, before)
    assert unclean_elections(old, image(b"t", *led), ["t"]) == 1
    assert unclean_elections(old, image(b"t", led[2], led[2], before), ["t"]) == 2
    assert unclean_elections(old, image(b"u", *led), ["t"]) == 0, "another topic of that name"
    assert unclean_elections(old, image(b"t", *led), ["u"]) == 0
    assert unclean_elections(old, MetadataImage.empty("c"), ["t"]) == 0
    joined = led[2]._replace(isr=(3, 1))
    assert unclean_elections(old, image(b"t", joined), ["t"]) == 0
    assert unclean_elections(old, old, ["t"]) == 0
