"""The history says which replica left the in-sync set, which one leads, and why."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.broker.history import reasons
from ottla.broker.history.partition_history import PartitionHistory
from ottla.broker.history.partition_sentences import ENDINGS, SENTENCES, out_of_sync, sentence
from ottla.broker.history.reasons import REASONS
from ottla.replication.metadata import (
    BrokerImage,
    MetadataImage,
    PartitionExtra,
    PartitionState,
    TopicImage,
)
from ottla.replication.roles.assignment import assume
from tests.fakes import FakeClock
from tests.replication.fakes import LAG_MS, FakeClusterSide, batch, make_partition

TOPIC_ID = bytes(15) + b"\x01"
KEY = TOPIC_ID, 0


def image(
    state: PartitionState, brokers: Iterable[int] = (1, 2, 3), leaving: Iterable[int] = ()
) -> MetadataImage:
    return replace(
        MetadataImage.empty(),
        brokers={node: BrokerImage(node, 1, ()) for node in brokers},
        leaving=frozenset(leaving),
        topics={"t": TopicImage("t", TOPIC_ID, (state,))},
    )


def state(
    leader: int = 1, isr: tuple[int, ...] = (1, 2, 3), epoch: int = 0,
    replicas: tuple[int, ...] = (1, 2, 3), extra: PartitionExtra | None = None,
) -> PartitionState:
    return PartitionState(leader, epoch, replicas, isr, epoch, extra)


class Told:
    """A history; `becomes` returns what it says about a new state of the partition."""

    def __init__(self, node_id: int = 1) -> None:
        self.clock = FakeClock()
        self.history = PartitionHistory(node_id, self.clock)
        self.image = image(state())

    def becomes(
        self, after: PartitionState, brokers: Iterable[int] = (1, 2, 3),
        leaving: Iterable[int] = (),
    ) -> list[str]:
        before = len(self.history.rings.of(KEY))
        old, self.image = self.image, image(after, brokers, leaving)
        for _ in self.history.follow(old, self.image, ["t"]):
            pass
        return [sentence(each) for each in self.history.rings.of(KEY)[before:]]


def test_a_follower_that_lags_leaves_with_how_far_it_was_behind(tmp_path: Path) -> None:
    told = Told()
    partition = make_partition(tmp_path, told.clock, FakeClusterSide())
    assume(partition, 1, 5, 1, (1, 2), (1, 2), 10)
    for _ in range(3):
        partition.append_bytes(batch())
    partition.fetched_by(2, 102, 1)
    told.clock.advance(LAG_MS + 1000)
    told.history.leaving.clear()
    told.history.asks_for_removal(partition, {2})
    told.history.leaving[KEY] = told.history.leaving.popitem()[1]
    behind = told.history.leaving[KEY][2]
    assert (behind.records, behind.ms) == (2, LAG_MS + 1000)
    assert told.becomes(state(isr=(1, 3), epoch=1)) == [
        "broker 2 left the in-sync set: its leader found that it lagged: it had not caught up for"
        " 31 s, and was 2 records behind; in sync: 1 and 3"
    ]
    told.clock.advance(60_000)
    assert told.becomes(state(epoch=2)) == [
        "broker 2 has caught up after 1 min and joined the in-sync set; in sync: 1, 2 and 3"
    ]
    assert told.history.left(KEY, 2) is None and told.history.leaving == {}


def test_a_broker_that_stops_is_told_by_the_others() -> None:
    told = Told(node_id=2)
    assert told.becomes(state(2, (2, 3), 1), brokers=(2, 3)) == [
        "broker 1 left the in-sync set: it stopped, or lost its session with ZooKeeper; in sync:"
        " 2 and 3",
        "broker 2 leads instead of broker 1: broker 1 stopped, or lost its session with ZooKeeper",
    ]
    assert told.becomes(state(1, (1, 2, 3), 2)) == [
        "broker 1 leads instead of broker 2: it is the preferred leader",
        "broker 1 has caught up after 0 ms and joined the in-sync set; in sync: 1, 2 and 3",
    ]


def test_each_reason_has_its_words() -> None:
    found = Told().becomes(state(2, (2, 3), 1), leaving=(1,))
    assert found[0].startswith("broker 1 left the in-sync set: it was shutting down")
    assert found[1] == "broker 2 leads instead of broker 1: broker 1 was shutting down"
    told = Told()
    found = told.becomes(state(2, (2, 3), 1, extra=PartitionExtra(offline=(1,))))
    assert found[0] == "the log directory of broker 1 failed, or the log in it was damaged"
    assert "its log directory failed" in found[1] and "broker 2 leads" in found[2]
    assert told.becomes(state(2, (2, 3), 2)) == ["the log directory of broker 1 works again"]
    assert Told().becomes(state(2, (2, 3), 1, (2, 3, 4)), brokers=(1, 2, 3, 4)) == [
        "broker 1 left the in-sync set: a reassignment took its replica away; in sync: 2 and 3",
        "broker 2 leads instead of broker 1: a reassignment took the replica of broker 1 away",
        "a reassignment changed the replicas from 1, 2 and 3 to 2, 3 and 4",
    ]


@pytest.mark.parametrize("now", REASONS)
@pytest.mark.parametrize("then", [None, *REASONS])
def test_each_pair_of_a_former_and_a_present_reason_makes_a_sentence(
    then: str | None, now: str
) -> None:
    left = then and {"reason_kind": then, "reason": REASONS[then].then}
    said = out_of_sync(3, left or None, 60_000, REASONS[now])
    lasts = now in ENDINGS
    if then is None:
        assert said == "broker 3 is out of sync" + f", because {REASONS[now].now}" * lasts
    elif then == now and lasts:
        assert said == f"broker 3 has been out of sync for 1 min, because {REASONS[now].now}"
    else:
        assert said == (f"broker 3 has been out of sync for 1 min, because {REASONS[then].then}"
                        + f"; now {REASONS[now].now}" * lasts)


def test_a_broker_that_shut_down_is_stopped_now() -> None:
    left = {"reason_kind": "shutting_down", "reason": "it was shutting down"}
    assert out_of_sync(3, left, 120_000, REASONS["gone"]) == (
        "broker 3 has been out of sync for 2 min, because it was shutting down; now it is stopped,"
        " or has lost its session with ZooKeeper")
    assert out_of_sync(3, None, 0, REASONS["shutting_down"]) == (
        "broker 3 is out of sync, because it is shutting down")


def test_nobody_leads_until_the_last_one_is_back_or_an_unclean_election() -> None:
    told = Told(node_id=2)
    told.becomes(state(1, (1,), 1))
    assert told.becomes(state(-1, (1,), 2), brokers=(2, 3)) == [
        "there is no leader any more: broker 1 stopped, or lost its session with ZooKeeper, and no"
        " other replica could lead"
    ]
    assert told.becomes(state(1, (1,), 3)) == ["broker 1 leads: it came back"]
    told.becomes(state(-1, (1,), 4), brokers=(2, 3))
    *_, leads, _ = told.becomes(state(3, (3,), 5), brokers=(2, 3))
    assert leads == (
        "broker 3 leads: an unclean election, so the new leader was not in sync and may lack"
        " records")


def test_a_broker_remembers_only_what_it_has_a_replica_of_and_only_so_much() -> None:
    other = Told(node_id=4)
    assert other.becomes(state(2, (2, 3), 1), brokers=(2, 3)) == []
    told = Told()
    for epoch in range(1, 1000):
        told.becomes(state(isr=(1, 2) if epoch % 2 else (1, 2, 3), epoch=epoch))
    assert len(told.history.rings.of(KEY)) == told.history.rings.each_max


def test_every_kind_and_every_reason_is_in_the_documentation() -> None:
    text = Path("docs/monitoring.md").read_text()
    named = {*REASONS, *re.findall(r'return "(\w+)", ', Path(reasons.__file__).read_text())}
    assert "shutting_down" in named
    missing = [kind for kind in {*SENTENCES, *named} if f"`{kind}`" not in text]
    assert not missing, "describe them below `kind` in docs/monitoring.md"
