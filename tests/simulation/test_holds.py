"""No request and no periodic work blocks the event loop for more than HOLD_SECONDS_MAX. The time is
estimated from counted work (`holds.py`).

Most requests name about SIZE items. An API that processes all of them in one turn takes several
times the allowed time. `benchmarks/loop_holds.py` measures the same on a running broker, including
the compiled parts, such as decoding a request and encoding an answer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import pytest

from ottla.wire import messages as m
from ottla.wire.records import Record, build_batch
from tests.simulation.holds import HoldsWorld
from tests.simulation.session import Session
from tests.simulation.world import START_MS, Patches

SIZE = 3000
HOLD_SECONDS_MAX = 0.004
"""Two slices: one may end and another begin in the same turn."""
DAY_MS = 24 * 3600 * 1000

Steps = AsyncIterator[tuple[str, Awaitable[Any]]]
Case = Callable[[HoldsWorld, Session], Steps]
CASES: dict[str, Case] = {}
SETTINGS = {
    "offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def case(function: Case) -> Case:
    """Register a case. The steps that it yields are measured; what it does between them is not."""
    CASES[function.__name__] = function
    return function


async def idle(seconds: float) -> None:
    """Let the broker's timers fire."""
    await asyncio.sleep(seconds)


async def make_topic(session: Session, name: str, partitions: int, **configs: str) -> None:
    made = m.CreateTopicsRequest.Topic
    given = [made.Config(name=k.replace("_", "."), value=v) for k, v in configs.items()]
    answer = await session.call(m.CreateTopicsRequest(topics=[made(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=given,
    )], timeout_ms=60_000), 5)
    assert answer.topics[0].error_code == 0, answer


async def find_coordinator(session: Session, kind: int, key: str) -> None:
    while True:
        answer = await session.call(m.FindCoordinatorRequest(
            key_type=kind, coordinator_keys=[key]), 4)
        if answer.coordinators[0].error_code == 0:
            await asyncio.sleep(3)
            return
        await asyncio.sleep(0.1)


async def commit(session: Session, group: str, topic: str, count: int) -> None:
    made = m.OffsetCommitRequest.Topic
    partitions = [
        made.Partition(partition_index=index, committed_offset=0, committed_metadata="")
        for index in range(count)
    ]
    answer = await session.call(m.OffsetCommitRequest(
        group_id=group, topics=[made(name=topic, partitions=partitions)]), 8)
    codes = [each.error_code for told in answer.topics for each in told.partitions]
    assert codes == [0] * count, codes[:10]


async def in_groups_of(count: int, calls: Iterable[Awaitable[Any]]) -> None:
    waiting: list[Awaitable[Any]] = []
    for call in calls:
        waiting.append(call)
        if len(waiting) == count:
            await asyncio.gather(*waiting)
            waiting = []
    await asyncio.gather(*waiting)


@case
async def offsets_of_one_group(world: HoldsWorld, session: Session) -> Steps:
    await make_topic(session, "w", SIZE)
    await find_coordinator(session, 0, "g")
    yield "commit", commit(session, "g", "w", SIZE)
    group = m.OffsetFetchRequest.Group
    everything = [group(group_id="g", topics=None)]
    named = group.Topic(name="w", partition_indexes=list(range(SIZE)))
    yield "fetch of all", session.call(m.OffsetFetchRequest(groups=everything), 9)
    yield "fetch by name", session.call(m.OffsetFetchRequest(
        groups=[group(group_id="g", topics=[named])]), 9)
    yield "old fetch of all", session.call(m.OffsetFetchRequest(group_id="g", topics=None), 7)
    made = m.OffsetDeleteRequest.Topic
    partitions = [made.Partition(partition_index=index) for index in range(SIZE)]
    yield "OffsetDelete", session.call(m.OffsetDeleteRequest(
        group_id="g", topics=[made(name="w", partitions=partitions)]), 0)
    await commit(session, "g", "w", SIZE)
    yield "DeleteGroups", session.call(m.DeleteGroupsRequest(groups_names=["g"]), 2)
    answer = await session.call(m.OffsetFetchRequest(groups=everything), 9)
    assert answer.groups[0].topics == []
    await commit(session, "g", "w", SIZE)
    yield "its topic deleted", session.call(m.DeleteTopicsRequest(
        topic_names=["w"], timeout_ms=60_000), 5)
    yield "its offsets removed", idle(30)


