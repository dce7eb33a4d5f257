"""The fast path of a KIP-848 heartbeat is taken only if the full path would change nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ottla.groups.consumer.heartbeat import Heartbeat, HeartbeatReply
from tests.groups.bench import Workbench

EPOCH = 3
"""The epoch of a group that two members have joined, one after the other."""
ME = Heartbeat("g", "a", EPOCH, client_id="client", client_host="/h")
STATIC = Heartbeat("g", "s", EPOCH, "i", client_id="client", client_host="/h")


def group_at_rest() -> Workbench:
    """A group with two members that own their target assignment: `a`, and `s`, which has an
    instance id."""
    bench = Workbench()
    bench.cluster.make("t", 2)
    epochs = {"a": 0, "s": 0}
    for name in ("a", "s", "a", "s", "a", "s"):
        joins = epochs[name] == 0
        owned = frozenset() if joins else bench.consumers().targets[name]
        beat = Heartbeat(
            "g", name, epochs[name], "i" if name == "s" else None, None, 60_000 if joins else -1,
            frozenset("t") if joins else None, owned=owned, client_id="client", client_host="/h",
        )
        reply = bench.ask(lambda s, r, beat=beat: s.beat(beat, r))
        assert isinstance(reply, HeartbeatReply), reply
        epochs[name] = reply.member_epoch
    assert epochs == {"a": EPOCH, "s": EPOCH}
    return bench


def alive(bench: Workbench, request: Heartbeat) -> int | None:
    client = (request.client_id, request.client_host)
    return bench.shard().keep_alive("g", request, client, bench.runtime.tick_ms())


@pytest.mark.parametrize("request_", [ME, STATIC])
def test_who_has_nothing_to_tell_and_to_hear_is_answered_at_once(request_: Heartbeat) -> None:
    bench = group_at_rest()
    long_way = bench.ask(lambda s, r: s.beat(request_, r))
    next_ms = alive(bench, request_)
    assert long_way == HeartbeatReply(request_.member_id, request_.member_epoch, next_ms)


def test_it_keeps_the_session_alive() -> None:
    bench = group_at_rest()
    for _ in range(4):
        bench.wait(30_000)
        assert alive(bench, STATIC) and alive(bench, ME)
    assert set(bench.consumers().members) == {"a", "s"}
    bench.wait(46_000)
    assert not bench.consumers().members


@pytest.mark.parametrize(
    "request_",
    [
        replace(ME, member_id="nobody"),
        replace(ME, member_epoch=EPOCH - 1),
        replace(ME, member_epoch=EPOCH + 1),
        replace(ME, client_id="other"),
        replace(ME, client_host="/elsewhere"),
        replace(ME, instance_id="i"),
        replace(STATIC, instance_id="j"),
    ],
)
def test_whoever_is_not_as_he_was_goes_the_long_way(request_: Heartbeat) -> None:
    assert alive(group_at_rest(), request_) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda bench: bench.cluster.make("t", 5),
        lambda bench: bench.ask(lambda s, r: s.beat(Heartbeat("g", "a", -1), r)),
    ],
)
def test_a_group_that_has_something_to_do_goes_the_long_way(
    change: Callable[[Workbench], object],
) -> None:
    bench = group_at_rest()
    change(bench)
    assert alive(bench, STATIC) is None


def test_other_groups_go_the_long_way() -> None:
    bench = Workbench()
    assert bench.shard("none").keep_alive("none", ME, ("client", "/h"), 0) is None
