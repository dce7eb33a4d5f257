"""Every event of a group is described in a sentence, and the duration of rebalances is measured."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.groups.history.group_history import GroupHistory, Rebalance
from ottla.groups.history.rings import EVENT_BYTES, RING_BYTES, Rings, event
from ottla.groups.history.sentences import SENTENCES, cause, sentence

M = {"member": "m-1", "client": "m", "host": "h"}
TAKEN = {"generation": 4, "members": 2}


@pytest.mark.parametrize(("kind", "fields", "text"), [
    ("joined", {}, "member m-1 of h joined"),
    ("joined", {"topics": ("t", "u")}, "member m-1 of h joined with a subscription to t and u"),
    ("joined", {"pattern": "t.*"},
     "member m-1 of h joined with a subscription to topics that match t.*"),
    ("joined", {"topics": ("t",), "pattern": "u"},
     "member m-1 of h joined with a subscription to t and to topics that match u"),
    ("joined", {"reason": "new"}, 'member m-1 of h joined; it gave the reason "new"'),
    ("replaced", {"former": "m-0", "instance": "i", "reason": None},
     "member m-1 of h took the place of m-0: the static member i has restarted"),
    ("left", {}, "member m-1 of h left at its own request"),
    ("left", {"by_administrator": True, "reason": "x"},
     'an administrator removed member m-1 of h; it gave the reason "x"'),
    ("left_for_now", {"instance": "i"},
     "member m-1 of h left for now: its partitions stay with the static member i until its session"
     " ends"),
    ("silent", {"timeout_ms": 9_000}, "member m-1 of h was removed: it sent no heartbeat for 9 s"),
    ("did_not_join", {"timeout_ms": 9_000},
     "member m-1 of h was removed: it did not join again within its rebalance timeout of 9 s"),
    ("did_not_sync", {"timeout_ms": 9_000},
     "member m-1 of h was removed: it did not ask for its assignment within the rebalance timeout"
     " of 9 s"),
    ("did_not_revoke", {"timeout_ms": 9_000, "partitions": 1},
     "member m-1 of h was removed: it did not give up 1 partition within its rebalance timeout of"
     " 9 s"),
    ("no_room", {"group_max_size": 2},
     "member m-1 of h was removed: group.max.size allows only 2 members"),
    ("subscription_changed", {"added": ("t",), "removed": ("u", "v")},
     "member m-1 of h changed its subscription: added t, removed u and v"),
    ("subscription_changed", {"added": (), "removed": ("u",), "pattern": "t"},
     "member m-1 of h changed its subscription: removed u, now reads topics that match t"),
    ("subscription_changed", {"added": (), "removed": ()},
     "member m-1 of h changed its subscription: its pattern was removed"),
    ("joined_again", {"leads": False}, "member m-1 of h joined again"),
    ("joined_again", {"leads": True},
     "member m-1 of h joined again as the group's leader, to assign anew (for example after a"
     " change of topics)"),
    ("upgraded", {},
     "the group changed to the consumer protocol (KIP-848), because member m-1 uses it"),
    ("rebalanced", TAKEN, "generation 4 has 2 members"),
    ("rebalanced", {**TAKEN, "took_ms": 0}, "generation 4 has 2 members"),
    ("rebalanced", {**TAKEN, "took_ms": 7},
     "the rebalance to generation 4 with 2 members took 7 ms"),
    ("rebalanced", {**TAKEN, "took_ms": 999, "initial_delay": True, "last": "x"},
     "the rebalance to generation 4 with 2 members took 999 ms; member x came last"),
    ("rebalanced", {**TAKEN, "took_ms": 1000, "initial_delay": True, "last": "x"},
     "the rebalance to generation 4 with 2 members took 1 s, mostly because the group waited"
     " for more members (group.initial.rebalance.delay.ms)"),
    ("rebalanced", {**TAKEN, "took_ms": 1999, "last": "x", "joined_ms": 1000, "leader": "l"},
     "the rebalance to generation 4 with 2 members took 2 s; member x came last after 1 s"),
    ("rebalanced", {**TAKEN, "took_ms": 2000, "last": "x", "joined_ms": 1000, "leader": "l"},
     "the rebalance to generation 4 with 2 members took 2 s; member x came last after 1 s; the"
     " group's leader l took 1 s to assign"),
    ("rebalanced", {**TAKEN, "members": 1, "took_ms": 7, "last": "x"},
     "the rebalance to generation 4 with 1 member took 7 ms"),
    ("emptied", {}, "the last member is gone: the group is empty"),
    ("not_recorded", {"reason": "full"}, "the log refused a change of the group: full"),
])
def test_an_event_is_told_in_a_sentence(kind: str, fields: dict[str, Any], text: str) -> None:
    of = event(0, 0, kind, {**M, **fields})
    assert sentence(of) == text == cause(Rebalance(of, of))
    assert cause(Rebalance(of, None)) == ""
    assert sentence(of._replace(times=2)) == f"{text} (2 times)"
    assert kind in SENTENCES


def test_a_rebalance_is_measured_from_its_begin_to_its_end() -> None:
    history = GroupHistory()
    history.note("g", event(1, 10, "left", {"member": "a"}))
    for tick_ms in (20, 25):
        history.note("g", event(2, tick_ms, "rebalance_began", {}))
    open_ = history.rebalance("g")
    assert open_ is not None and open_.began.tick_ms == 20, "the first one counts"
    assert open_.reason is not None and open_.reason.kind == "left" and open_.gathered is None
    history.note("g", event(3, 50, "gathered", {"last": "b", "initial_delay": False}))
    history.note("h", event(3, 50, "gathered", {}))
    assert history.rebalance("h") is None
    history.note("g", event(4, 90, "rebalanced", TAKEN))
    assert history.rebalance("g") is None
    first, last = history.events("g")
    assert first.kind == "left" and last.fields == {
        **TAKEN, "took_ms": 70, "last": "b", "initial_delay": False, "joined_ms": 30}
    history.note("g", event(5, 95, "rebalanced", TAKEN))
    assert history.events("g")[-1].fields == TAKEN, "there was nothing to measure"
    history.note("g", event(6, 96, "rebalance_began", {}))
    history.note("g", event(7, 99, "emptied", {}))
    assert history.events("g")[-1].fields == {"took_ms": 3}


def test_rebalances_are_dropped_only_where_many_have_no_events() -> None:
    history = GroupHistory()
    history.note("g", event(0, 0, "left", {}))
    for name in ("g", "a", "b"):
        history.note(name, event(0, 0, "rebalance_began", {}))
    assert [*history.rebalances] == ["g", "a", "b"]
    history.note("c", event(0, 0, "rebalance_began", {}))
    assert [*history.rebalances] == ["g", "c"]


def test_the_limit_of_all_rings_may_be_reached_and_no_more() -> None:
    rings: Rings[str] = Rings(bytes_max=2 * (RING_BYTES + EVENT_BYTES + 4))
    for name in "ab":
        rings.add(name, event(0, 0, "left", {}))
    assert rings.bytes == rings.bytes_max and len(rings) == 2
    rings.add("a", event(0, 0, "left", {}))
    assert [each.times for each in rings.of("a")] == [2] and "b" in rings
    rings.add("a", event(0, 0, "joined", {}))
    assert "b" not in rings and len(rings.of("a")) == 2, "it was quiet for longer"