@case
async def many_groups(world: HoldsWorld, session: Session) -> Steps:
    names = [f"g{number}" for number in range(SIZE)]
    await make_topic(session, "w", 1)
    await find_coordinator(session, 0, "g")
    await in_groups_of(50, (commit(session, name, "w", 1) for name in names))
    yield "ListGroups", session.call(m.ListGroupsRequest(states_filter=[]), 4)
    yield "DescribeGroups", session.call(m.DescribeGroupsRequest(groups=names), 5)
    yield "ConsumerGroupDescribe", session.call(m.ConsumerGroupDescribeRequest(group_ids=names), 0)
    yield "FindCoordinator", session.call(m.FindCoordinatorRequest(
        key_type=0, coordinator_keys=names), 4)
    made = m.OffsetFetchRequest.Group
    yield "OffsetFetch", session.call(m.OffsetFetchRequest(
        groups=[made(group_id=name, topics=None) for name in names]), 9)
    await world.stop_cleanly()
    world.begin_broker()
    await world.until(lambda: world.up, "it serves", 60)
    yield "loaded", idle(5)
    yield "DeleteGroups", session.call(m.DeleteGroupsRequest(groups_names=names), 2)
    await in_groups_of(50, (commit(session, name, "w", 1) for name in names))
    world.jumped_ms += 8 * DAY_MS
    yield "expiry", idle(1300)
    assert not (await session.call(m.ListGroupsRequest(states_filter=[]), 4)).groups


@case
async def transactions(world: HoldsWorld, session: Session) -> Steps:
    await make_topic(session, "w", SIZE)
    await find_coordinator(session, 1, "t")
    await find_coordinator(session, 0, "g")
    producer = await session.call(m.InitProducerIdRequest(
        transactional_id="t", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1), 4)
    who = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    yield "AddPartitionsToTxn", session.call(m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t", v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[m.AddPartitionsToTxnRequest.Topic(
            name="w", partitions=list(range(SIZE)))]), 3)
    await session.call(m.AddOffsetsToTxnRequest(transactional_id="t", group_id="g", **who), 3)
    made = m.TxnOffsetCommitRequest.Topic
    offsets = [
        made.Partition(partition_index=index, committed_offset=1, committed_leader_epoch=-1,
                       committed_metadata="")
        for index in range(SIZE)
    ]
    yield "TxnOffsetCommit", session.call(m.TxnOffsetCommitRequest(
        transactional_id="t", group_id="g", generation_id_or_member_epoch=-1, member_id="",
        group_instance_id=None, topics=[made(name="w", partitions=offsets)], **who), 3)
    yield "DescribeTransactions", session.call(m.DescribeTransactionsRequest(
        transactional_ids=["t"]), 0)
    yield "EndTxn", session.call(m.EndTxnRequest(transactional_id="t", committed=True, **who), 3)
    answer = await session.call(m.OffsetFetchRequest(
        groups=[m.OffsetFetchRequest.Group(group_id="g", topics=None)], require_stable=True), 9)
    values = [each.committed_offset for each in answer.groups[0].topics[0].partitions]
    assert values == [1] * SIZE


