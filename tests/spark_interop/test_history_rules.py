"""Valid histories pass. Each mutation of a valid history is found by the rule that it breaks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.spark_interop import history_spool
from ottla.spark_interop.history_rules import RULES, HistoryError, check
from tests.spark_interop.histories import Events, Recorder, good_history

Mutation = Callable[[Events], None]
MUTATIONS: dict[str, tuple[str, Mutation]] = {}


def mutation(rule: str) -> Callable[[Mutation], Mutation]:
    """Registers a change to a valid history, and the rule that must find it."""

    def register(change: Mutation) -> Mutation:
        MUTATIONS[change.__name__] = (rule, change)
        return change

    return register


def polls(events: Events, final: bool | None = None) -> list[list[Any]]:
    """The lists of [offset, value] of all polls that succeeded."""
    return [
        mop[2]
        for event in events
        if event["type"] == "ok" and (final is None or bool(event.get("final")) == final)
        for mop in event.get("mops", ())
        if mop[0] == "poll"
    ]


def sends(events: Events, f: str, kind: str = "ok") -> list[dict[str, Any]]:
    """The completions of type `kind` of the operations `f` that contain sends."""
    return [
        e
        for e in events
        if e["type"] == kind and e["f"] == f and any(m[0] == "send" for m in e["mops"])
    ]


def forget(events: Events, value: Any) -> None:
    """Remove a value from all polls, as if nobody had ever read it."""
    for found in polls(events):
        found[:] = [one for one in found if one[1] != value]


@mutation("lost_write")
def an_acknowledged_value_is_dropped(events: Events) -> None:
    forget(events, sends(events, "send")[3]["mops"][0][2])


@mutation("unseen_at_end")
def the_last_value_is_dropped(events: Events) -> None:
    forget(events, polls(events, final=True)[0][-1][1])


@mutation("stale_end")
def the_last_values_are_dropped(events: Events) -> None:
    for _, value in polls(events, final=True)[1][-3:]:
        forget(events, value)


@mutation("inconsistent_offsets")
def two_values_change_places_for_one_reader(events: Events) -> None:
    found = polls(events, final=True)[0]
    found[2][1], found[3][1] = found[3][1], found[2][1]


@mutation("duplicate")
def a_value_is_there_twice(events: Events) -> None:
    found = polls(events, final=True)[0]
    found.append([found[-1][0] + 1, found[0][1]])


@mutation("corrupt_value")
def a_value_is_read_that_nobody_sent(events: Events) -> None:
    found = polls(events, final=True)[0]
    found.append([found[-1][0] + 1, "from nowhere"])


@mutation("corrupt_value")
def a_checksum_is_wrong(events: Events) -> None:
    polls(events)[0][0].append(False)


@mutation("aborted_read")
def a_transaction_is_said_to_have_failed(events: Events) -> None:
    sends(events, "txn")[2]["type"] = "fail"


@mutation("aborted_read")
def a_send_is_said_to_have_failed(events: Events) -> None:
    sends(events, "send")[2]["type"] = "fail"


@mutation("precommitted_read")
def a_transaction_reads_its_own(events: Events) -> None:
    event = sends(events, "txn")[1]
    _, key, value, offset = event["mops"][-1]
    event["mops"].append(["poll", key, [[offset, value]]])


@mutation("poll_skip")
def a_reader_skips(events: Events) -> None:
    del polls(events, final=True)[0][4]


@mutation("nonmonotonic_poll")
def a_reader_goes_back(events: Events) -> None:
    found = polls(events, final=True)[0]
    found.append(list(found[0]))


@mutation("nonmonotonic_send")
def two_sends_change_places(events: Events) -> None:
    mine = [e for e in sends(events, "send") if e["process"] == 1]
    first = mine[0]["mops"][0]
    later = next(e["mops"][0] for e in mine[1:] if e["mops"][0][1] == first[1])
    first[3], later[3] = later[3], first[3]


@mutation("torn_transaction")
def a_part_of_a_transaction_is_lost(events: Events) -> None:
    forget(events, sends(events, "txn")[2]["mops"][1][2])


@mutation("stuck_read_committed")
def the_committed_read_stays_behind(events: Events) -> None:
    whole = [e for e in events if e.get("final") and e["type"] == "ok" and e["process"] == 50]
    for event in whole:
        event["isolation"] = "read_uncommitted"
    for event in [e for e in events if e.get("final") and e["type"] == "ok"]:
        if event["process"] == 51:
            del event["mops"][0][2][-3:]


@mutation("circular_information_flow")
def two_transactions_read_from_each_other(events: Events) -> None:
    r = Recorder(0)
    a, b = ["send", 7, "a", 0], ["send", 8, "b", 0]
    r.operation(300, "txn", mops=[a, ["poll", 8, [[0, "b"]]]])
    r.operation(301, "txn", mops=[b, ["poll", 7, [[0, "a"]]]])
    events += r.events


@mutation("circular_in_real_time")
def a_transaction_reads_what_is_sent_later(events: Events) -> None:
    r = Recorder(0)
    r.operation(300, "txn", mops=[["poll", 8, [[0, "b"]]], ["send", 7, "a", 0]])
    r.operation(301, "txn", mops=[["send", 8, "b", 0]])
    events += r.events


@mutation("end_offset_regress")
def an_end_offset_goes_back(events: Events) -> None:
    for event in events:
        if event["f"] == "end_offset" and event["process"] == 7:
            event["mops"][0][3] = 4


@mutation("offset_commit_loss")
def a_committed_offset_is_gone(events: Events) -> None:
    for event in events:
        if event["f"] == "fetch_offsets":
            event["mops"][0][3] = 3


@mutation("double_ownership")
def two_members_own_a_partition(events: Events) -> None:
    for event in events:
        for mop in event.get("mops", ()):
            if mop[0] == "assigned":
                mop[4] = 0


@mutation("zombie_write")
def an_old_epoch_writes(events: Events) -> None:
    sends(events, "txn")[-2]["epoch"] = 0
    sends(events, "txn")[-2]["txn_id"] = "t"


@mutation("split_leadership")
def two_brokers_lead(events: Events) -> None:
    for event in events:
        if event["f"] == "leader":
            event["mops"][1][2] = 1


@pytest.mark.parametrize("seed", range(20))
def test_good_histories_pass(seed: int) -> None:
    verdict = check(good_history(seed))
    assert verdict.valid, verdict.to_json()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_is_found_under_its_name(name: str, seed: int) -> None:
    rule, change = MUTATIONS[name]
    events = copy.deepcopy(good_history(seed))
    change(events)
    verdict = check(events)
    assert rule in verdict.counts, verdict.to_json()
    assert verdict.examples[rule][0].where
    assert verdict.to_json()["rules"][rule] == RULES[rule]


@pytest.mark.parametrize("name", [None, *MUTATIONS])
def test_a_key_at_a_time_from_files_is_the_same(
    name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = copy.deepcopy(good_history(2))
    if name is not None:
        MUTATIONS[name][1](events)
    at_once = check(events)
    monkeypatch.setattr(history_spool, "BUFFER_VALUES", 3)
    assert check(events, directory=tmp_path).to_json() == at_once.to_json()
    assert not list(tmp_path.iterdir())


def test_every_rule_has_a_mutation() -> None:
    assert {rule for rule, _ in MUTATIONS.values()} == set(RULES)


def test_an_unknown_send_may_be_there_or_not() -> None:
    events = good_history(1)
    value = sends(events, "send", "info")[-1]["mops"][0][2]
    forget(events, value)
    assert check(events).valid


def test_without_idempotence_a_duplicate_is_legal() -> None:
    events = good_history(1)
    a_value_is_there_twice(events)
    for found in polls(events, final=True)[3:4]:  # the other reader of the same key reads it too
        found.append(list(polls(events, final=True)[0][-1]))
    assert "duplicate" in check(events).counts
    assert check(events, idempotent=False).valid


def test_a_run_in_which_little_succeeded_is_not_valid() -> None:
    r = Recorder(1)
    r.operation(1, "send", mops=[r.append(0)])
    for process in range(2, 9):
        r.operation(process, "send", "fail", mops=[["send", 0, f"x{process}", None]])
    verdict = check(r.events)
    assert not verdict.valid and "only 1 of 8" in verdict.doubts[0]
    assert not check([]).valid


def test_a_history_that_does_not_fit_together_is_refused() -> None:
    events = good_history(1)
    with pytest.raises(HistoryError, match="never invoked"):
        check(events[1:])
    with pytest.raises(HistoryError, match="has no field 't_ns'"):
        check([{"process": 1, "idx": 0, "type": "invoke", "f": "send"}])
