"""Consumers that read from followers (KIP-392) get committed records only, soon after the commit,
from the replica that the leader names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.settings.broker import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from ottla.replication.metadata import PartitionChanged
from ottla.replication.partition import Partition
from ottla.wire.errors import ErrorCode
from ottla.wire.records import ControlType, Record, build_batch, build_marker
from tests.broker.produce_fetch import values
from tests.broker.replication.nodes import TOPIC, Node, NodeCluster, Reader, elected
from tests.broker.retention import one_round

Make = Callable[..., NodeCluster]
OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[NodeCluster] = []

    def cluster(selector: str | None = RACK_AWARE_SELECTOR, **options: Any) -> NodeCluster:
        made.append(NodeCluster(tmp_path, selector=selector, **options))
        return made[-1]

    yield cluster
    for each in made:
        each.close()


def part(cluster: NodeCluster, node_id: int) -> Partition:
    found = cluster.nodes[node_id].partition()
    assert found is not None
    return found


def elect(cluster: NodeCluster, leader: int) -> None:
    """Elect a leader. No node has seen the new leader epoch yet."""
    state = cluster.image.topics[TOPIC].partitions[0]
    cluster.decide([PartitionChanged(TOPIC, 0, elected(state, leader))])


def committed(cluster: NodeCluster, count: int) -> None:
    """Append records, and replicate them until every replica knows that they are committed."""
    for _ in range(count):
        assert cluster.append(1)
    cluster.settle()


# What a follower serves


def test_a_follower_serves_what_it_knows_to_be_committed_and_no_more(make: Make) -> None:
    cluster = make(selector=None)
    committed(cluster, 2)
    cluster.append(1)
    cluster.fetch(2, 1)                         # 2 has the record, 3 does not
    assert (part(cluster, 2).log.log_end_offset, part(cluster, 2).high_watermark) == (3, 2)
    reader = Reader(cluster.nodes[2])
    answer = reader.fetch(0)
    assert (answer.error_code, answer.preferred_read_replica) == (0, -1)
    assert (values(answer), answer.high_watermark) == ([b"1", b"2"], 2)
    for offset in (2, 3):                       # in its log, not committed yet
        answer = reader.fetch(offset)
        assert (answer.error_code, values(answer)) == (0, [])
    cluster.settle()
    assert values(reader.fetch(2)) == [b"3"]
    assert part(cluster, 2).counters.bytes_out > part(cluster, 1).counters.bytes_out == 0


def test_offsets_that_a_follower_does_not_have_send_the_consumer_to_the_leader(make: Make) -> None:
    cluster = make(selector=None)
    committed(cluster, 2)
    reader = Reader(cluster.nodes[2])
    assert reader.fetch(3, wait_ms=1000).error_code == OUT_OF_RANGE
    part(cluster, 1).log.delete_before(1)
    cluster.append(1)
    cluster.settle()
    assert reader.fetch(0).error_code == OUT_OF_RANGE


@pytest.mark.parametrize("version", [4, 10])
def test_clients_that_know_no_followers_are_sent_to_the_leader(make: Make, version: int) -> None:
    cluster = make()
    committed(cluster, 1)
    answer = Reader(cluster.nodes[2], version=version).fetch(0, wait_ms=1000)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_leader_epochs_are_checked_by_followers(make: Make) -> None:
    cluster = make(selector=None)
    committed(cluster, 1)
    elect(cluster, 1)
    cluster.settle()
    reader = Reader(cluster.nodes[2])
    assert reader.fetch(0, epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert reader.fetch(0, epoch=2).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert values(reader.fetch(0, epoch=1)) == [b"1"]


def test_committed_transactions_are_read_by_the_followers_own_log(make: Make) -> None:
    cluster = make(selector=None)
    fields: dict[str, Any] = {"producer_epoch": 0, "transactional": True, "base_sequence": 0}
    leader = part(cluster, 1)
    for producer, value in ((7, b"aborted"), (8, b"open")):
        leader.append_bytes(build_batch(
            [Record(timestamp=1, key=None, value=value)], producer_id=producer, **fields
        ))
    leader.append_bytes(build_marker(
        ControlType.ABORT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1
    ))
    cluster.settle()
    reader = Reader(cluster.nodes[3])
    answer = reader.fetch(0, committed=True)
    assert (values(answer), answer.last_stable_offset) == ([b"aborted"], 1)
    assert [(each.producer_id, each.first_offset) for each in answer.aborted_transactions] == [
        (7, 0)
    ]
    assert answer.high_watermark == 3
    reader.ask(1, committed=True, wait_ms=5000)
    assert reader.answer() is None
    leader.append_bytes(build_marker(
        ControlType.COMMIT, producer_id=8, producer_epoch=0, coordinator_epoch=0, timestamp=1
    ))
    cluster.settle()
    assert values(reader.answer())[0] == b"open"


# Waiting


def test_a_wait_at_a_follower_ends_when_its_high_watermark_moves(make: Make) -> None:
    cluster = make(selector=None)
    committed(cluster, 1)
    reader = Reader(cluster.nodes[2])
    reader.ask(1, epoch=0, wait_ms=60_000)
    cluster.append(1)
    cluster.fetch(2, 1)                         # the record, which is not committed
    assert reader.answer() is None
    cluster.fetch(3, 1)
    cluster.fetch(3, 1)
    cluster.fetch(2, 1)
    cluster.fetch(2, 1)
    assert values(reader.answer()) == [b"2"]


@pytest.mark.parametrize("leader", [1, 2, 3])
def test_a_wait_at_a_follower_ends_when_leadership_changes(make: Make, leader: int) -> None:
    cluster = make(selector=None)
    committed(cluster, 1)
    reader = Reader(cluster.nodes[2])
    reader.ask(1, epoch=0, wait_ms=60_000)
    elect(cluster, leader)
    cluster.catch_up(2)
    assert reader.answer().error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_new_leaders_follower_shows_nothing_before_it_has_compared_its_log(make: Make) -> None:
    """An unclean election may have lost records below the follower's high watermark."""
    cluster = make(selector=None)
    committed(cluster, 1)
    reader = Reader(cluster.nodes[2])
    elect(cluster, 3)
    cluster.catch_up(2)
    reader.ask(0, epoch=1, wait_ms=60_000)
    assert reader.answer() is None
    cluster.catch_up(3)
    cluster.fetch(2, 3)
    cluster.settle()
    assert values(reader.answer()) == [b"1"]