@case
async def a_wide_transaction(world: HoldsWorld, session: Session) -> Steps:
    """All partitions of a transaction are in one record, which is processed in one piece. All other
    work is divided."""
    count = 3 * SIZE
    await make_topic(session, "w", count)
    await find_coordinator(session, 1, "t")
    producer = await session.call(m.InitProducerIdRequest(
        transactional_id="t", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1), 4)
    who = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    made = m.AddPartitionsToTxnRequest
    yield "AddPartitionsToTxn", session.call(made(
        v3_and_below_transactional_id="t", v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[made.Topic(name="w", partitions=list(range(count)))]), 3)
    yield "EndTxn", session.call(m.EndTxnRequest(transactional_id="t", committed=True, **who), 3)


@case
async def many_transactional_ids(world: HoldsWorld, session: Session) -> Steps:
    names = [f"t{number}" for number in range(SIZE)]
    await find_coordinator(session, 1, "t")
    await in_groups_of(50, (session.call(m.InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1,
    ), 4) for name in names))
    everything = m.ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    yield "ListTransactions", session.call(everything, 0)
    yield "with a pattern", session.call(m.ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], transactional_id_pattern="t.*"), 2)
    yield "DescribeTransactions", session.call(m.DescribeTransactionsRequest(
        transactional_ids=names), 0)
    world.jumped_ms += 8 * DAY_MS
    yield "expiry", idle(3700)
    assert not (await session.call(everything, 0)).transaction_states


@case
async def one_wide_topic(world: HoldsWorld, session: Session) -> Steps:
    await make_topic(session, "w", SIZE)
    indexes = list(range(SIZE))
    wide = [m.MetadataRequest.Topic(name="w")]
    yield "Metadata", session.call(m.MetadataRequest(topics=wide), 9)
    yield "Metadata of all", session.call(m.MetadataRequest(topics=None), 8)
    yield "DescribeTopicPartitions", session.call(m.DescribeTopicPartitionsRequest(
        topics=[m.DescribeTopicPartitionsRequest.Topic(name="w")], response_partition_limit=2000,
        cursor=None), 0)
    yield "DescribeLogDirs", session.call(m.DescribeLogDirsRequest(topics=None), 2)
    listed = m.ListOffsetsRequest.Topic
    for timestamp in (-1, -2, -3, START_MS):
        yield f"ListOffsets {timestamp}", session.call(m.ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[listed(name="w", partitions=[
                listed.Partition(partition_index=i, current_leader_epoch=-1, timestamp=timestamp)
                for i in indexes])]), 7)
    epochs = m.OffsetForLeaderEpochRequest.Topic
    yield "OffsetForLeaderEpoch", session.call(m.OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[epochs(topic="w", partitions=[
            epochs.Partition(partition=i, current_leader_epoch=-1, leader_epoch=0)
            for i in indexes])]), 3)
    deleted = m.DeleteRecordsRequest.Topic
    yield "DeleteRecords", session.call(m.DeleteRecordsRequest(
        topics=[deleted(name="w", partitions=[
            deleted.Partition(partition_index=i, offset=0) for i in indexes])],
        timeout_ms=10_000), 1)
    yield "ElectLeaders", session.call(m.ElectLeadersRequest(
        election_type=0, topic_partitions=None, timeout_ms=1000), 1)
    yield "ListPartitionReassignments", session.call(m.ListPartitionReassignmentsRequest(
        timeout_ms=1000, topics=None), 0)
    yield "DescribeProducers", session.call(m.DescribeProducersRequest(
        topics=[m.DescribeProducersRequest.Topic(name="w", partition_indexes=indexes)]), 0)
    yield "settings changed", session.call(m.IncrementalAlterConfigsRequest(resources=[
        m.IncrementalAlterConfigsRequest.Resource(resource_type=2, resource_name="w", configs=[
            m.IncrementalAlterConfigsRequest.Resource.Config(
                name="retention.ms", config_operation=0, value="60000")])],
        validate_only=False), 1)
    yield "periodic work", idle(600)
    yield "DeleteTopics", session.call(m.DeleteTopicsRequest(
        topic_names=["w"], timeout_ms=60_000), 5)


