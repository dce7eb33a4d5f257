"""A coordinator stops right after it has turned a KIP-848 group into a classic group."""

from __future__ import annotations

import pytest

from tests.groups.bench import Workbench
from tests.groups.members import Member

PARTITIONS = 4
ROUNDS = 30
"""With one second for each round, this is longer than a rebalance."""


def settle(bench: Workbench, *members: Member) -> None:
    """Let all members follow their assignments."""
    for _ in range(ROUNDS):
        for member in members:
            member.step()
        bench.wait(1_000)


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("crashes", [1, 2])
def test_what_the_last_member_of_kip_848_had_is_read_again(protocol: str, crashes: int) -> None:
    """The members have to join again, although possibly none of them was told to."""
    bench = Workbench(group_initial_rebalance_delay_ms=100, offsets_topic_num_partitions=1)
    bench.cluster.make("t", PARTITIONS)
    classic, modern = Member(bench, "a", False, protocol), Member(bench, "b", True, protocol)
    settle(bench, classic, modern)
    assert classic.owned and modern.owned
    modern.leave()
    bench.wait(1)
    assert bench.shard().group("g").type_name == "classic"
    for _ in range(crashes):
        bench.crash()
    classic.disconnect()
    settle(bench, classic)
    assert classic.owned == set(range(PARTITIONS))


def test_a_group_that_has_rebalanced_since_is_loaded_in_peace() -> None:
    bench = Workbench(group_initial_rebalance_delay_ms=100, offsets_topic_num_partitions=1)
    bench.cluster.make("t", PARTITIONS)
    classic, modern = Member(bench, "a", False, "range"), Member(bench, "b", True, "range")
    settle(bench, classic, modern)
    modern.leave()
    settle(bench, classic)
    bench.crash()
    assert bench.shard().group("g").state_name == "Stable"
    classic.step()
    assert classic.owned == set(range(PARTITIONS))
