"""A group that was deleted, or that the user may not describe, concerns only itself: commands show
and copy all other groups."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing import Broker
from ottla.wire.errors import ErrorCode
from tests.tools.cli.ottla_command import Ottla


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker() as broker:
        topic = broker.create_topic("orders")
        there = Ottla(broker.bootstrap_servers)
        there.ok(f"produce {topic}", b"1\n2\n")
        for group in ("team", "teams"):
            there.ok(f"consume {topic} -G {group} --offset beginning --exit")
        yield broker


@pytest.fixture
def disturbed(running: Broker) -> Iterator[Broker]:
    yield running
    running.heal()


@pytest.fixture
def there(disturbed: Broker) -> Ottla:
    return Ottla(disturbed.bootstrap_servers)


def hide(broker: Broker) -> None:
    """The next group is not found, neither as a KIP-848 group nor as a classic group."""
    for api in ("ConsumerGroupDescribe", "DescribeGroups"):
        broker.fail(api, ErrorCode.GROUP_ID_NOT_FOUND)


def test_groups_are_listed_although_one_is_deleted_meanwhile(
    there: Ottla, disturbed: Broker
) -> None:
    hide(disturbed)
    done = there("group list")
    assert done.status == 0 and not done.err
    assert [row.split() for row in done.out.splitlines()[1:]] == [
        ["teams", "classic", "Empty", "0", "0"]]


@pytest.mark.parametrize("error", [
    ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_a_group_that_the_user_may_not_describe_is_listed_without_its_lag(
    there: Ottla, disturbed: Broker, error: ErrorCode
) -> None:
    disturbed.fail("ConsumerGroupDescribe", error)
    done = there("group list")
    assert done.status == 0
    assert done.err.startswith("ottla group list: the lag of 1 group is unknown: group 'team': ")
    assert [row.split() for row in done.out.splitlines()[1:]] == [
        ["team", "classic", "Empty", "-", "-"], ["teams", "classic", "Empty", "0", "0"]]


def test_a_group_of_another_type_is_not_similar_to_itself(
    there: Ottla, disturbed: Broker
) -> None:
    """Apache Kafka gives the error GROUP_ID_NOT_FOUND for share groups."""
    hide(disturbed)
    done = there("group describe team")
    assert done.status == 1 and "similar" not in done.err
