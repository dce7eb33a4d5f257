"""Shards are loaded one after the other while clients are served. They are loaded again once a
failed log works."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ottla.broker.coordination import log_coordinator
from ottla.replication.controller.topics import (
    NewTopic,
    TopicDefaults,
    create_topics,
    delete_topics,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    DeleteTopicsRequest,
    HeartbeatRequest,
    ListGroupsRequest,
    OffsetFetchRequest,
)
from ottla.wire.records import Record, build_batch
from tests.broker.groups import commit_request, find, topic_id
from tests.broker.running import RunningBroker, WireClient, pass_time
from tests.broker.topics import create
from tests.log.faulty_disk import FaultyDisk
from tests.waiting import until

GROUP = "g"


def fetched(client: WireClient) -> Any:
    return client.call(OffsetFetchRequest(group_id=GROUP, topics=None), 5)


def lose_an_append(broker: RunningBroker) -> None:
    """Do what the runtime does after an append that is not committed."""
    groups = broker.server.coordinators.groups

    def lose() -> None:
        partition = groups.runtime.partition_of(GROUP)
        groups.runtime.unload(partition)
        groups.reload(partition)

    broker.call(lose)


def with_a_commit(broker: RunningBroker, client: WireClient) -> None:
    create(client, "t")
    find(client, GROUP, 6)
    commit(client)


def commit(client: WireClient, group: str = GROUP) -> None:
    request = commit_request("t", topic_id(client, "t"), group, 5)
    request.topics[0].partitions[0].partition_index = 0
    answer = client.call(request, 5)
    assert answer.topics[0].partitions[0].error_code == 0


def test_a_lost_append_has_the_groups_read_again(data: Path) -> None:
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        with_a_commit(broker, client)
        lose_an_append(broker)
        while (answer := fetched(client)).error_code != 0:
            assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert answer.topics[0].partitions[0].committed_offset == 7


def test_nothing_is_answered_from_records_that_are_not_committed(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next leader may lack these records, and would give another answer."""
    held: list[Any] = []
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        with_a_commit(broker, client)
        with monkeypatch.context() as patch:
            patch.setattr(log_coordinator, "when_committed", lambda _, then: held.append(then))
            lose_an_append(broker)
            until(lambda: held, "the log is read")
            assert fetched(client).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        broker.call(held[0], None)
        until(lambda: not fetched(client).error_code, "everything is committed")
        assert fetched(client).topics[0].partitions[0].committed_offset == 7


async def make_again(broker: RunningBroker, name: str, partitions: int) -> None:
    """Delete a topic and create it, in one change of the image."""
    metadata = broker.server.metadata_log
    await asyncio.gather(
        metadata.decide(delete_topics, [(name, bytes(16))]),
        metadata.decide(
            create_topics, [NewTopic(name, partitions, 1)], TopicDefaults(),
            lambda: b"again" * 3 + b"!",
        ),
    )


def test_offsets_of_a_topic_that_was_made_again_at_once_are_removed(data: Path) -> None:
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        with_a_commit(broker, client)
        offsets = broker.server.coordinators.groups.runtime.shard(GROUP).offsets
        assert broker.call(offsets.has_any, GROUP)
        broker.run(make_again(broker, "t", 1))
        assert not broker.call(offsets.has_any, GROUP), "there are tombstones"


def test_a_topic_that_was_made_again_at_once_has_nothing_of_its_predecessor(data: Path) -> None:
    """The new topic begins with the same leader epoch."""
    name = "__consumer_offsets"
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        with_a_commit(broker, client)
        before = topic_id(client, name)
        broker.run(make_again(broker, name, 50))
        assert topic_id(client, name) != before
        until(lambda: not fetched(client).error_code, "the new topic is read")
        assert fetched(client).topics == [], "nothing that a restart takes back"
        commit(client)
        assert fetched(client).topics[0].partitions[0].committed_offset == 7


