"""Decisions about topics: what is created, deleted and extended, and what is refused with which
code."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.replication.controller.reassignment import Reassignment, reassign_partitions
from ottla.replication.controller.topics import (
    NO_ID,
    MorePartitions,
    NewTopic,
    TopicDefaults,
    create_partitions,
    create_topics,
    delete_topics,
)
from ottla.replication.metadata import (
    NO_LEADER,
    BrokerGone,
    BrokerImage,
    BrokerLeaving,
    BrokerRegistered,
    ConfigSet,
    Endpoint,
    MetadataImage,
)
from ottla.wire.errors import ErrorCode, InvalidConfig
from tests.processor import least_seconds
from tests.replication.images import brokers, numbered_ids, with_topics

DEFAULTS = TopicDefaults(num_partitions=3, replication_factor=2)


def create(image: MetadataImage, *topics: NewTopic, **options: Any) -> Any:
    return create_topics(image, topics, DEFAULTS, numbered_ids(), **options)


def code_of(decision: Any) -> int:
    [answer] = decision.result
    return 0 if answer.error is None else int(answer.error.code)


def test_a_topic_gets_an_id_and_partitions_led_by_live_brokers() -> None:
    image = brokers(1, 2, 3)
    decision = create(image, NewTopic("t", 6, 2))
    topic = image.apply(decision.records).topics["t"]
    assert topic.topic_id == decision.result[0].topic_id != NO_ID
    assert len(topic.partitions) == 6
    for state in topic.partitions:
        assert state.leader == state.replicas[0]
        assert len(set(state.replicas)) == 2
        assert state.isr == state.replicas
        assert state.leader_epoch == 0
    assert sorted(state.leader for state in topic.partitions) == [1, 1, 2, 2, 3, 3]
    assert len({state.replicas for state in topic.partitions}) == 6, "followers go round as well"


def test_single_partitions_of_many_topics_go_round_the_brokers() -> None:
    image = brokers(1, 2, 3)
    for number in range(9):
        image = image.apply(create(image, NewTopic(f"t{number}", 1, 1)).records)
    leaders = [topic.partitions[0].leader for topic in image.topics.values()]
    assert sorted(leaders) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_minus_one_asks_for_the_defaults() -> None:
    [answer] = create(brokers(1, 2), NewTopic("t")).result
    assert [len(state.replicas) for state in answer.partitions] == [2, 2, 2]


def test_validate_only_answers_and_changes_nothing() -> None:
    decision = create(brokers(1, 2), NewTopic("t"), validate_only=True)
    assert decision.records == []
    assert code_of(decision) == 0
    assert len(decision.result[0].partitions) == 3


def test_settings_are_kept_with_the_topic() -> None:
    image = brokers(1)
    decision = create(image, NewTopic("t", 1, 1, configs=[("retention.ms", "5")]))
    assert image.apply(decision.records).config_of("topic", "t") == {"retention.ms": "5"}


def test_refused_settings_leave_no_topic() -> None:
    def refuse(configs: Any) -> None:
        raise InvalidConfig("no")

    decision = create_topics(
        brokers(1), [NewTopic("t", 1, 1)], TopicDefaults(check_configs=refuse), numbered_ids()
    )
    assert code_of(decision) == ErrorCode.INVALID_CONFIG
    assert not decision.records


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("a/b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("old.one", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("old_one", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("__cluster_metadata", 1, 1), ErrorCode.INVALID_REQUEST),
        (NewTopic("__ottla_metadata", 1, 1), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", -2, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 10_001, 1), ErrorCode.POLICY_VIOLATION),
        (NewTopic("t", 2**31 - 1, 1), ErrorCode.POLICY_VIOLATION),
        (NewTopic("t", 1, 1, configs=[("retention.ms", None)]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", 1, -1, [(0, (1,))]), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", -1, 1, [(0, (1,))]), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", -1, -1, [(0, ())]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", -1, -1, [(0, (9,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", -1, -1, [(0, (1, 1))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", -1, -1, [(0, (1,)), (0, (2,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", -1, -1, [(0, (1,)), (2, (2,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", -1, -1, [(0, (1,)), (1, (1, 2))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", -1, -1, [(-1, (1,))]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_kafkas_code(topic: NewTopic, code: int) -> None:
    image = with_topics(brokers(1, 2), old_one=1)
    decision = create(image, topic)
    assert code_of(decision) == code
    assert not decision.records


def test_an_assignment_is_followed_to_the_letter() -> None:
    [answer] = create(brokers(1, 2), NewTopic("t", -1, -1, [(1, (2, 1)), (0, (1, 2))])).result
    assert [state.replicas for state in answer.partitions] == [(1, 2), (2, 1)]


@pytest.mark.parametrize("assigned", [True, False])
def test_a_broker_that_is_shutting_down_does_not_lead_new_partitions(assigned: bool) -> None:
    """It has handed over its partitions, and will be gone before it could lead the new ones."""
    image = brokers(1, 2).apply([BrokerLeaving(1)])
    topic = NewTopic("t", 2, 2)
    if assigned:
        topic = NewTopic("t", assignments=[(0, (1, 2)), (1, (2, 1))])
    [answer] = create(image, topic).result
    assert {state.replicas[0] for state in answer.partitions} == {1, 2}
    assert all((state.leader, state.isr) == (2, (2,)) for state in answer.partitions)
    alone = brokers(1).apply([BrokerLeaving(1)])
    [answer] = create(alone, NewTopic("t", 1, 1)).result
    assert [(state.leader, state.isr) for state in answer.partitions] == [(1, (1,))]


def test_a_name_given_twice_is_refused_once_and_the_others_are_made() -> None:
    decision = create(brokers(1, 2), NewTopic("t"), NewTopic("u"), NewTopic("t"))
    assert [(a.name, a.error and a.error.code) for a in decision.result] == [
        ("u", None),
        ("t", ErrorCode.INVALID_REQUEST),
    ]


def test_names_that_collide_within_one_request_are_not_both_made() -> None:
    decision = create(brokers(1, 2), NewTopic("a.b"), NewTopic("a_b"))
    assert [a.error and a.error.code for a in decision.result] == [
        None,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


def test_one_request_makes_ten_thousand_partitions_or_nothing() -> None:
    image = brokers(1)
    exactly = create(image, NewTopic("t", 6000, 1), NewTopic("u", 4000, 1))
    assert [answer.error for answer in exactly.result] == [None, None]
    more = create(image, NewTopic("t", 6000, 1), NewTopic("u", 4001, 1), NewTopic("v", 1, 1))
    assert {a.error and a.error.code for a in more.result} == {ErrorCode.POLICY_VIOLATION}
    assert not more.records


def test_an_id_that_is_taken_or_reserved_is_drawn_again() -> None:
    image = with_topics(brokers(1), old=1)
    taken = image.topics["old"].topic_id
    drawn = iter([NO_ID, bytes(15) + b"\1", taken, b"x" * 16])
    decision = create_topics(image, [NewTopic("t", 1, 1)], DEFAULTS, lambda: next(drawn))
    assert decision.result[0].topic_id == b"x" * 16


def test_topics_are_deleted_by_name_and_by_id() -> None:
    image = with_topics(brokers(1), a=1, b=1, c=1)
    decision = delete_topics(image, [("a", NO_ID), (None, image.topics["b"].topic_id)])
    assert [(answer.name, answer.error) for answer in decision.result] == [("a", None), ("b", None)]
    after = image.apply(decision.records)
    assert set(after.topics) == {"c"}
    assert len(after.names) == 1


def test_a_topic_that_the_client_may_not_delete_stays() -> None:
    image = with_topics(brokers(1), a=1, b=1)
    b_id = image.topics["b"].topic_id
    decision = delete_topics(image, [("a", NO_ID), (None, b_id)], may_delete="a".__eq__)
    assert set(image.apply(decision.records).topics) == {"b"}
    refused = {answer.error.code: answer.name for answer in decision.result if answer.error}
    assert refused == {ErrorCode.TOPIC_AUTHORIZATION_FAILED: None}, "the name is not revealed"


def test_what_cannot_be_deleted_is_told_with_kafkas_code() -> None:
    image = with_topics(brokers(1), a=1, b=1, c=1)
    a_id, c_id = image.topics["a"].topic_id, image.topics["c"].topic_id
    decision = delete_topics(
        image,
        [
            ("nobody", NO_ID), (None, b"?" * 16), (None, NO_ID), ("b", a_id),
            ("a", NO_ID), ("a", NO_ID), ("c", NO_ID), (None, c_id),
        ],
    )
    assert not decision.records
    told = {(a.name, a.topic_id): a.error.code for a in decision.result if a.error is not None}
    assert told == {
        ("nobody", NO_ID): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (None, b"?" * 16): ErrorCode.UNKNOWN_TOPIC_ID,
        (None, NO_ID): ErrorCode.INVALID_REQUEST,
        ("b", a_id): ErrorCode.INVALID_REQUEST,
        ("a", NO_ID): ErrorCode.INVALID_REQUEST,
        ("c", c_id): ErrorCode.INVALID_REQUEST,
    }


def test_partitions_are_added_behind_those_that_are_there() -> None:
    image = with_topics(brokers(1, 2, 3), t=2)
    after = image.apply(create_partitions(image, [MorePartitions("t", 5)]).records)
    assert after.topics["t"].partitions[:2] == image.topics["t"].partitions
    assert len(after.topics["t"].partitions) == 5
    assert {len(state.replicas) for state in after.topics["t"].partitions} == {1}


@pytest.mark.parametrize("nodes", [(0, 1, 2), (1, 2, 3), (10, 20, 30)])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_added_partitions_are_led_by_the_brokers_whose_turn_it_is(
    nodes: tuple[int, ...], count: int
) -> None:
    image = with_topics(brokers(*nodes), t=count)
    after = image.apply(create_partitions(image, [MorePartitions("t", count + 5)]).records)
    leaders = [state.leader for state in after.topics["t"].partitions]
    assert {*leaders[:3]} == {*nodes} and leaders[3:] == leaders[:-3]


@pytest.mark.parametrize("replicas", [None, [(3, 4)]])
def test_added_partitions_have_the_replicas_that_a_moving_topic_will_have(
    replicas: list[tuple[int, ...]] | None
) -> None:
    image = brokers(1, 2, 3, 4)
    image = image.apply(create(image, NewTopic("t", assignments=[(0, (1, 2))])).records)
    image = image.apply(reassign_partitions(image, [Reassignment("t", 0, (3, 4))]).records)
    assert len(image.topics["t"].partitions[0].replicas) == 4
    [answer] = create_partitions(image, [MorePartitions("t", 2, replicas)]).result
    assert answer.error is None
    assert [len(state.replicas) for state in answer.partitions] == [2]


def test_added_partitions_follow_an_assignment() -> None:
    image = with_topics(brokers(1, 2, 3), t=1)
    [answer] = create_partitions(image, [MorePartitions("t", 3, [(3,), (2,)])]).result
    assert [state.replicas for state in answer.partitions] == [(3,), (2,)]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (MorePartitions("nobody", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (MorePartitions("t", 2), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", 1), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", -1), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", 10_003), ErrorCode.POLICY_VIOLATION),
        (MorePartitions("t", 4, [(1,)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 3, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 3, [(1, 2)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 3, [(9,)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_partitions_that_cannot_be_added_are_refused(wanted: MorePartitions, code: int) -> None:
    image = with_topics(brokers(1, 2), t=2)
    decision = create_partitions(image, [wanted])
    assert code_of(decision) == code
    assert not decision.records


def test_adding_partitions_can_be_tried_without_doing_it() -> None:
    image = with_topics(brokers(1), t=1)
    decision = create_partitions(image, [MorePartitions("t", 3)], validate_only=True)
    assert code_of(decision) == 0
    assert not decision.records


def test_a_topic_widened_twice_in_one_request_is_refused() -> None:
    image = with_topics(brokers(1), t=1)
    decision = create_partitions(image, [MorePartitions("t", 3), MorePartitions("t", 4)])
    assert code_of(decision) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["t{}", "some.topic_{}"])
def test_a_thousand_topics_one_by_one_cost_two_seconds_at_most(name: str) -> None:
    def thousand() -> None:
        image, ids = brokers(1), numbered_ids()
        for number in range(1000):
            topic = NewTopic(name.format(number), 1, 1, configs=[("retention.ms", "5")])
            image = image.apply(create_topics(image, [topic], DEFAULTS, ids).records)
        assert len(image.topics) == 1000

    assert least_seconds(thousand, 2.0) < 2.0


def test_a_topic_widened_twice_keeps_no_other_from_growing() -> None:
    image = with_topics(brokers(1), t=1, u=1)
    wanted = [MorePartitions("t", 3), MorePartitions("t", 4), MorePartitions("u", 2)]
    decision = create_partitions(image, wanted)
    assert [(a.name, a.error and a.error.code) for a in decision.result] == [
        ("t", ErrorCode.INVALID_REQUEST), ("u", None)
    ]
    assert len(image.apply(decision.records).topics["u"].partitions) == 2


@pytest.mark.parametrize(("count", "code"), [(4000, 0), (4001, ErrorCode.POLICY_VIOLATION)])
def test_one_request_adds_ten_thousand_partitions_at_most(count: int, code: int) -> None:
    image = with_topics(brokers(1), t=1, u=1, v=1)
    decision = create_partitions(image, [
        MorePartitions("t", 1 + 6000), MorePartitions("u", 1 + count), MorePartitions("none", 9),
    ])
    assert [0 if a.error is None else a.error.code for a in decision.result[:2]] == [0, code]


class Allowance:
    """A check that lets a client create or delete at most `left` partitions."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, partitions: int) -> None:
        if partitions > self.left:
            raise InvalidConfig("too many")
        self.left -= partitions


