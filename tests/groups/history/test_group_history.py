"""What a group's history says after failures, restarts and long lives."""

from __future__ import annotations

from ottla.groups.classic.messages import Join
from ottla.groups.history.group_history import OFFSETS_SET, GroupHistory
from ottla.groups.history.rings import event
from ottla.groups.history.sentences import SENTENCES, sentence
from ottla.groups.history.setters import BACK_MAX, BACK_MS, QUIET_MS, SETTERS_MAX, Setters
from ottla.wire.errors import StorageFailed
from tests.groups.bench import Workbench


def join(bench: Workbench, client: str, member_id: str = "") -> None:
    request = Join(
        "g", member_id, None, client, "/10.0.0.4", 10_000, 30_000, "consumer", (("range", b""),),
        needs_member_id=False,
    )
    bench.runtime.change("g", lambda s, r: s.join(request, lambda reply: None, r))


def told(bench: Workbench) -> list[str]:
    return [sentence(each) for each in bench.runtime.history.events("g")]


def test_heartbeats_and_commits_add_nothing() -> None:
    bench = Workbench(group_initial_rebalance_delay_ms=0)
    join(bench, "a")
    bench.wait(0)
    before, size = told(bench), bench.runtime.history.rings.bytes
    for _ in range(1000):
        bench.heartbeat("g", 1, "a-1", None)
    assert (told(bench), bench.runtime.history.rings.bytes) == (before, size)


def test_a_change_that_the_log_refused_is_told_as_refused_and_once() -> None:
    bench = Workbench(group_initial_rebalance_delay_ms=0)
    join(bench, "a")
    bench.wait(0)
    bench.refusal = StorageFailed("no space is left")
    bench.wait(20_000)
    found = bench.runtime.history.events("g")
    assert [each.kind for each in found] == ["joined", "silent", "not_recorded"]
    assert found[-1].times > 1 and "no space is left" in sentence(found[-1])
    bench.refusal = None
    bench.wait(2_000)
    assert told(bench)[-1] == "the last member is gone: the group is empty"


def test_a_rebalance_of_an_earlier_term_is_not_measured_on() -> None:
    bench = Workbench()
    join(bench, "a")
    assert bench.runtime.history.rebalance("g") is not None
    partition = bench.partition()
    bench.runtime.unload(partition)
    bench.runtime.adopt(bench.runtime.begin_load(partition))
    join(bench, "b")
    open_ = bench.runtime.history.rebalance("g")
    assert open_ is not None and open_.reason is not None
    assert open_.reason.fields["client"] == "b"


def test_every_kind_of_event_has_a_sentence_in_the_documentation() -> None:
    with open("docs/monitoring.md") as page:
        text = page.read()
    assert not [kind for kind in SENTENCES if f"`{kind}`" not in text]


def sets(
    history: GroupHistory, tick_ms: int, client: str, *topics: str, back: int | None = None
) -> bool:
    fields = {"user": "u", "client": client, "host": "h", "topics": topics, "back": back}
    return history.note_set("g", event(tick_ms, tick_ms, OFFSETS_SET, fields))


def test_offsets_set_back_do_not_hide_those_that_are_set_forward() -> None:
    history = GroupHistory()
    assert sets(history, 0, "a", "t", back=1_000)
    assert sets(history, 180_000, "a", "t")
    assert [each.fields["back"] for each in history.events("g")] == [1_000, None]


def test_clients_that_set_offsets_in_turn_are_told_once() -> None:
    history = GroupHistory()
    for tick_ms in range(1_000):
        for client, topic in (("a", "t"), ("b", "t"), ("a", "u")):
            is_news = sets(history, tick_ms, client, topic)
            assert is_news == (tick_ms == 0), "a topic of its own is news, too"
    found = history.events("g")
    assert [(each.fields["client"], each.fields["topics"], each.times) for each in found] == [
        ("a", ("t", "u"), 2_000), ("b", ("t",), 1_000)]
    assert sets(history, 1_000 + QUIET_MS, "a", "t"), "hours later, a tool sets them again"
    assert [each.times for each in history.events("g")] == [2_000, 1_000, 1]


def test_each_step_backwards_is_told_but_not_for_ever() -> None:
    history = GroupHistory()
    told = [sets(history, tick_ms, "a", "t", back=5) for tick_ms in range(100)]
    assert told == [True] * BACK_MAX + [False] * (100 - BACK_MAX)
    texts = [sentence(each).rpartition(" set the offsets of t ")[2] for each in history.events("g")]
    times = 100 - BACK_MAX + 1
    assert texts == ["back by 5 records"] * (BACK_MAX - 1) + [
        f"back by {5 * times} records in all ({times} times)"]
    for tick_ms in range(0, BACK_MS + 1, QUIET_MS // 2):
        sets(history, tick_ms, "a", "t")
    assert sets(history, BACK_MS + 1, "a", "t", back=5)


def test_an_event_that_grows_keeps_within_its_limits() -> None:
    history = GroupHistory()
    told = sum(sets(history, tick_ms, "a", f"topic-{tick_ms:03}") for tick_ms in range(100))
    [found] = history.events("g")
    assert (found.times, len(found.fields["topics"]), told) == (100, 21, 21)
    history.rings.forget("g")
    assert history.rings.bytes == 0, "the bytes of the longer event were counted"


def test_the_clients_that_set_offsets_are_bounded() -> None:
    known = Setters()
    for number in range(SETTERS_MAX + 10):
        assert known.is_news(number, False, 0)
    assert len(known) == SETTERS_MAX and not known.is_news(SETTERS_MAX, False, 1)
