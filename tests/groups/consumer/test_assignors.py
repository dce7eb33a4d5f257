"""Assignors give every partition to exactly one subscriber, distribute the partitions evenly, and
move as few as they can."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.settings import group_rules
from ottla.groups.cluster_view import Topic
from ottla.groups.consumer.assignors import ASSIGNORS, Assignments, Subscriber, range_, uniform

TOPICS = {
    name: Topic(name, name.encode() * 16, count)
    for name, count in {"a": 5, "b": 3, "c": 8}.items()
}

members = st.dictionaries(
    st.sampled_from(["m1", "m2", "m3", "m4", "m5"]),
    st.frozensets(st.sampled_from("abc")).map(Subscriber),
    min_size=1,
)


def check(assigned: Assignments, subscribers: dict[str, Subscriber]) -> None:
    seen = [partition for partitions in assigned.values() for partition in partitions]
    names = {topic.topic_id: topic.name for topic in TOPICS.values()}
    wanted = {
        (topic.topic_id, index)
        for topic in TOPICS.values()
        if any(topic.name in subscriber.topics for subscriber in subscribers.values())
        for index in range(topic.partitions)
    }
    assert len(seen) == len(set(seen)) and set(seen) == wanted
    for member_id, partitions in assigned.items():
        assert {names[topic_id] for topic_id, _ in partitions} <= subscribers[member_id].topics


@given(members, st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_has_one_owner_who_wants_it(
    subscribers: dict[str, Subscriber], assignor: str
) -> None:
    check(ASSIGNORS[assignor](subscribers, TOPICS), subscribers)


@given(st.integers(1, 9))
def test_uniform_sizes_differ_by_at_most_one(count: int) -> None:
    same = {f"m{number}": Subscriber(frozenset("abc")) for number in range(count)}
    sizes = [len(partitions) for partitions in uniform(same, TOPICS).values()]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 8), st.integers(1, 8))
def test_uniform_moves_only_what_it_must(before: int, after: int) -> None:
    old = {f"m{number}": Subscriber(frozenset("abc")) for number in range(before)}
    first = uniform(old, TOPICS)
    new = {
        f"m{number}": Subscriber(frozenset("abc"), owned=first.get(f"m{number}", frozenset()))
        for number in range(after)
    }
    second = uniform(new, TOPICS)
    check(second, new)
    sizes = [len(partitions) for partitions in second.values()]
    assert max(sizes) - min(sizes) <= 1
    moved = sum(len(second[member] - first.get(member, frozenset())) for member in second)
    total = sum(topic.partitions for topic in TOPICS.values())
    gone = sum(len(partitions) for member, partitions in first.items() if member not in new)
    newcomers = sum(len(second[member]) for member in new if member not in first)
    assert moved <= max(gone, newcomers) + (total % after > 0)


@given(members)
def test_uniform_leaves_no_move_that_would_make_it_more_even(
    subscribers: dict[str, Subscriber],
) -> None:
    assigned = uniform(subscribers, TOPICS)
    for giver, partitions in assigned.items():
        for topic_id, _ in partitions:
            name = next(t.name for t in TOPICS.values() if t.topic_id == topic_id)
            for taker, subscriber in subscribers.items():
                if name in subscriber.topics and taker != giver:
                    assert len(assigned[taker]) + 2 > len(assigned[giver])


@given(members)
def test_the_same_question_has_the_same_answer_in_any_order(
    subscribers: dict[str, Subscriber],
) -> None:
    turned = dict(reversed(subscribers.items()))
    for assignor in ASSIGNORS.values():
        assert assignor(subscribers, TOPICS) == assignor(turned, TOPICS)


def test_range_gives_the_same_neighbours_of_every_topic() -> None:
    both = {"m1": Subscriber(frozenset("ac")), "m2": Subscriber(frozenset("ac"))}
    assigned = range_(both, TOPICS)
    assert {index for topic_id, index in assigned["m1"] if topic_id[:1] == b"a"} == {0, 1, 2}
    assert {index for topic_id, index in assigned["m1"] if topic_id[:1] == b"c"} == {0, 1, 2, 3}


def test_the_settings_know_the_names_of_all_assignors() -> None:
    assert tuple(ASSIGNORS) == group_rules.ASSIGNORS
