"""What a group's history says after failures, restarts and long lives."""

from __future__ import annotations

from ottla.groups.classic.messages import Join
from ottla.groups.history.sentences import SENTENCES, sentence
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