def test_a_client_creates_grows_and_deletes_no_more_than_it_may() -> None:
    """Each topic has its own answer. A topic that exceeds the allowance is refused, and the next
    topics may still use what is left."""
    no = ErrorCode.INVALID_CONFIG
    image = with_topics(brokers(1), a=1, b=2, c=2)
    allowance = Allowance(4)
    decision = create(image, *[NewTopic(name, n, 1) for name, n in (("x", 3), ("y", 2), ("z", 1))],
                      permit=allowance)
    assert [a.error and a.error.code for a in decision.result] == [None, no, None]
    assert {*image.apply(decision.records).topics} == {"a", "b", "c", "x", "z"}
    allowance = Allowance(3)
    more = [MorePartitions(name, 4) for name in "abc"]
    decision = create_partitions(image, more, permit=allowance)
    assert [a.error and a.error.code for a in decision.result] == [None, no, no]
    assert allowance.left == 0
    allowance = Allowance(3)
    decision = delete_topics(image, [(name, NO_ID) for name in "abc"], permit=allowance)
    assert [a.error and a.error.code for a in decision.result] == [None, None, no]
    assert {*image.apply(decision.records).topics} == {"c"}


def test_a_topic_given_by_name_and_by_id_is_not_deleted_and_answered_once() -> None:
    image = with_topics(brokers(1), a=1, b=1)
    a_id, b_id = image.topics["a"].topic_id, image.topics["b"].topic_id
    decision = delete_topics(image, [("a", NO_ID), (None, a_id), (None, b_id), (None, b_id)])
    assert not decision.records
    assert [(a.name, a.topic_id) for a in decision.result] == [("a", a_id), (None, b_id)]
    assert all(a.error is not None for a in decision.result)


