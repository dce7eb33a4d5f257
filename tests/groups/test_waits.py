"""What a group waits for, since when, and what ends the wait."""

from __future__ import annotations

from typing import Any

from ottla.groups.group import Group
from ottla.groups.history.group_history import Rebalance
from ottla.groups.waits import Finding, Moment, owners, standing
from tests.groups.bench import Workbench
from tests.groups.members import CLASSIC_REBALANCE_MS, GROUP, MODERN_REBALANCE_MS, TOPIC, Member


def bench_with(partitions: int, **settings: Any) -> Workbench:
    bench = Workbench(group_initial_rebalance_delay_ms=3000, **settings)
    bench.cluster.make(TOPIC, partitions)
    return bench


def group_of(bench: Workbench) -> Group:
    return bench.shard().groups[GROUP]


def findings(bench: Workbench, rebalance: bool = False) -> list[Finding]:
    known: Rebalance | None = bench.runtime.history.rebalance(GROUP) if rebalance else None
    moment = Moment(
        bench.clock.now_ms(), bench.runtime.tick_ms(), known, bench.cluster, bench.settings)
    return list(standing(group_of(bench), moment))


def classic(bench: Workbench, name: str) -> Member:
    """A classic member that has sent two JoinGroup requests: the answer to the first one was its
    member id."""
    member = Member(bench, name, False, "range")
    member.step()
    member.step()
    return member


def at_rest(bench: Workbench, *members: Member) -> None:
    for _ in range(10):
        for member in members:
            member.step()


def test_a_classic_group_is_followed_from_its_first_member_to_its_last() -> None:
    bench = bench_with(4)
    first, second = classic(bench, "a"), classic(bench, "b")
    bench.wait(1200)
    [forming] = findings(bench)
    assert forming.kind == "initial_delay" and forming.fields == {"elapsed_ms": 1200}
    assert "forming for 1.2 s" in forming.text and "delay.ms = 3000 says" in forming.text
    bench.wait(5000)
    bench.wait(1000)
    [awaited] = findings(bench)
    assert awaited.kind == "waiting_for_assignment"
    assert awaited.fields == {"elapsed_ms": 1000 + 5000 + 1200 - 6000, "leader": first.member_id}
    assert f"waits for the leader, {first.member_id} of h, to send" in awaited.text
    assert owners(group_of(bench), bench.cluster) == {}
    at_rest(bench, first, second)
    assert findings(bench) == []
    assert owners(group_of(bench), bench.cluster) == {
        (TOPIC, index): member.member_id for member in (first, second) for index in member.owned}
    second.leave()
    bench.wait(CLASSIC_REBALANCE_MS // 4)
    [missing] = findings(bench)
    assert missing.kind == "waiting_for_members"
    assert missing.fields == {
        "elapsed_ms": 5000, "members": [first.member_id], "left_ms": CLASSIC_REBALANCE_MS - 5000}
    assert f"for 5 s; the group waits for {first.member_id} of h to join" in missing.text
    assert "whoever has not joined within 15 s is removed" in missing.text
    [explained] = findings(bench, rebalance=True)
    assert explained.fields == missing.fields and "for 5 s, because " in explained.text
    first.leave()
    bench.wait(CLASSIC_REBALANCE_MS)
    [empty] = findings(bench)
    assert empty.kind == "no_members" and "nobody reads" in empty.text


def test_a_client_that_has_an_id_and_has_not_joined_yet_is_waited_for() -> None:
    bench = bench_with(4)
    first, late = classic(bench, "a"), Member(bench, "b", False, "range")
    bench.wait(3000)
    at_rest(bench, first)
    assert findings(bench) == []
    late.step()
    first.join()
    bench.wait(2000)
    [awaited] = findings(bench)
    assert awaited.kind == "waiting_for_new_members"
    assert awaited.fields == {"elapsed_ms": 2000, "left_ms": CLASSIC_REBALANCE_MS - 2000}
    assert "rebalancing for 2 s; the group waits for 1 client to repeat JoinGroup" in awaited.text


def test_a_consumer_group_tells_who_waits_for_whom() -> None:
    bench = bench_with(4)
    first, second = (Member(bench, name, True, "") for name in "ab")
    at_rest(bench, first)
    assert findings(bench) == []
    assert owners(group_of(bench), bench.cluster) == dict.fromkeys(
        [(TOPIC, index) for index in range(4)], first.member_id)
    second.step()
    bench.wait(2000)
    rebalancing, heartbeat, release = findings(bench)
    assert (rebalancing.kind, rebalancing.fields) == ("rebalancing", {"elapsed_ms": 2000})
    assert rebalancing.text == "the group has been rebalancing for 2 s"
    assert heartbeat.kind == "waiting_for_heartbeat"
    assert heartbeat.fields == {"member": first.member_id, "member_epoch": first.epoch}
    assert release.kind == "waiting_for_release"
    assert release.fields["held_by"] == [first.member_id]
    assert f", which {first.member_id} still has" in release.text
    first.step()                                    # the answer says what to give up
    [revoking] = [each for each in findings(bench) if each.kind == "waiting_for_revocation"]
    assert len(revoking.fields["partitions"]) == 2
    assert set(revoking.fields["partitions"]) == set(release.fields["partitions"])
    assert f"timeout of {MODERN_REBALANCE_MS // 60_000} min" in revoking.text
    at_rest(bench, first, second)
    assert findings(bench) == []
    first.leave()
    second.leave()
    bench.wait(1000)
    [empty] = findings(bench)
    assert empty.kind == "no_members" and "for 1 s: nobody reads" in empty.text