def test_nothing_is_read_again_once_the_broker_stops(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        with_a_commit(broker, client)
        coordinator = broker.server.coordinators.groups
        broker.call(coordinator.close)
        lose_an_append(broker)
        assert all(task.done() for task in broker.call(lambda: [*coordinator.loads.values()]))
    assert not [each for each in caplog.records if each.name == "ottla.groups"]


@pytest.mark.parametrize("failure", [errno.EIO, errno.EMFILE])
def test_a_log_that_cannot_be_read_is_tried_again(
    failure: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk()
    with RunningBroker(Path("/a"), disk) as broker, WireClient(broker.address) as client:
        with_a_commit(broker, client)
        index = broker.server.coordinators.groups.runtime.partition_of(GROUP)
        disk.failing, disk.errors = f"/a/__consumer_offsets-{index}/", {"read": failure}
        lose_an_append(broker)
        until(lambda: "tries again every 5 s" in caplog.text, "the log could not be read")
        for _ in range(3):
            assert fetched(client).error_code in (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR,
            )
            pass_time(broker, log_coordinator.RELOAD_SECONDS)
        disk.errors = {}
        pass_time(broker, log_coordinator.RELOAD_SECONDS)
        answer = until(
            lambda: (now := fetched(client)).error_code == 0 and now, "the group is loaded again")
        assert answer.topics[0].partitions[0].committed_offset == 7
    assert caplog.text.count("could not be read") == 1, "one line, however often it fails"


def test_a_load_that_ends_unexpectedly_is_tried_again(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read, ended = log_coordinator.LogCoordinator.read_log, list[None]()

    async def fails_once(coordinator: Any, partition: Any, shard: Any) -> None:
        if not ended:
            ended.append(None)
            raise EOFError("cut while it was read")
        await read(coordinator, partition, shard)

    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        with_a_commit(broker, client)
        with mock.patch.object(log_coordinator.LogCoordinator, "read_log", fails_once):
            lose_an_append(broker)
            until(lambda: "tries again every 5 s" in caplog.text, "the load has failed")
            pass_time(broker, log_coordinator.RELOAD_SECONDS)
            answer = until(
                lambda: (now := fetched(client)).error_code == 0 and now, "the group is loaded")
        assert answer.topics[0].partitions[0].committed_offset == 7


def test_a_log_whose_last_batches_are_gone_is_not_taken_for_a_shorter_one(
    caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk()
    with RunningBroker(Path("/a"), disk) as broker, WireClient(broker.address) as client:
        with_a_commit(broker, client)
        index = broker.server.coordinators.groups.runtime.partition_of(GROUP)
        disk.open(f"/a/__consumer_offsets-{index}/{0:020d}.log").truncate(0)
        lose_an_append(broker)
        until(lambda: "its file was truncated" in caplog.text, "the load finds it")
        answer = fetched(client)
        assert answer.error_code in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR,
        ), "not that there is no offset"


def test_records_that_nobody_can_read_are_not_read_for_ever(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Kafka, the broker then does not coordinate their groups, and lists the others."""
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        with_a_commit(broker, client)
        index = broker.server.coordinators.groups.runtime.partition_of(GROUP)
        [log] = [
            each.log for each in broker.server.replicas.by_name["__consumer_offsets"]
            if each.index == index
        ]
        cut_off = build_batch([Record(timestamp=1, key=b"\0", value=b"a key of one byte")])
        broker.call(log.append_bytes, cut_off, 0)
        lose_an_append(broker)
        until(lambda: "cannot be read, so this broker" in caplog.text, "the load has ended")
        for _ in range(5):
            assert fetched(client).error_code == ErrorCode.NOT_COORDINATOR
            pass_time(broker, log_coordinator.RELOAD_SECONDS)
        beat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m")
        assert client.call(beat, 3).error_code == ErrorCode.NOT_COORDINATOR
        runtime = broker.server.coordinators.groups.runtime
        other = next(name for name in map(str, range(100)) if runtime.partition_of(name) != index)
        commit(client, other)
        listed = client.call(ListGroupsRequest(), 5)
        assert (listed.error_code, [one.group_id for one in listed.groups]) == (0, [other])
    assert caplog.text.count("cannot be read") == 1


def test_a_start_opens_its_doors_first_and_reads_one_shard_after_the_other(data: Path) -> None:
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        with_a_commit(broker, client)
    read = log_coordinator.LogCoordinator.read_log
    begun: list[bool] = []
    reading: list[object] = []

    async def noted(coordinator: Any, partition: Any, shard: Any) -> None:
        listening = coordinator.view.image.brokers
        begun.append(bool(listening) and not reading)
        reading.append(shard)
        await coordinator.loop.run_in_executor(None, lambda: None)  # other loads may begin now
        await read(coordinator, partition, shard)
        reading.remove(shard)

    with (
        mock.patch.object(log_coordinator.LogCoordinator, "read_log", noted),
        RunningBroker(data) as broker,
        WireClient(broker.address) as client,
    ):
        until(lambda: fetched(client).error_code == 0, "the group is loaded again")
        while len(begun) < 50:
            fetched(client)
        assert begun == [True] * 50


def test_a_crash_right_after_a_topics_deletion_leaves_no_offset_to_one_of_the_same_name() -> None:
    disk, data = FaultyDisk(), Path("/a")

    def offsets_of(client: WireClient) -> list[list[int]]:
        """The offsets in two answers: to a request for all topics, and to a request for `t`."""
        asked = OffsetFetchRequest.Topic(name="t", partition_indexes=[0])
        found = [fetched(client)]
        found.append(client.call(OffsetFetchRequest(group_id=GROUP, topics=[asked]), 5))
        return [[p.committed_offset for t in each.topics for p in t.partitions] for each in found]

    with RunningBroker(data, disk) as broker, WireClient(broker.address) as client:
        with_a_commit(broker, client)
        assert offsets_of(client) == [[7], [7]]
        # The deletion is recorded, but the tombstones are not, because there is no room for them.
        disk.failing, disk.errors = "/a/__consumer_offsets-", {"write": errno.ENOSPC}
        answer = client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
        assert answer.responses[0].error_code == 0
        shard = broker.server.coordinators.groups.runtime.shard(GROUP)
        assert broker.call(shard.offsets.has_any, GROUP), "there is no tombstone"
        assert offsets_of(client) == [[], [-1]]
        create(client, "t")
        assert offsets_of(client) == [[], [-1]]
    disk.errors = {}
    with RunningBroker(data, disk) as broker, WireClient(broker.address) as client:
        until(lambda: not fetched(client).error_code, "the group is loaded again")
        assert offsets_of(client) == [[], [-1]]
        request = commit_request("t", topic_id(client, "t"), GROUP, 5)
        request.topics[0].partitions[0].partition_index = 0
        request.topics[0].partitions[0].committed_offset = 3
        assert client.call(request, 5).topics[0].partitions[0].error_code == 0
        assert offsets_of(client) == [[3], [3]]