def test_closed_brokers_are_refused_in_assignments() -> None:
    closed = ConfigSet("broker", "2", "cordoned.log.dirs", "*")
    image = with_topics(brokers(1, 2), t=1).apply([closed])
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert code_of(create(image, NewTopic("u", assignments=[(0, (2,))]))) == refused
    assert code_of(create(image, NewTopic("u", assignments=[(0, (1,))]))) == 0
    assert code_of(create_partitions(image, [MorePartitions("t", 2, [(2,)])])) == refused
    assert code_of(create_partitions(image, [MorePartitions("t", 2, [(1,)])])) == 0


def without_9(image: MetadataImage) -> MetadataImage:
    """The image with a registered broker 9 that is away."""
    broker = BrokerImage(9, 2, (Endpoint("PLAINTEXT", "h", 9101),), None, "i9")
    return image.apply([BrokerRegistered(broker), BrokerGone(9)])


def test_an_assignment_may_name_a_broker_that_restarts() -> None:
    """As in Apache Kafka: the broker is registered, and will return."""
    image = with_topics(without_9(brokers(1, 2)), t=1)
    created = create(image, NewTopic("u", assignments=[(0, (9, 2, 1))]))
    assert code_of(created) == 0
    [state] = image.apply(created.records).topics["u"].partitions
    assert (state.leader, state.replicas, state.isr) == (2, (9, 2, 1), (2, 1))
    grown = create_partitions(image, [MorePartitions("t", 2, [(1,)])])
    assert code_of(grown) == 0
    moved = reassign_partitions(image, [Reassignment("t", 0, (9,))])
    [state] = image.apply(moved.records).topics["t"].partitions
    assert moved.result == [None] and state.leader != NO_LEADER
    assert state.extra is not None and state.extra.adding == (9,)


