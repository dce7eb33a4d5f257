"""The fields of a ConsumerGroupHeartbeat: checked as by Apache Kafka, and limited by settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.groups.consumer.heartbeat import (
    JOIN,
    LEAVE,
    Heartbeat,
    check,
    interval_ms,
    session_ms,
)
from ottla.groups.errors import InvalidRegularExpression, UnsupportedAssignor
from ottla.groups.settings import GroupSettings
from ottla.wire.errors import InvalidRequest

ASSIGNORS = ("uniform", "range")
JOINS = Heartbeat("g", "m", JOIN, None, None, 60_000, frozenset("t"), owned=frozenset())
BEAT = Heartbeat("g", "m", 3)


@pytest.mark.parametrize("request_", [
    JOINS, BEAT, replace(BEAT, member_epoch=LEAVE), replace(JOINS, topics=None, pattern="t.*"),
    replace(JOINS, topics=frozenset()), replace(JOINS, topics=None, pattern=""),
    replace(JOINS, member_id="", version=0), replace(JOINS, instance_id="i", rack_id="r"),
    replace(BEAT, member_epoch=-2, instance_id="i"), replace(BEAT, assignor="range"),
    replace(BEAT, member_epoch=-2, instance_id="i", member_id="", version=0),
    replace(JOINS, rebalance_timeout_ms=0),
], ids=str)
def test_a_heartbeat_with_what_it_needs_is_accepted(request_: Heartbeat) -> None:
    check(request_, ASSIGNORS)


@pytest.mark.parametrize(("request_", "reason"), [
    (replace(BEAT, group_id=" "), "GroupId can't be empty"),
    (replace(BEAT, member_id=" "), "MemberId can't be empty"),
    (replace(BEAT, member_id="", version=0), "MemberId can't be empty"),
    (replace(BEAT, member_id="", version=0, member_epoch=1), "MemberId can't be empty"),
    (replace(BEAT, member_id="", version=0, member_epoch=LEAVE), "MemberId can't be empty"),
    (replace(JOINS, member_id=""), "MemberId can't be empty"),
    (replace(BEAT, instance_id=" "), "InstanceId can't be empty"),
    (replace(BEAT, rack_id=""), "RackId can't be empty"),
    (replace(JOINS, rebalance_timeout_ms=-1), "RebalanceTimeoutMs must be provided"),
    (replace(JOINS, owned=None), "TopicPartitions must be empty"),
    (replace(JOINS, owned=frozenset({(b"t" * 16, 0)})), "TopicPartitions must be empty"),
    (replace(JOINS, topics=None), "must be non-null"),
    (replace(BEAT, member_epoch=-2), "InstanceId can't be null"),
    (replace(BEAT, member_epoch=-3, instance_id="i"), "MemberEpoch is invalid"),
], ids=str)
def test_a_heartbeat_that_lacks_something_is_refused(request_: Heartbeat, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        check(request_, ASSIGNORS)


def test_assignors_and_patterns_have_to_be_known() -> None:
    with pytest.raises(UnsupportedAssignor, match=r"sticky is not supported.*: uniform, range\."):
        check(replace(BEAT, assignor="sticky"), ASSIGNORS)
    with pytest.raises(InvalidRegularExpression):
        check(replace(BEAT, pattern="t("), ASSIGNORS)


@pytest.mark.parametrize(("changes", "full"), [
    ({}, True), ({"rebalance_timeout_ms": -1}, False), ({"topics": None}, False),
    ({"topics": None, "pattern": "t"}, True), ({"owned": None}, False), ({"pattern": "t"}, True),
])
def test_a_full_heartbeat_says_all_that_a_member_can(
    changes: dict[str, object], full: bool
) -> None:
    assert replace(JOINS, member_epoch=3, **changes).is_full is full    # type: ignore[arg-type]


SETTINGS = GroupSettings(
    group_consumer_session_timeout_ms=45, group_consumer_min_session_timeout_ms=40,
    group_consumer_max_session_timeout_ms=60, group_consumer_heartbeat_interval_ms=5,
    group_consumer_min_heartbeat_interval_ms=4, group_consumer_max_heartbeat_interval_ms=9,
)


@pytest.mark.parametrize(("own", "interval", "session"), [
    (None, 5, 45), ("1", 4, 40), ("4", 4, 40), ("7", 7, 40), ("9", 9, 40), ("10", 9, 40),
    ("40", 9, 40), ("50", 9, 50), ("60", 9, 60), ("61", 9, 60),
])
def test_a_groups_own_settings_stay_within_the_brokers_limits(
    own: str | None, interval: int, session: int
) -> None:
    names = ("consumer.heartbeat.interval.ms", "consumer.session.timeout.ms")
    settings = {} if own is None else dict.fromkeys(names, own)
    assert interval_ms(settings, SETTINGS) == interval
    assert session_ms(settings, SETTINGS) == session
    assert (interval_ms({}, SETTINGS), session_ms({}, SETTINGS)) == (5, 45)