def test_a_consumer_goes_back_to_the_leader_from_a_follower_that_does_not_hear_it(
    make: Make,
) -> None:
    cluster = make(selector=None)
    committed(cluster, 1)
    elect(cluster, 3)
    cluster.catch_up(2)
    reader = Reader(cluster.nodes[2])
    assert reader.fetch(0, epoch=1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    reader.ask(0, epoch=1, wait_ms=500)
    assert reader.answer() is None
    cluster.time.now += 0.6
    assert reader.answer().error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_consumer_in_a_session_goes_back_from_a_follower_that_does_not_hear_its_leader(
    make: Make,
) -> None:
    """The consumer has read everything, so the session has no news of the partition. The partition
    must stay listed in the session all the same: at the end of the wait, its entry in the answer
    has the error."""
    cluster = make(selector=None)
    committed(cluster, 1)
    reader = Reader(cluster.nodes[2])
    reader.ask(1, session=(0, 0))
    first = reader.response()
    assert first is not None and first.session_id > 0
    elect(cluster, 3)
    cluster.catch_up(2)
    reader.ask(1, session=(first.session_id, 1), wait_ms=500)
    assert reader.response() is None
    cluster.time.now += 0.6
    assert reader.answer().error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_records_that_a_follower_gives_up_are_shown_to_nobody(make: Make) -> None:
    cluster = make(selector=None)
    committed(cluster, 1)
    cluster.append(1)
    cluster.fetch(2, 1)                         # 3 does not get it
    assert part(cluster, 2).log.log_end_offset == 2
    reader = Reader(cluster.nodes[2])
    behind = Reader(cluster.nodes[2])
    cluster.kill(1)
    elect(cluster, 3)
    cluster.catch_up(2)
    reader.ask(1, epoch=1, wait_ms=60_000)
    behind.ask(2, epoch=1, wait_ms=60_000)
    cluster.catch_up(3)
    cluster.fetch(2, 3)
    assert part(cluster, 2).log.log_end_offset == 1
    assert behind.answer().error_code == OUT_OF_RANGE       # the consumer then asks the leader
    cluster.append(3)
    cluster.settle()
    assert values(reader.answer()) == [b"3"]


def test_only_a_committed_record_of_a_later_epoch_proves_a_divergence(make: Make) -> None:
    """A follower may lack records that other replicas have, so the end of its log alone is no
    reason for consumers to truncate."""
    cluster = make(selector=None)
    committed(cluster, 2)
    reader = Reader(cluster.nodes[2])
    answer = reader.fetch(3, last_epoch=0)
    assert (answer.error_code, answer.diverging_epoch.end_offset) == (OUT_OF_RANGE, -1)
    elect(cluster, 1)
    cluster.settle()
    cluster.append(1)
    cluster.settle()
    answer = reader.fetch(3, last_epoch=0)
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 2)