def test_an_assignment_names_a_live_broker() -> None:
    image = with_topics(without_9(brokers(1, 2)), t=1)
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    created = create(image, NewTopic("u", assignments=[(0, (1,)), (1, (9,))]))
    grown = create_partitions(image, [MorePartitions("t", 2, [(9,)])])
    for decision in (created, grown):
        assert code_of(decision) == refused and not decision.records
        assert "for partition 1 are fenced" in str(decision.result[0].error)


def test_a_closed_broker_that_is_away_gets_no_partition() -> None:
    closed = ConfigSet("broker", "9", "cordoned.log.dirs", "*")
    image = without_9(brokers(1, 2)).apply([closed])
    refused = ErrorCode.INVALID_REPLICATION_FACTOR
    assert code_of(create(image, NewTopic("t", 1, 3))) == refused
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert code_of(create(image, NewTopic("t", assignments=[(0, (1, 9))]))) == refused


@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_the_topics_of_one_request_go_round_the_brokers_as_those_of_many(at_once: int) -> None:
    image = brokers(1, 2, 3)
    names = [f"t{number}" for number in range(12)]
    for at in range(0, len(names), at_once):
        topics = [NewTopic(name, 1, 1) for name in names[at : at + at_once]]
        image = image.apply(create(image, *topics).records)
    leaders = [topic.partitions[0].leader for topic in image.topics.values()]
    assert {*leaders[:3]} == {1, 2, 3} and leaders[3:] == leaders[:-3]


def test_a_number_of_partitions_that_cannot_be_takes_no_room_from_the_others() -> None:
    decision = create(brokers(1), NewTopic("t", 10_000, 1), NewTopic("u", -2, 1))
    assert [a.error and a.error.code for a in decision.result] == [
        None, ErrorCode.INVALID_PARTITIONS]