@case
async def many_topics(world: HoldsWorld, session: Session) -> Steps:
    names = [f"t{number}" for number in range(SIZE // 6)]
    made = m.CreateTopicsRequest.Topic
    yield "CreateTopics", session.call(m.CreateTopicsRequest(topics=[
        made(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in names], timeout_ms=60_000), 5)
    resource = m.DescribeConfigsRequest.Resource
    yield "DescribeConfigs", session.call(m.DescribeConfigsRequest(resources=[
        resource(resource_type=2, resource_name=name, configuration_keys=None) for name in names
    ], include_synonyms=True, include_documentation=True), 4)
    changed = m.IncrementalAlterConfigsRequest.Resource
    change = changed.Config(name="retention.ms", config_operation=0, value="1000000")
    yield "IncrementalAlterConfigs", session.call(m.IncrementalAlterConfigsRequest(resources=[
        changed(resource_type=2, resource_name=name, configs=[change]) for name in names
    ], validate_only=False), 1)
    yield "CreatePartitions", session.call(m.CreatePartitionsRequest(
        topics=[m.CreatePartitionsRequest.Topic(name="t0", count=SIZE, assignments=None)],
        timeout_ms=10_000, validate_only=False), 1)
    yield "DeleteTopics", session.call(m.DeleteTopicsRequest(
        topic_names=names, timeout_ms=60_000), 5)


@case
async def rules_and_quotas(world: HoldsWorld, session: Session) -> Steps:
    yield "CreateAcls", session.call(m.CreateAclsRequest(creations=[
        m.CreateAclsRequest.Creation(
            resource_type=2, resource_name=f"t{number}", resource_pattern_type=3,
            principal=f"User:u{number}", host="*", operation=3, permission_type=3)
        for number in range(SIZE)]), 2)
    every: dict[str, Any] = {
        "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
        "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
    }
    yield "DescribeAcls", session.call(m.DescribeAclsRequest(**every), 2)
    yield "DeleteAcls", session.call(m.DeleteAclsRequest(
        filters=[m.DeleteAclsRequest.Filter(**every)]), 2)
    entry = m.AlterClientQuotasRequest.Entry
    limit = entry.Op(key="producer_byte_rate", value=1000.0, remove=False)
    yield "AlterClientQuotas", session.call(m.AlterClientQuotasRequest(entries=[
        entry(entity=[entry.Entity(entity_type="user", entity_name=f"u{number}")], ops=[limit])
        for number in range(SIZE)], validate_only=False), 1)
    yield "DescribeClientQuotas", session.call(m.DescribeClientQuotasRequest(
        components=[], strict=False), 1)


async def produce(session: Session, topic: str, batches: Iterable[bytes]) -> None:
    made = m.ProduceRequest.TopicData
    for batch in batches:
        data = made(name=topic, partition_data=[made.PartitionData(index=0, records=batch)])
        answer = await session.call(m.ProduceRequest(
            acks=1, timeout_ms=60_000, topic_data=[data]), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer


@case
async def many_producers(world: HoldsWorld, session: Session) -> Steps:
    await make_topic(session, "w", 1)
    await produce(session, "w", (build_batch(
        [Record(timestamp=START_MS, value=b"x")], producer_id=1000 + number, producer_epoch=0,
        base_sequence=0) for number in range(SIZE)))
    yield "DescribeProducers", session.call(m.DescribeProducersRequest(
        topics=[m.DescribeProducersRequest.Topic(name="w", partition_indexes=[0])]), 0)
    world.jumped_ms += 3 * DAY_MS
    yield "expiry", idle(1200)


@case
async def times_that_no_index_knows(world: HoldsWorld, session: Session) -> Steps:
    await make_topic(session, "w", 1)
    await produce(session, "w", (build_batch(
        [Record(timestamp=START_MS - 10 * number, value=bytes(50))]) for number in range(SIZE)))
    cut = m.DeleteRecordsRequest.Topic
    await session.call(m.DeleteRecordsRequest(topics=[cut(
        name="w", partitions=[cut.Partition(partition_index=0, offset=10)])], timeout_ms=10_000), 1)
    made = m.ListOffsetsRequest.Topic
    for timestamp in (-3, START_MS - 200):
        yield f"ListOffsets {timestamp}", session.call(m.ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[made(name="w", partitions=[made.Partition(
                partition_index=0, current_leader_epoch=-1, timestamp=timestamp)])]), 7)


async def fetch(session: Session, topic: str, offset: int, committed: bool = False) -> Any:
    made = m.FetchRequest.Topic
    asked = made.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    answer = await session.call(m.FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_id=0,
        session_epoch=-1, isolation_level=int(committed), forgotten_topics_data=[],
        topics=[made(topic=topic, partitions=[asked])]), 11)
    found = answer.responses[0].partitions[0]
    assert found.error_code == 0, answer
    return found


async def abort(session: Session, topic: str, value: bytes) -> None:
    """Produce one record in a transaction, and abort the transaction."""
    await find_coordinator(session, 1, "t")
    who = await session.call(m.InitProducerIdRequest(
        transactional_id="t", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1), 4)
    ids = {"producer_id": who.producer_id, "producer_epoch": who.producer_epoch}
    await session.call(m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t", v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.producer_epoch, v3_and_below_topics=[
            m.AddPartitionsToTxnRequest.Topic(name=topic, partitions=[0])]), 3)
    made = m.ProduceRequest.TopicData
    batch = build_batch([Record(timestamp=START_MS, value=value)], base_sequence=0,
                        transactional=True, **ids)
    await session.call(m.ProduceRequest(transactional_id="t", acks=-1, timeout_ms=60_000,
        topic_data=[made(name=topic, partition_data=[made.PartitionData(index=0, records=batch)])],
    ), 9)
    await session.call(m.EndTxnRequest(transactional_id="t", committed=False, **ids), 3)