# Where the leader sends consumers


def test_a_leader_sends_a_consumer_to_the_replica_in_its_rack_at_once(make: Make) -> None:
    cluster = make()
    committed(cluster, 2)
    for offset in (0, 2):
        answer = Reader(cluster.nodes[1], "b").fetch(offset, wait_ms=60_000)
        assert (answer.error_code, answer.preferred_read_replica, answer.records) == (0, 2, b"")
        assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (
            2, 2, 0
        )
    assert values(Reader(cluster.nodes[2], "b").fetch(0)) == [b"1", b"2"]


@pytest.mark.parametrize("rack", ["", "a", "z"])
def test_a_consumer_in_the_leaders_rack_or_in_no_replicas_reads_from_the_leader(
    make: Make, rack: str
) -> None:
    cluster = make()
    committed(cluster, 1)
    answer = Reader(cluster.nodes[1], rack).fetch(0)
    assert (values(answer), answer.preferred_read_replica) == ([b"1"], -1)


@pytest.mark.parametrize("selector", [None, LEADER_SELECTOR])
def test_without_a_selector_by_racks_the_leader_serves_everybody(
    make: Make, selector: str | None
) -> None:
    cluster = make(selector=selector)
    committed(cluster, 1)
    answer = Reader(cluster.nodes[1], "b").fetch(0)
    assert (values(answer), answer.preferred_read_replica) == ([b"1"], -1)


def test_a_leader_sends_nobody_to_a_replica_without_the_offset_or_out_of_sync_or_gone(
    make: Make,
) -> None:
    cluster = make()
    committed(cluster, 2)
    reader = Reader(cluster.nodes[1], "b")
    cluster.append(1)
    assert reader.fetch(2).preferred_read_replica == 2
    assert reader.fetch(3).preferred_read_replica == -1     # 2 does not have it yet
    cluster.kill(2)
    cluster.gone(2)
    cluster.settle()
    answer = reader.fetch(0)
    assert (values(answer), answer.preferred_read_replica) == ([b"1", b"2", b"3"], -1)


def test_a_leader_sends_nobody_to_a_replica_whose_retention_has_removed_the_offset(
    make: Make,
) -> None:
    """The follower's segments end at other offsets than the leader's, so its retention may have
    removed more. The follower would refuse the offset, and the leader would name it again, for
    ever."""
    cluster = make(nodes=2, retention_bytes=0)
    committed(cluster, 3)
    follower = part(cluster, 2)
    asyncio.run(one_round([follower], cluster.nodes[2].storage))
    assert follower.log.log_start_offset == 3
    for _ in range(2):
        cluster.fetch(2, 1)
    assert Reader(cluster.nodes[2], "b").fetch(0).error_code == OUT_OF_RANGE
    answer = Reader(cluster.nodes[1], "b").fetch(0)
    assert (values(answer), answer.preferred_read_replica) == ([b"1", b"2", b"3"], -1)


