"""Invariants that hold at every moment, whatever happens in whatever order: late images, truncated
answers, processes that die, elections, changes of in-sync sets, checkpoints.

- Each leader epoch has one leader.
- If two logs have a batch with the same offset and epoch, this batch is the same in both logs,
  and so is everything before it.
- An acknowledged record is in the log of every trusted replica that is in sync or eligible.
- The high watermark lies within the log. A leader's high watermark never goes back in an epoch.
- The in-sync set is part of the assignment, and never empty.
- A log knows the leader epoch of each of its batches.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ottla.replication.controller.brokers import preferred_leaders
from ottla.replication.controller.elections import moved, trusted
from ottla.replication.metadata import PartitionsChanged
from tests.broker.replication.nodes import TOPIC, NodeCluster
from tests.log.batches import split

NODES = st.integers(1, 3)
SIZES = st.sampled_from([1 << 20, 1 << 20, 1 << 20, 40, 90, 150])


def batches(cluster: NodeCluster, node_id: int) -> dict[int, tuple[int, bytes]]:
    """The batches of a log by base offset, each with its leader epoch and its bytes."""
    partition = cluster.nodes[node_id].partition()
    assert partition is not None
    log, found = partition.log, {}
    at = log.log_start_offset
    while at < log.log_end_offset:
        for batch in split(log.read_bytes(at, 1 << 20)):
            base, epoch = int.from_bytes(batch[:8], "big"), int.from_bytes(batch[12:16], "big")
            found[base] = epoch, batch
            at = base + 1
    return found


class Replication(RuleBasedStateMachine):
    """Three brokers and one partition."""

    @initialize(
        min_isr=st.integers(1, 2), segment=st.sampled_from([200, 1 << 20]),
        flush=st.sampled_from([1, 1 << 62]),
    )
    def begin(self, min_isr: int, segment: int, flush: int) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="ottla-replication-")
        self.cluster = NodeCluster(
            Path(self.folder.name), min_isr=min_isr, segment_bytes=segment, flush_messages=flush
        )
        self.leaders: dict[int, int] = {}
        self.marks: dict[tuple[int, int], int] = {}
        self.logs = {node: batches(self.cluster, node) for node in self.cluster.nodes}

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            self.cluster.close()
            self.folder.cleanup()

    # Events

    @rule(node=NODES, count=st.integers(1, 3))
    def produce(self, node: int, count: int) -> None:
        if node in self.cluster.nodes:
            for _ in range(count):
                self.cluster.append(node)

    @rule(node=NODES, leader=NODES, size=SIZES, times=st.integers(1, 4))
    def fetch(self, node: int, leader: int, size: int, times: int) -> None:
        if node in self.cluster.nodes and node != leader:
            for _ in range(times):
                self.cluster.fetch(node, leader, size)

    @rule(times=st.integers(1, 3))
    def all_fetch(self, times: int) -> None:
        for _ in range(times):
            for node in list(self.cluster.nodes):
                for leader in list(self.cluster.nodes):
                    if node != leader:
                        self.cluster.fetch(node, leader)

    @rule(node=NODES)
    def see(self, node: int) -> None:
        if node in self.cluster.nodes:
            self.cluster.see(node)

    @rule()
    def all_see(self) -> None:
        for node in self.cluster.nodes:
            self.cluster.catch_up(node)

    @rule(node=NODES, lost=st.booleans())
    def propose(self, node: int, lost: bool) -> None:
        if node in self.cluster.nodes:
            self.cluster.propose(node, lost)

    @rule(node=NODES)
    def flush(self, node: int) -> None:
        if node in self.cluster.nodes:
            self.cluster.flush(node)

    @rule(node=NODES)
    def checkpoint(self, node: int) -> None:
        if node in self.cluster.nodes:
            self.cluster.nodes[node].checkpoint()

    @rule(node=NODES, leader=NODES)
    def cut_link(self, node: int, leader: int) -> None:
        if node in self.cluster.nodes:
            self.cluster.cut_link(node, leader)

    @rule(seconds=st.sampled_from([0.1, 1.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.cluster.time.now += seconds

    @rule(node=NODES)
    def kill(self, node: int) -> None:
        if node in self.cluster.nodes:
            self.cluster.kill(node)

    @rule(node=NODES)
    def cut_power(self, node: int) -> None:
        """Cut the power of one machine at a time, and only if another trusted replica is in sync or
        eligible. Two power cuts at once could lose acknowledged records, because these may be only
        in memory."""
        others = set(self.eligible()) - {node}
        if node in self.cluster.nodes and others and not self.cluster.stops:
            self.cluster.cut_power(node)

    @rule(last=NODES)
    def outage(self, last: int) -> None:
        """Kill all processes except that of `last`, one after the other, and let the controller
        notice each death. Then cut the power of the machine of `last`."""
        for node in [each for each in self.cluster.nodes if each != last]:
            self.cluster.kill(node)
            self.cluster.gone(node)
        self.cut_power(last)

    def eligible(self) -> tuple[int, ...]:
        state = self.cluster.image.topics[TOPIC].partitions[0]
        return trusted(state, {*state.isr, *(state.extra.elr if state.extra else ())})

    @rule()
    def elect_longest(self) -> None:
        self.cluster.elect_longest()

    @rule(node=NODES)
    def notice(self, node: int) -> None:
        if node not in self.cluster.nodes:
            self.cluster.gone(node)

    @rule(node=NODES)
    def start(self, node: int) -> None:
        if node not in self.cluster.nodes:
            self.cluster.start(node)

    @rule(node=NODES)
    def register_again(self, node: int) -> None:
        if node in self.cluster.nodes:
            self.cluster.register_again(node)

    @rule(node=NODES)
    def move_leader(self, node: int) -> None:
        """Elect another in-sync replica, although the leader is alive."""
        state = self.cluster.image.topics[TOPIC].partitions[0]
        there = node in self.cluster.image.brokers and node != state.leader
        if there and node in trusted(state, state.isr) and state.leader >= 0:
            after = moved(state, node, state.isr, self.cluster.min_isr)
            self.cluster.decide([PartitionsChanged(TOPIC, ((0, after),))])

    @precondition(lambda self: self.cluster.image.brokers)
    @rule()
    def prefer(self) -> None:
        self.cluster.decide(preferred_leaders(self.cluster.image).records)

    @rule()
    def heal(self) -> None:
        """Start all nodes that are down. Then all replicas are in sync and equal, and everything in
        their logs is committed."""
        for node in (1, 2, 3):
            if node not in self.cluster.nodes:
                self.cluster.start(node)
        self.cluster.settle()
        state = self.cluster.image.topics[TOPIC].partitions[0]
        assert set(state.isr) == {1, 2, 3}
        logs = [batches(self.cluster, node) for node in (1, 2, 3)]
        assert logs[0] == logs[1] == logs[2]
        partitions = [node.partition() for node in self.cluster.nodes.values()]
        assert all(each and each.high_watermark == len(logs[0]) for each in partitions)

    # Checks

    @invariant()
    def one_leader_for_each_epoch(self) -> None:
        for node_id, node in self.cluster.nodes.items():
            partition = node.partition()
            if partition is not None and partition.led_here:
                epoch = partition.leader_epoch
                assert self.leaders.setdefault(epoch, node_id) == node_id

    @invariant()
    def logs_match(self) -> None:
        logs = [batches(self.cluster, node) for node in self.cluster.nodes]
        for at, one in enumerate(logs):
            for other in logs[at + 1 :]:
                same = [base for base in one.keys() & other.keys() if one[base] == other[base]]
                for base in one.keys() & other.keys():
                    if one[base][0] == other[base][0]:
                        assert one[base] == other[base]
                        assert all(one[each] == other[each] for each in one if each <= base), same

    @invariant()
    def what_was_acknowledged_is_in_every_in_sync_replica(self) -> None:
        state = self.cluster.image.topics[TOPIC].partitions[0]
        assert state.isr and set(state.isr) <= set(state.replicas)
        for node in self.cluster.nodes:
            if node in self.eligible() and node not in self.cluster.stops:
                log = batches(self.cluster, node)
                for _, offset, value in self.cluster.acked:
                    assert offset in log and value in log[offset][1], (node, offset, value)

    @invariant()
    def high_watermarks_stay_within_their_logs(self) -> None:
        for node_id, node in self.cluster.nodes.items():
            partition = node.partition()
            if partition is None:
                continue
            log = partition.log
            assert log.log_start_offset <= partition.high_watermark <= log.log_end_offset
            if partition.led_here:
                key = node_id, partition.leader_epoch
                assert partition.high_watermark >= self.marks.get(key, 0)
                self.marks[key] = partition.high_watermark

    @invariant()
    def epochs_of_logs_are_those_of_their_batches(self) -> None:
        for node_id, node in self.cluster.nodes.items():
            partition = node.partition()
            if partition is None:
                continue
            for base, (epoch, _) in batches(self.cluster, node_id).items():
                assert partition.log.leader_epoch_for_offset(base) == epoch


Replication.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestReplication = Replication.TestCase
# If a time limit interrupts an example on a busy machine, hypothesis takes this for a failure: it
# replays the example, finds no failure, and reports "Inconsistent data generation". On an idle
# machine the examples take 15 s.
TestReplication.pytestmark = pytest.mark.timeout(900)  # type: ignore[attr-defined]
