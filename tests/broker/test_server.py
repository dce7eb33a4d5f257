"""Starts that are refused, and what a start keeps."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ottla.log.log_directory import StorageRefused
from ottla.wire.messages import CreateTopicsRequest
from tests.broker.produce_fetch import batch, produce
from tests.broker.running import RunningBroker, WireClient


def test_records_without_their_metadata_refuse_a_start(data: Path) -> None:
    with RunningBroker(data, auto_create_topics_enable=True) as broker:
        with WireClient(broker.address) as client:
            create(client, "kept")
            assert produce(client, "kept", batch(b"v")).error_code == 0
    shutil.rmtree(data / "__ottla_metadata-0")
    with pytest.raises(StorageRefused, match="kept-0"):
        RunningBroker(data)
    assert (data / "kept-0").exists()


def create(client: WireClient, name: str) -> None:
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=1, replication_factor=1)
    made = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
    assert made.topics[0].error_code == 0