def test_of_several_replicas_in_a_rack_the_one_with_most_records_is_named(make: Make) -> None:
    cluster = make(nodes=4)                     # 3 and 4 are in one rack
    committed(cluster, 1)
    reader = Reader(cluster.nodes[1], "c")
    assert reader.fetch(0).preferred_read_replica == 4
    cluster.append(1)
    for _ in range(2):
        cluster.fetch(3, 1)                     # 3 gets the record, then acknowledges it
    cluster.link(3, 1).ask()                    # type: ignore[union-attr]
    assert reader.fetch(0).preferred_read_replica == 3


def test_every_answer_in_a_session_has_the_replica_to_read_from(make: Make) -> None:
    cluster = make()
    committed(cluster, 1)
    reader = Reader(cluster.nodes[1], "b")
    reader.ask(1, session=(0, 0))
    first = reader.response()
    assert first is not None and first.session_id > 0
    for number in (1, 2, 3):
        reader.ask(1, session=(first.session_id, number), named=False, wait_ms=60_000)
        assert reader.answer().preferred_read_replica == 2


# How followers learn what is committed


def moves_while_it_waits(cluster: NodeCluster) -> bool:
    """Whether a waiting fetch of a follower is answered as soon as the high watermark has moved."""
    committed(cluster, 1)
    for _ in range(4):
        cluster.fetch(2, 1)
    cluster.append(1)
    cluster.fetch(2, 1)                         # the record
    link = cluster.link(2, 1)
    assert link is not None
    link.ask()
    assert not link.receive()                   # 3 does not have it: nothing is committed
    for _ in range(3):
        cluster.fetch(3, 1)
    assert part(cluster, 1).high_watermark == 2
    return bool(link.receive()) and part(cluster, 2).high_watermark == 2


def test_a_follower_that_waits_is_told_of_the_high_watermark_at_once(make: Make) -> None:
    assert moves_while_it_waits(make(wait_ms=60_000))


def test_without_a_selector_a_high_watermark_alone_ends_no_wait(make: Make) -> None:
    assert not moves_while_it_waits(make(selector=None, wait_ms=60_000))


def test_a_follower_that_knows_what_is_committed_waits(make: Make) -> None:
    """The follower reports its high watermark (Fetch 18), so the leader sees that the follower
    knows it, and lets the fetch wait."""
    cluster = make(nodes=2, wait_ms=60_000)
    committed(cluster, 1)
    link = cluster.link(2, 1)
    assert link is not None
    assert link.fetcher.plan.outstanding == 1 and not link.receive()
    cluster.append(1)
    assert link.receive()                       # the record; the next request commits it
    link.ask()
    assert link.receive()                       # the news that the record is committed
    link.ask()
    assert link.fetcher.plan.outstanding == 1 and not link.receive()
    assert part(cluster, 2).high_watermark == 2


class UsedUp:
    """A replication quota that is used up for one replica."""

    def __init__(self, replica_id: int) -> None:
        self.replica_id = replica_id

    def wait_for(self, partition: Partition, replica_id: int) -> float:
        return 1.0 if replica_id == self.replica_id else 0.0

    def record(self, topic: str, index: int, size: int) -> None:
        """Do nothing: the other replicas have no limit."""


def test_a_follower_is_told_of_no_high_watermark_beyond_what_it_has(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A throttled follower gets no records, so it cannot use a higher high watermark. If the leader
    told it each one, each would end a waiting fetch, and the follower would fetch again at once."""
    monkeypatch.setattr(Node, "leader_throttle", UsedUp(3))
    cluster = make(wait_ms=60_000)
    committed(cluster, 0)
    link = cluster.link(3, 1)
    assert link is not None and link.fetcher.plan.outstanding == 1
    cluster.append(1)
    for _ in range(2):
        cluster.fetch(2, 1)                     # the record; the next request acknowledges it
    cluster.time.now += 11
    cluster.propose(1)
    cluster.catch_up(1)                         # 3 has left the in-sync set
    assert part(cluster, 1).isr == (1, 2) and part(cluster, 1).high_watermark == 1
    assert not link.receive()