def spoil(world: HoldsWorld, suffix: str, data: Callable[[int], bytes]) -> None:
    """Close the segments of partition w-0, and overwrite their index files of one kind."""
    assert world.server is not None
    partition = world.server.broker.replicas.partition("w", 0)
    assert partition is not None
    for segment in partition.log.segments:
        segment.close()
        path = segment.path(suffix)
        if world.disk.exists(path):
            file = world.disk.open(path)
            file.pwrite(data(file.size()), 0)


@case
async def indexes_that_are_wrong(world: HoldsWorld, session: Session) -> Steps:
    """A wrong index is rebuilt from its segment. A thread does this, whatever operation notices
    that the index is wrong."""
    count, size = 600, 50_000
    await make_topic(session, "w", 1, segment_bytes=str(200 * size), retention_ms="-1")
    await abort(session, "w", b"x")
    later_ms = world.wall_ms() + 1000
    await produce(session, "w", (build_batch(
        [Record(timestamp=later_ms + number, value=bytes(size))]) for number in range(count)))
    looked = m.ListOffsetsRequest.Topic

    def look_up(timestamp: int) -> Awaitable[Any]:
        return session.call(m.ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[looked(name="w", partitions=[looked.Partition(
                partition_index=0, current_leader_epoch=-1, timestamp=timestamp)])]), 7)

    ways: dict[str, Callable[[int], bytes]] = {
        "garbage": os.urandom, "zeroed": bytes, "all ones": lambda size: b"\xff" * size,
    }
    for how, data in ways.items():
        for offset in (300, count):
            spoil(world, ".index", data)
            yield f"Fetch of {offset}, offset indexes {how}", fetch(session, "w", offset)
        spoil(world, ".timeindex", data)
        yield f"ListOffsets, time indexes {how}", look_up(later_ms + 30)
        spoil(world, ".timeindex", data)
        yield f"ListOffsets of the newest, time indexes {how}", look_up(-3)
        spoil(world, ".txnindex", data)
        yield f"committed Fetch, transaction index {how}", fetch(session, "w", 0, True)
        spoil(world, ".timeindex", data)
        yield f"retention, time indexes {how}", idle(400)
        found = await fetch(session, "w", 0, True)
        assert [each.first_offset for each in found.aborted_transactions] == [0]
        assert (await look_up(later_ms + 30)).topics[0].partitions[0].offset == 32
        assert int.from_bytes((await fetch(session, "w", 31)).records[:8], "big") == 31
    await world.stop_cleanly()
    for name, inode in world.disk.names.items():
        if "/w-0/" in name and name.endswith("index") and inode is not None:
            inode.content[:] = os.urandom(len(inode.content))
    world.begin_broker()
    await world.until(lambda: world.up, "it serves", 60)
    yield "Fetch after a stop, indexes spoilt", fetch(session, "w", count)
    yield "produce after it", produce(session, "w", [build_batch([Record(value=b"x")])])


