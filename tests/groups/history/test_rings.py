"""The events that are kept in memory are bounded, whatever is added."""

from __future__ import annotations

import pytest

from ottla.groups.history.group_history import GroupHistory
from ottla.groups.history.rings import (
    EVENT_BYTES,
    LISTED_MAX,
    RING_BYTES,
    TEXT_CHARS_MAX,
    Rings,
    event,
)
from ottla.groups.history.words import listed, member, named, size
from ottla.wire.wording import counted, duration


def test_a_ring_keeps_the_newest_events() -> None:
    rings: Rings[str] = Rings(each_max=3)
    for at in range(5):
        rings.add("g", event(at, at, "joined", {"member": str(at)}))
    assert [each.at_ms for each in rings.of("g")] == [2, 3, 4]
    assert rings.of("other") == []


def test_all_rings_together_keep_their_limit_and_the_quietest_key_loses_first() -> None:
    rings: Rings[str] = Rings(each_max=100, bytes_max=40 * EVENT_BYTES)
    rings.add("quiet", event(0, 0, "left", {}))
    for at in range(1000):
        rings.add(f"g{at % 7}", event(at, at, "joined", {"member": f"m{at}"}))
        assert rings.bytes <= rings.bytes_max
    assert "quiet" not in rings and rings.of("g0")
    for at in range(7):
        rings.forget(f"g{at}")
    assert rings.bytes == 0 and len(rings) == 0


def test_texts_and_lists_are_cut() -> None:
    topics = tuple("t" * 900 for _ in range(99))
    made = event(0, 0, "joined", {"member": "m" * 5000, "topics": topics})
    assert len(made.fields["member"]) == TEXT_CHARS_MAX + 1
    assert len(made.fields["topics"]) == LISTED_MAX + 1
    assert max(map(len, made.fields["topics"])) == TEXT_CHARS_MAX + 1


def test_an_event_that_repeats_is_counted() -> None:
    rings: Rings[str] = Rings()
    for at in (5, 6, 7):
        rings.add("g", event(at, at, "not_recorded", {"reason": "full"}))
    rings.add("g", event(8, 8, "left", {"member": "a"}))
    first, second = rings.of("g")
    assert (first.at_ms, first.times, first.last_ms) == (5, 3, 7) and second.times == 1


def test_rebalances_of_many_groups_without_events_are_not_kept() -> None:
    history = GroupHistory()
    for at in range(1000):
        history.note(f"g{at}", event(at, at, "rebalance_began", {}))
    assert len(history.rebalances) <= 2


def test_words() -> None:
    assert [duration(ms) for ms in (0, 999, 3200, 45_000, 60_000, 321_000, 3_600_000, 10**9)] == [
        "0 ms", "999 ms", "3.2 s", "45 s", "1 min", "5 min 21 s", "1 h", "11 days"]
    assert counted(1, "member") == "1 member" and counted(1234, "member") == "1,234 members"
    assert [size(n) for n in (12, 1023, 1024, 3 << 20, 1 << 40)] == [
        "12 B", "1023 B", "1.0 KiB", "3.0 MiB", "1.0 TiB"]
    assert [listed(["a", "b", "c", "d", "e", "f"][:n]) for n in (0, 1, 2, 3, 5, 6)] == [
        "", "a", "a and b", "a, b and c", "a, b, c, d and e", "a, b, c, d, e and 1 other"]
    assert listed([str(at) for at in range(9)]) == "0, 1, 2, 3, 4 and 4 others"


@pytest.mark.parametrize(("ms", "text"), [
    (-5, "0 ms"), (999.4, "999 ms"), (1000, "1 s"), (1049, "1 s"), (1100, "1.1 s"),
    (9_900, "9.9 s"), (10_000, "10 s"), (10_600, "11 s"), (59_400, "59 s"), (59_600, "1 min"),
    (61_000, "1 min 1 s"), (599_000, "9 min 59 s"), (601_000, "10 min"), (3_599_000, "59 min"),
    (3_660_000, "1 h 1 min"), (47 * 3_600_000, "47 h"), (48 * 3_600_000, "2 days"),
    (71 * 3_600_000, "2 days"), (72 * 3_600_000, "3 days"),
])
def test_durations_are_as_exact_as_they_are_long(ms: float, text: str) -> None:
    assert duration(ms) == text


def test_members_have_their_client_and_host() -> None:
    assert named("a-1", "a", "/10.0.0.4") == "a-1 of 10.0.0.4"
    assert named("x-1", "a", None) == "x-1 (client a)"
    assert named("x-1", "", "") == named("x-1", None, None) == "x-1"
    fields = {"member": "x-1", "client": "a", "host": "/h"}
    assert member(fields) == "member x-1 (client a) of h" and member({"member": "m"}) == "member m"


def test_the_newest_event_of_a_key_is_at_hand() -> None:
    rings: Rings[str] = Rings(each_max=2)
    assert rings.last("g") is None and len(rings) == 0
    rings.add("g", event(1, 1, "left", {"member": "a"}))
    rings.add("g", event(2, 2, "left", {"member": "b"}))
    last = rings.last("g")
    assert last is not None and last.at_ms == 2 and rings.of("g")[-1] is last
    rings.add("g", event(3, 3, "joined", {"member": "b"}))
    assert [each.kind for each in rings.of("g")] == ["left", "joined"], "the kind counts too"
    rings.forget("none")
    rings.forget("g")
    assert rings.last("g") is None and rings.bytes == 0


def test_what_is_short_enough_is_not_cut() -> None:
    assert TEXT_CHARS_MAX >= 249, "a shortened topic is one that nobody may see"
    fields = {"text": "x" * TEXT_CHARS_MAX, "list": ("y",) * LISTED_MAX, "number": 10**300}
    assert event(0, 0, "joined", fields).fields == fields
    longer = {"text": "x" * (TEXT_CHARS_MAX + 1), "list": ("y",) * (LISTED_MAX + 1)}
    cut = event(0, 0, "joined", longer).fields
    assert cut == {"text": "x" * TEXT_CHARS_MAX + "…", "list": ("y",) * LISTED_MAX + ("…",)}


def test_each_event_and_each_key_has_its_size() -> None:
    rings: Rings[str] = Rings()
    rings.add("gg", event(0, 0, "joined", {"a": "xyz", "b": ("p", "qq"), "c": 7}))
    assert rings.bytes == RING_BYTES + 4 * 2 + EVENT_BYTES + 4 * (3 + 1 + 2)
    rings.add("gg", event(0, 0, "left", {}))
    assert rings.bytes == RING_BYTES + 4 * 2 + 2 * EVENT_BYTES + 4 * 6
