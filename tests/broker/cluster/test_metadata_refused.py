"""While the metadata's disk is full, every API reports this for each item. The same requests
succeed once there is room."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from ottla.log.storage.storage import Storage
from ottla.replication.metadata import MetadataImage, ProducerIdsTaken
from ottla.replication.standalone import StandaloneStore
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    AlterUserScramCredentialsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
)
from tests.broker.running import RunningBroker, WireClient
from tests.fakes import FakeClock
from tests.log.faulty_disk import FaultyDisk

FULL = int(ErrorCode.KAFKA_STORAGE_ERROR)
Quota, Scram = AlterClientQuotasRequest.Entry, AlterUserScramCredentialsRequest


def topics(*names: str) -> CreateTopicsRequest:
    made = [
        CreateTopicsRequest.Topic(name=name, num_partitions=1, replication_factor=1)
        for name in names
    ]
    return CreateTopicsRequest(topics=made, timeout_ms=10_000)


def requests() -> list[tuple[Any, int, str]]:
    """A request of each API without a top-level error code, its version, and the answer's field
    that has the items."""
    configs, more = AlterConfigsRequest.Resource, IncrementalAlterConfigsRequest.Resource
    return [
        (topics("a", "b"), 5, "topics"),
        (DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5, "responses"),
        (
            CreatePartitionsRequest(
                topics=[CreatePartitionsRequest.Topic(name="t", count=3, assignments=None)],
                timeout_ms=10_000,
            ), 1, "results",
        ),
        (
            AlterConfigsRequest(resources=[configs(
                resource_type=2, resource_name="t",
                configs=[configs.Config(name="flush.ms", value="7")],
            )]), 1, "responses",
        ),
        (
            IncrementalAlterConfigsRequest(resources=[more(
                resource_type=2, resource_name="t",
                configs=[more.Config(name="flush.ms", config_operation=0, value="8")],
            )]), 1, "responses",
        ),
        (
            AlterClientQuotasRequest(entries=[Quota(
                entity=[Quota.Entity(entity_type="user", entity_name="u")],
                ops=[Quota.Op(key="producer_byte_rate", value=5.0)],
            )]), 1, "entries",
        ),
        (
            Scram(deletions=[], upsertions=[Scram.Upsertion(
                name="u", mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
            )]), 0, "results",
        ),
    ]  # fmt: skip


def test_every_item_is_told_and_the_same_request_succeeds_once_there_is_room() -> None:
    disk = FaultyDisk()
    with RunningBroker(Path("/a"), disk) as broker, WireClient(broker.address) as client:
        assert client.call(topics("t"), 5).topics[0].error_code == 0
        # The request that deletes the topic is last, because the others need the topic.
        asked = sorted(requests(), key=lambda each: isinstance(each[0], DeleteTopicsRequest))
        for request, version, items in asked:
            disk.failing, disk.errors = "/a/__ottla_metadata-0", {"write": errno.ENOSPC}
            refused = getattr(client.call(request, version), items)
            assert [each.error_code for each in refused] == [FULL] * len(refused)
            assert refused
            disk.errors = {}
            taken = getattr(client.call(request, version), items)
            assert [each.error_code for each in taken] == [0] * len(refused), type(request)
        assert not broker.server.failure.done()


@pytest.mark.parametrize("version", [3, 4])
def test_a_coordinator_whose_topic_cannot_be_created_is_not_available(version: int) -> None:
    disk = FaultyDisk()
    with RunningBroker(Path("/a"), disk) as broker, WireClient(broker.address) as client:
        disk.failing, disk.errors = "/a/__ottla_metadata-0", {"write": errno.ENOSPC}
        asked = (
            FindCoordinatorRequest(key="g") if version < 4
            else FindCoordinatorRequest(coordinator_keys=["g"])
        )
        answer = client.call(asked, version)
        each = answer if version < 4 else answer.coordinators[0]
        assert each.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        disk.errors = {}
        answer = client.call(asked, version)
        assert (answer if version < 4 else answer.coordinators[0]).error_code == 0


def test_a_write_whose_thread_dies_leaves_no_flush_behind() -> None:
    storage = Storage.open(FaultyDisk(), FakeClock(), ["/a"])
    store = StandaloneStore.open(storage, storage.clock)
    records = [ProducerIdsTaken(1000)]
    write = store.begin(records, MetadataImage.empty("c").apply(records))
    assert store.log.flushing
    write.give_up(RuntimeError("can't start new thread"))
    assert not store.log.flushing
    assert store.log.offline is not None, "the record is in the log and nobody was told of it"
