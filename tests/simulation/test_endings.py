"""A process is killed when the commit of a transaction was decided, but not flushed. Then the power
fails while the next process completes the commit. The transaction must be committed in all its
partitions, or aborted in all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.wire.messages import (
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from ottla.wire.records import Record, build_batch
from tests.simulation.model import PartitionModel, TopicModel
from tests.simulation.network import Broken
from tests.simulation.options import Options
from tests.simulation.reading import content
from tests.simulation.session import Session
from tests.simulation.world import Patches, World

PARTITIONS = 3
POWER_CUTS = range(2, 50, 4)


class Scene:
    """One transaction in a world of its own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.session = Session(world, "t")
        self.id = self.epoch = -1

    async def start(self) -> bool:
        """Start the broker; returns False if it ends before it serves."""
        self.world.begin_broker()
        await self.world.until(
            lambda: self.world.up or self.world.loop is None, "the broker starts", 60.0
        )
        return self.world.up

    async def until_done(self, request: Any, version: int, code: Callable[[Any], int]) -> Any:
        while True:
            try:
                answer = await self.session.call(request, version)
            except Broken:
                continue
            if code(answer) == 0:
                return answer

    async def begin(self) -> None:
        """Begin a transaction with a record in each partition."""
        made = CreateTopicsRequest
        answer = await self.until_done(made(topics=[made.Topic(
            name="a", num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[],
        )], timeout_ms=10_000), 7, lambda a: a.topics[0].error_code)
        topic = TopicModel("a", 0, answer.topics[0].topic_id, {})
        self.partitions = [PartitionModel(topic, index) for index in range(PARTITIONS)]
        await self.until_done(
            FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 4,
            lambda a: a.coordinators[0].error_code,
        )
        answer = await self.until_done(
            InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000), 3,
            lambda a: a.error_code,
        )
        self.id, self.epoch = answer.producer_id, answer.producer_epoch
        add = AddPartitionsToTxnRequest
        await self.until_done(add(
            v3_and_below_transactional_id="t", v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[add.Topic(name="a", partitions=[*range(PARTITIONS)])],
        ), 3, lambda a: a.results_by_topic_v3_and_below[0].results_by_partition[0]
            .partition_error_code)
        batch = build_batch(
            [Record(timestamp=1, key=b"k", value=b"v")], producer_id=self.id,
            producer_epoch=self.epoch, base_sequence=0, transactional=True,
        )
        send = ProduceRequest
        await self.until_done(send(
            transactional_id="t", acks=-1, timeout_ms=30_000, topic_data=[send.TopicData(
                name="a", partition_data=[
                    send.TopicData.PartitionData(index=each, records=batch)
                    for each in range(PARTITIONS)
                ],
            )],
        ), 7, lambda a: sum(p.error_code for p in a.responses[0].partition_responses))

    def end(self, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id="t", producer_id=self.id, producer_epoch=self.epoch, committed=commit,
        )

    async def decide_and_die(self, syncs: int) -> None:
        """Request the commit, and kill the process at the sync after `syncs` other syncs. At this
        moment the decision, or a record that follows it, is not yet on the medium."""
        link = await self.session.connected()
        before, disk = type(self.world.disk).before, self.world.disk
        left = [syncs]

        def stopping(kind: str, path: str, size: int = 0) -> int:
            if kind == "sync" and not disk.stopped:
                left[0] -= 1
                if left[0] < 0:
                    disk.stop_at = disk.operations + 1
            return before(disk, kind, path, size)

        disk.before = stopping  # type: ignore[method-assign]
        link.ask(self.end(True), 3).add_done_callback(lambda done: done.exception())
        await self.world.until(
            lambda: self.world.loop is None or self.world.died, "the broker dies", 60.0
        )
        self.world.kill()
        del disk.before  # type: ignore[attr-defined]

    async def start_and_lose_power(self, operations: int) -> None:
        """Start a process, which begins to complete the commit, and cut the power after this many
        operations of the disk."""
        self.world.begin_broker()
        disk = self.world.disk
        disk.stop_at = disk.operations + operations
        end = self.world.now + 20.0
        await self.world.until(
            lambda: self.world.loop is None or self.world.now > end, "the power is cut", 60.0
        )
        self.world.cut_power()

    async def fate(self) -> list[bool]:
        """Abort the transaction, if this is still possible; returns for each partition whether its
        record is visible."""
        for commit in (False, True):
            while True:
                try:
                    answer = await self.session.call(self.end(commit), 3)
                except Broken:
                    continue
                if answer.error_code in (0, 48):        # 48, INVALID_TXN_STATE: it was committed
                    break
            if answer.error_code == 0:
                break
        shown = []
        for partition in self.partitions:
            seen = await content(self.session, partition, 1, self.world.random)
            every = await content(self.session, partition, 0, self.world.random)
            assert seen.end == every.end, f"a transaction is open in {partition!r}"
            shown.append(bool(seen.data))
        return shown


async def story(world: World, syncs: int, operations: int) -> None:
    scene = Scene(world)
    assert await scene.start()
    await scene.begin()
    await scene.decide_and_die(syncs)
    await scene.start_and_lose_power(operations)
    assert await scene.start()
    shown = await scene.fate()
    assert len(set(shown)) == 1, f"the transaction is committed in some partitions only: {shown}"


@pytest.mark.parametrize("syncs", [0, 1, 2])
def test_a_transaction_that_a_kill_and_a_power_cut_meet_ends_as_a_whole(syncs: int) -> None:
    for operations in POWER_CUTS:
        options = Options.draw(1)
        options.directories, options.faults = ["/d0"], []
        options.slow_threads, options.slow_share, options.slow_network = 0.3, 0.0, 0.0
        options.cold_share = 0.0
        world = World(operations, options)
        with Patches(world):
            try:
                world.run(story(world, syncs, operations))
            finally:
                world.close()
