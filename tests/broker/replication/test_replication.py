"""Followers get all records of their leader, even if brokers die and leaders are elected. Requests
and answers are real frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.broker.coordination.commits import when_committed
from ottla.log.partition.damage import Damage
from ottla.replication.controller.directories import LOST, UNASSIGNED
from ottla.replication.controller.reassignment import Reassignment, reassign_partitions
from ottla.replication.metadata import PartitionChanged, PartitionsChanged
from tests.broker.produce_fetch import batch
from tests.broker.replication.nodes import TOPIC, NodeCluster, elected, records_of
from tests.broker.retention import one_round

Make = Callable[..., NodeCluster]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[NodeCluster] = []

    def cluster(**options: int) -> NodeCluster:
        made.append(NodeCluster(tmp_path, **options))
        return made[-1]

    yield cluster
    for each in made:
        each.close()


def state(cluster: NodeCluster, node_id: int, index: int = 0) -> tuple[int, int]:
    partition = cluster.nodes[node_id].partition(index)
    assert partition is not None
    return partition.high_watermark, partition.log.log_end_offset


def test_records_reach_every_replica_and_are_committed_by_that(make: Make) -> None:
    cluster = make()
    for _ in range(40):
        assert cluster.append(1)
    assert cluster.acked == []
    cluster.fetch(2, 1)
    cluster.fetch(3, 1)
    assert cluster.acked == []                  # they have it, but have not acknowledged it yet
    cluster.settle()
    assert len(cluster.acked) == 40
    assert state(cluster, 1) == state(cluster, 2) == state(cluster, 3) == (40, 40)
    assert records_of(cluster, 1) == records_of(cluster, 2) == records_of(cluster, 3)


@pytest.mark.parametrize("size", [1, 7, 61, 100])
def test_replies_arrive_in_pieces_of_any_size(make: Make, size: int) -> None:
    cluster = make(partitions=2)
    for at in range(6):
        cluster.append(1, at % 2)
    for _ in range(2500 // size + 20):
        cluster.fetch(2, 1, size)
    for index in range(2):
        assert records_of(cluster, 2, index) == records_of(cluster, 1, index) != b""


def test_a_reply_that_ends_within_a_batch_is_read_in_pieces_of_any_size(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """A reply has at most 300 bytes of a partition, so most replies end with a part of a batch."""
    cluster = make(partitions=2)
    for size in range(1, 400):
        for at in range(20):
            cluster.append(1, at % 2, padding=37 * at % 200)
        for _ in range(12_000 // size + 60):
            cluster.fetch(2, 1, size)
            ends = [[state(cluster, node, index)[1] for index in (0, 1)] for node in (1, 2)]
            if ends[0] == ends[1]:
                break
        assert ends[0] == ends[1], f"in pieces of {size} bytes"
    for index in range(2):
        assert records_of(cluster, 2, index) == records_of(cluster, 1, index)
    assert caplog.records == []


def test_a_reply_that_breaks_off_leaves_whole_batches_and_the_next_session_goes_on(
    make: Make,
) -> None:
    cluster = make(partitions=2)
    for at in range(8):
        cluster.append(1, at % 2)
    for cut in range(30, 400, 37):
        cluster.fetch(2, 1, cut)
        cluster.cut_link(2, 1)
        for index in range(2):
            assert records_of(cluster, 1, index).startswith(records_of(cluster, 2, index))
    cluster.settle()
    assert records_of(cluster, 2) == records_of(cluster, 1)


def test_a_new_leader_has_all_that_was_acknowledged_and_the_old_one_gives_up_the_rest(
    make: Make,
) -> None:
    cluster = make(min_isr=2)
    cluster.append(1)
    cluster.settle()
    cluster.append(1)                           # no other node gets it
    cluster.kill(1)
    cluster.gone(1)
    cluster.settle()
    assert cluster.image.topics[TOPIC].partitions[0].leader == 2
    for _ in range(3):
        assert cluster.append(2)
    cluster.settle()
    cluster.start(1)
    cluster.settle()
    assert records_of(cluster, 1) == records_of(cluster, 2) == records_of(cluster, 3)
    assert [value for _, _, value in cluster.acked] == [b"1", b"3", b"4", b"5"]
    assert set(cluster.image.topics[TOPIC].partitions[0].isr) == {1, 2, 3}


def test_a_high_watermark_in_an_answer_that_was_dropped_comes_again(make: Make) -> None:
    """The follower drops the answer, which is for an earlier leader epoch. The leader's fetch
    session has recorded the high watermark in it as delivered."""
    cluster = make(nodes=2)
    cluster.append(1)
    cluster.fetch(2, 1)                         # the record
    while state(cluster, 1) != (1, 1):
        cluster.fetch(2, 1, 30)  # reports 2's log end; only a part of the answer arrives
    assert state(cluster, 2) == (0, 1)
    cluster.decide([PartitionChanged(
        TOPIC, 0, elected(cluster.image.topics[TOPIC].partitions[0], 1)
    )])
    cluster.catch_up(1)
    cluster.catch_up(2)
    cluster.settle()
    assert state(cluster, 2) == (1, 1)


def test_logs_that_parted_in_several_epochs_meet_in_as_many_rounds(make: Make) -> None:
    """KIP-279: it is not enough to compare the end of one epoch if two leaders have failed in quick
    succession."""
    cluster = make(nodes=2)
    cluster.append(1)
    cluster.settle()
    partition = cluster.image.topics[TOPIC].partitions[0]
    for leader in (2, 1, 2, 1):                 # each appends a record that the other never gets
        partition = elected(partition, leader)
        cluster.decide([PartitionsChanged(TOPIC, ((0, partition),))])
        cluster.catch_up(leader)
        cluster.append(leader)
        cluster.append(leader)
    ends = [state(cluster, node)[1] for node in (1, 2)]
    cluster.settle()
    assert ends == [5, 5]
    assert records_of(cluster, 1) == records_of(cluster, 2)
    assert state(cluster, 1) == state(cluster, 2)


def test_a_cut_ends_no_later_than_the_followers_own_records_of_the_leaders_epoch(
    make: Make,
) -> None:
    """KIP-279: broker 1 led first, then broker 2, then broker 1 again. Broker 1 has more records of
    its first epoch than broker 2, which must cut its log where its own records of that epoch
    end."""
    cluster = make(nodes=2)
    cluster.append(1)
    cluster.settle()
    for _ in range(3):
        cluster.append(1)                       # 2 never gets these
    partition = cluster.image.topics[TOPIC].partitions[0]
    for leader in (2, 1):
        partition = elected(partition, leader)
        cluster.decide([PartitionsChanged(TOPIC, ((0, partition),))])
        cluster.catch_up(leader)
        for _ in range(2):
            cluster.append(leader)
    ends = [state(cluster, node)[1] for node in (1, 2)]
    cluster.settle()
    assert ends == [6, 3]
    assert records_of(cluster, 1) == records_of(cluster, 2)
    assert state(cluster, 1) == state(cluster, 2) == (6, 6)


def test_damage_that_a_cut_meets_is_noted_and_holds_up_no_other_partition(make: Make) -> None:
    cluster = make(nodes=2, partitions=2)
    for index in (0, 0, 1):
        cluster.append(1, index)
    cluster.settle()
    partition = cluster.image.topics[TOPIC].partitions[0]
    for leader in (2, 1):                       # each appends a record that the other never gets
        partition = elected(partition, leader)
        cluster.decide([PartitionsChanged(TOPIC, ((0, partition),))])
        cluster.catch_up(leader)
        cluster.append(leader)
    cut = cluster.nodes[2].partition()
    assert cut is not None and state(cluster, 2) == (2, 3)
    path = Path(cut.log.segments[0].path(".log"))
    changed = bytearray(path.read_bytes())
    changed[8] ^= 1                             # the first batch's length
    path.write_bytes(changed)
    cluster.append(1, 1)
    cluster.catch_up(2)
    for _ in range(20):
        cluster.fetch(2, 1)
    assert cut.damaged and cut.log.offline is not None
    assert state(cluster, 2, 1) == state(cluster, 1, 1) == (2, 2)
    cluster.nodes[2].replicas.repair(cut)
    assert (cut.log.damage, cut.log.offline, cut.log.log_end_offset) == (None, None, 0)


def test_a_cut_goes_by_epochs_and_never_by_the_high_watermark(make: Make) -> None:
    """KIP-101: a follower learns the high watermark late, so it has acknowledged records above the
    high watermark that it knows."""
    cluster = make(nodes=2)
    cluster.append(1)
    cluster.fetch(2, 1)
    link = cluster.link(2, 1)
    assert link is not None
    link.ask()                                  # shows that 2 has it; the answer gets lost
    cluster.cut_link(2, 1)
    assert (len(cluster.acked), state(cluster, 2)) == (1, (0, 1))
    partition = cluster.image.topics[TOPIC].partitions[0]
    for leader in (2, 1):
        partition = elected(partition, leader)
        cluster.decide([PartitionsChanged(TOPIC, ((0, partition),))])
        cluster.catch_up(leader)
        if leader == 2:
            cluster.append(2)                   # no other node gets it
    cluster.catch_up(2)
    while state(cluster, 2)[1] == 2:
        assert cluster.fetch(2, 1)
    assert records_of(cluster, 2) == records_of(cluster, 1) != b""


def test_a_follower_that_is_behind_the_leaders_log_start_begins_there(make: Make) -> None:
    cluster = make(nodes=3)
    cluster.kill(3)
    cluster.gone(3)
    for _ in range(10):
        cluster.append(1)
    cluster.settle()
    leader = cluster.nodes[1].partition()
    assert leader is not None
    leader.log.delete_before(6)
    cluster.start(3)
    cluster.settle()
    follower = cluster.nodes[3].partition()
    assert follower is not None
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (6, 10)
    assert set(cluster.image.topics[TOPIC].partitions[0].isr) == {1, 2, 3}


def test_an_empty_follower_begins_within_a_batch_where_the_leaders_log_start_is(
    make: Make,
) -> None:
    """After DeleteRecords, the log may start within a batch. The leader sends that batch as a
    whole."""
    cluster = make(nodes=3)
    cluster.kill(3)
    cluster.gone(3)
    cluster.catch_up(1)
    leader = cluster.nodes[1].partition()
    assert leader is not None
    for _ in range(3):
        leader.append_bytes(batch(b"a", b"b", b"c"))
    cluster.settle()
    leader.log.delete_before(4)
    for _ in range(2):                      # the second time after a restart
        cluster.start(3)
        cluster.settle()
        follower = cluster.nodes[3].partition()
        assert follower is not None
        assert (follower.log.log_start_offset, follower.log.log_end_offset) == (4, 9)
        assert follower.log.read_bytes(4, 1 << 20) == leader.log.read_bytes(4, 1 << 20)
        assert follower.high_watermark == 9
        assert set(cluster.image.topics[TOPIC].partitions[0].isr) == {1, 2, 3}
        cluster.kill(3)


def test_a_follower_moves_its_log_start_with_its_leader(make: Make) -> None:
    cluster = make()
    for _ in range(10):
        cluster.append(1)
    cluster.settle()
    leader, follower = cluster.nodes[1].partition(), cluster.nodes[2].partition()
    assert leader is not None and follower is not None
    leader.log.delete_before(6)
    cluster.append(1)
    cluster.settle()
    assert follower.log.log_start_offset == 6


def test_a_follower_hears_of_its_leaders_retention_though_nothing_more_comes(make: Make) -> None:
    """The follower's segments may end at other offsets, so its own retention may remove less. If it
    became leader, it would bring back what the old leader had removed."""
    cluster = make(nodes=2, retention_bytes=0)
    for _ in range(3):
        cluster.append(1)
    cluster.settle()
    leader, follower = cluster.nodes[1].partition(), cluster.nodes[2].partition()
    assert leader is not None and follower is not None
    asyncio.run(one_round([leader], cluster.nodes[1].storage))
    assert (leader.log.log_start_offset, follower.log.log_start_offset) == (3, 0)
    for _ in range(2):
        cluster.fetch(2, 1)
    assert follower.log.log_start_offset == 3


def test_an_answer_of_an_epoch_that_is_over_is_not_taken(make: Make) -> None:
    cluster = make()
    cluster.append(1)
    link = cluster.link(2, 1)
    assert link is not None
    link.ask()                                  # its answer is on the way
    partition = elected(cluster.image.topics[TOPIC].partitions[0], 3)
    cluster.decide([PartitionsChanged(TOPIC, ((0, partition),))])
    cluster.catch_up(2)
    link.receive()
    assert state(cluster, 2) == (0, 0)


def test_a_follower_that_registers_anew_counts_although_it_names_nothing_again(make: Make) -> None:
    cluster = make()
    cluster.append(1)
    cluster.settle()
    cluster.register_again(2)
    for node_id in (2, 1):  # 2 fetches again before the leader knows of the registration
        for _ in range(2):
            cluster.fetch(2, 1)
        cluster.catch_up(node_id)
    cluster.settle()
    assert set(cluster.image.topics[TOPIC].partitions[0].isr) == {1, 2, 3}


def test_a_laggard_leaves_and_joins_again(make: Make) -> None:
    cluster = make()
    cluster.settle()
    cluster.append(1)
    cluster.fetch(2, 1)
    cluster.time.now += 11
    cluster.fetch(2, 1)
    cluster.propose(1)
    assert cluster.image.topics[TOPIC].partitions[0].isr == (1, 2)
    cluster.catch_up(1)
    assert len(cluster.acked) == 1
    cluster.settle()
    assert set(cluster.image.topics[TOPIC].partitions[0].isr) == {1, 2, 3}


def test_a_cut_below_the_recovery_point_waits_for_its_checkpoint(make: Make) -> None:
    cluster = make(nodes=2)
    cluster.append(1)
    cluster.settle()
    old = cluster.nodes[1].partition()
    assert old is not None
    cluster.append(1)
    old.log.flush()
    partition = elected(cluster.image.topics[TOPIC].partitions[0], 2)
    cluster.decide([PartitionsChanged(TOPIC, ((0, partition),))])
    cluster.catch_up(2)
    cluster.catch_up(1)
    cluster.append(2)
    for _ in range(6):
        cluster.fetch(1, 2)
    fetcher = cluster.nodes[1].fetchers[2]
    assert list(fetcher.plan.cut) == [old]
    assert old.log.log_end_offset == 1          # nothing is appended yet
    cluster.nodes[1].checkpoint()
    for _ in range(4):
        cluster.fetch(1, 2)
    assert records_of(cluster, 1) == records_of(cluster, 2)


def test_a_partition_that_moved_away_goes_and_its_source_is_asked_no_more(make: Make) -> None:
    cluster = make()
    cluster.append(1)
    cluster.settle()

    before = cluster.image.topics[TOPIC].partitions[0]
    moved = before._replace(
        replicas=(1, 2), isr=(1, 2), leader_epoch=before.leader_epoch + 1,
        partition_epoch=before.partition_epoch + 1,
    )
    cluster.decide([PartitionsChanged(TOPIC, ((0, moved),))])
    cluster.settle()
    assert cluster.nodes[3].partition() is None
    assert len(cluster.nodes[3].fetchers[1].plan) == 0
    cluster.append(1)
    cluster.settle()
    assert len(cluster.acked) == 2


def test_a_restart_goes_by_the_checkpointed_high_watermark(make: Make) -> None:
    cluster = make(nodes=2)
    for _ in range(3):
        cluster.append(1)
    cluster.settle()
    cluster.nodes[1].checkpoint()
    cluster.kill(2)
    cluster.append(1)                           # 2 is in sync, and does not get it
    cluster.kill(1)
    cluster.gone(2)
    cluster.gone(1)
    cluster.start(1)
    partition = cluster.nodes[1].partition()
    assert partition is not None
    assert state(cluster, 1) == (3, 4)


@pytest.mark.parametrize("first", [1, 2])
def test_a_machine_that_lost_its_unflushed_end_does_not_lead_with_that(
    first: int, tmp_path: Path
) -> None:
    """All three replicas are in sync, and everything acknowledged is in memory only. Two processes
    die, then the machine of the third broker loses power. The two replicas that come back first may
    not lead: one has lost records, and one is not eligible. Broker 3, which became eligible, has
    everything."""
    cluster = NodeCluster(tmp_path, min_isr=2)
    cluster.settle()
    for _ in range(3):
        assert cluster.append(1)
    cluster.settle()
    assert len(cluster.acked) == 3
    for node in (2, 3):
        cluster.kill(node)
        cluster.gone(node)
    cluster.cut_power(1)
    cluster.gone(1)
    for node in (first, 3 - first):
        cluster.start(node)
        assert cluster.image.topics[TOPIC].partitions[0].leader == -1
    cluster.start(3)
    assert cluster.image.topics[TOPIC].partitions[0].leader == 3
    cluster.settle()
    logs = [records_of(cluster, node) for node in (1, 2, 3)]
    assert logs[0] == logs[1] == logs[2] and all(value in logs[0] for _, _, value in cluster.acked)
    cluster.close()


def test_a_follower_that_was_cut_learns_the_high_watermark_though_nothing_more_comes(
    make: Make
) -> None:
    cluster = make(min_isr=2)
    for _ in range(3):
        cluster.append(1)
    cluster.settle()
    cluster.append(1)                           # in one log only
    cluster.kill(1)
    cluster.gone(1)
    cluster.settle()
    (cluster.path / "1" / "replication-offset-checkpoint").unlink(missing_ok=True)
    cluster.start(1)
    cluster.settle()
    assert [state(cluster, node)[1] for node in (1, 2, 3)] == [3, 3, 3]


def test_a_partition_moves_to_another_broker_with_all_its_records(make: Make) -> None:
    cluster = make(min_isr=1)

    def move(*replicas: int) -> None:
        decision = reassign_partitions(cluster.image, [Reassignment(TOPIC, 0, replicas)])
        assert decision.result == [None]
        cluster.decide(decision.records)

    cluster.append(1)
    cluster.settle()
    move(1, 2)
    cluster.settle()
    assert cluster.nodes[3].partition() is None
    assert not (cluster.path / "3" / f"{TOPIC}-0").exists()
    cluster.append(1)
    move(3)
    now = cluster.image.topics[TOPIC].partitions[0]
    assert now.replicas == (3, 1, 2) and now.leader == 1
    cluster.settle()
    now = cluster.image.topics[TOPIC].partitions[0]
    assert (now.leader, now.replicas, now.isr, now.extra) == (3, (3,), (3,), None)
    cluster.append(3)
    cluster.settle()
    assert len(cluster.acked) == 3
    assert all(value in records_of(cluster, 3) for _, _, value in cluster.acked)
    assert cluster.nodes[1].partition() is None and cluster.nodes[2].partition() is None


def test_with_flush_messages_1_a_record_counts_where_it_is_on_the_medium(make: Make) -> None:
    cluster = make(min_isr=2, flush_messages=1)
    cluster.settle()
    assert cluster.append(1)                    # and the leader flushes it
    for _ in range(3):
        cluster.time.now += 0.3
        for node_id in (2, 3):
            cluster.fetch(node_id, 1)
    assert state(cluster, 2)[1] == state(cluster, 3)[1] == 1
    assert cluster.acked == [], "the followers have it in memory only"
    cluster.flush(2)
    cluster.flush(3)
    cluster.settle()
    assert len(cluster.acked) == 1
    for node_id in (1, 2, 3):
        partition = cluster.nodes[node_id].partition()
        assert partition is not None and partition.log.recovery_point == 1


def test_with_flush_messages_1_a_power_cut_of_all_machines_loses_nothing_acknowledged(
    make: Make,
) -> None:
    cluster = make(min_isr=2, flush_messages=1)
    cluster.settle()
    for _ in range(5):
        assert cluster.append(1)
        cluster.settle()
    cluster.append(1)
    assert len(cluster.acked) == 5
    for node_id in (1, 2, 3):
        cluster.cut_power(node_id)
    for node_id in (1, 2, 3):
        cluster.gone(node_id)
    for node_id in (1, 2, 3):
        cluster.start(node_id)
    cluster.settle()
    logs = [records_of(cluster, node) for node in (1, 2, 3)]
    assert logs[0] == logs[1] == logs[2] and all(value in logs[0] for _, _, value in cluster.acked)


def test_a_new_leader_that_has_to_flush_first_counts_nobody_before_that(make: Make) -> None:
    """With flush.messages, a follower reports the end of its log to the leader of a new epoch only
    after a flush."""
    cluster = make(min_isr=2, flush_messages=1)
    cluster.settle()
    cluster.append(1)
    for node_id in (2, 3):
        cluster.fetch(node_id, 1)
    assert state(cluster, 2)[1] == state(cluster, 3)[1] == 1
    cluster.decide([PartitionChanged(
        TOPIC, 0, elected(cluster.image.topics[TOPIC].partitions[0], 2)
    )])
    for node_id in (1, 2, 3):
        cluster.catch_up(node_id)
    for _ in range(3):
        cluster.time.now += 0.3
        cluster.fetch(3, 2)
        cluster.fetch(1, 2)
    partition = cluster.nodes[2].partition()
    assert partition is not None
    ends = {node: end for node, _, end, _, _ in partition.follower_states()}
    assert ends[3] == -1, "it has not flushed yet"
    cluster.settle()
    assert [state(cluster, node)[0] for node in (1, 2, 3)] == [1, 1, 1]


def test_a_repaired_replica_counts_only_by_what_it_has_fetched_since(make: Make) -> None:
    """The leader may read in one go that a replica was offline and that it is back. It must not
    count what the replica had before."""
    cluster = make(min_isr=2)
    for _ in range(6):
        cluster.append(1)
    cluster.settle()
    assert [end for _, end in (state(cluster, n) for n in (1, 2, 3))] == [6, 6, 6]
    node = cluster.nodes[3]
    partition = node.partition()
    assert partition is not None
    partition.log.end_before(Damage(f"{partition.log.directory}/{0:020d}.log", 0, "changed", 0))
    node.replicas.note_damage(partition)
    cluster.report(3, LOST)
    cluster.catch_up(3)
    node.replicas.repair(partition)
    for fetcher in node.fetchers.values():
        fetcher.plan.drop(partition)
        fetcher.plan.cut[partition] = None
        fetcher.plan.follow(partition)
    cluster.report(3, UNASSIGNED)
    cluster.catch_up(1)
    cluster.propose(1)
    assert cluster.image.topics[TOPIC].partitions[0].isr == (1, 2)
    cluster.settle()
    assert set(cluster.image.topics[TOPIC].partitions[0].isr) == {1, 2, 3}
    assert records_of(cluster, 1) == records_of(cluster, 2) == records_of(cluster, 3) != b""


@pytest.mark.parametrize("first", [0, 1])
def test_what_is_appended_when_a_fetch_commits_something_is_sent_without_waiting(
    make: Make, first: int
) -> None:
    """A coordinator appends markers to other partitions as soon as the end of a transaction is
    committed. This happens while the leader handles the follower's fetch, which commits it."""
    cluster = make(nodes=2, partitions=2, wait_ms=60_000)
    for _ in range(3):
        cluster.fetch(2, 1)                     # a session with both partitions, at their ends
    leader = cluster.nodes[1]
    partition = leader.partition(first)
    assert partition is not None
    cluster.append(1, first)
    when_committed(partition, lambda error: cluster.append(1, 1 - first) and None)
    for _ in range(6):
        cluster.fetch(2, 1)                     # no time passes
    assert len(cluster.acked) == 2
    assert records_of(cluster, 2, 1 - first) == records_of(cluster, 1, 1 - first) != b""