@case
async def logs_at_rest_without_their_files(world: HoldsWorld, session: Session) -> Steps:
    """After a stop, the first operation on a log, whatever it is, finds that files are missing or
    wrong."""
    count, size = 400, 50_000
    await make_topic(session, "w", 1, segment_bytes=str(200 * size), retention_ms="-1")
    await find_coordinator(session, 0, "g")
    who = {"producer_id": 4000, "producer_epoch": 0}
    last = build_batch([Record(timestamp=START_MS, value=b"x")], base_sequence=count, **who)
    await produce(session, "w", (build_batch(
        [Record(timestamp=START_MS + number, value=bytes(size))], base_sequence=number, **who)
        for number in range(count)))
    await produce(session, "w", [last])
    made, deleted = m.DescribeProducersRequest.Topic, m.DeleteRecordsRequest.Topic
    uses: dict[str, Callable[[], Awaitable[Any]]] = {
        "Produce": lambda: produce(session, "w", [last]),
        "Fetch": lambda: fetch(session, "w", count),
        "DescribeProducers": lambda: session.call(m.DescribeProducersRequest(
            topics=[made(name="w", partition_indexes=[0])]), 0),
        "DeleteRecords": lambda: session.call(m.DeleteRecordsRequest(timeout_ms=60_000, topics=[
            deleted(name="w", partitions=[deleted.Partition(partition_index=0, offset=1)])]), 2),
    }
    ways = {
        "no snapshot": (".snapshot",), "no epochs": ("leader-epoch-checkpoint",),
        "indexes spoilt": ("index",),
    }
    for what, suffixes in ways.items():
        for use, ask in uses.items():
            await world.stop_cleanly()
            for name, inode in list(world.disk.names.items()):
                if "/w-0/" not in name or not name.endswith(suffixes) or inode is None:
                    continue
                if "index" in suffixes:
                    inode.content[:] = os.urandom(len(inode.content))
                else:
                    world.disk.names.pop(name)
                    world.disk.durable_names.pop(name)
            world.begin_broker()
            await world.until(lambda: world.up, "it serves", 60)
            yield f"{use} after a stop, {what}", ask()
            yield "produce after it", produce(session, "w", [last])
            assert world.server is not None
            partition = world.server.broker.replicas.partition("w", 0)
            assert partition is not None
            assert partition.log.log_end_offset == count + 1    # the repeated batch was recognized
            assert partition.log.epochs.entries[0][1] <= 1


@pytest.mark.parametrize("name", CASES)
def test_no_turn_of_the_loop_takes_long(name: str) -> None:
    world = HoldsWorld(1, **SETTINGS)
    long = []

    async def run() -> None:
        world.begin_broker()
        await world.until(lambda: world.up, "it serves", 60)
        async for step, work in CASES[name](world, Session(world, "client")):
            waiting = asyncio.ensure_future(work)
            with world.counted():
                await waiting
            if world.longest > HOLD_SECONDS_MAX:
                long.append(f"{step}: {world.longest * 1000:.1f} ms in {world.where()}")

    with Patches(world):
        try:
            world.run(run())
        finally:
            world.close()
    assert not long, "\n".join(long)
