"""Starts that are refused, and what a start preserves."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ottla.log.log_directory import StorageRefused
from tests.broker.produce_fetch import batch, produce
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create


def test_records_without_their_metadata_refuse_a_start(data: Path) -> None:
    with RunningBroker(data, auto_create_topics_enable=True) as broker:
        with WireClient(broker.address) as client:
            create(client, "kept")
            assert produce(client, "kept", batch(b"v")).error_code == 0
    shutil.rmtree(data / "__ottla_metadata-0")
    with pytest.raises(StorageRefused, match="kept-0"):
        RunningBroker(data)
    assert (data / "kept-0").exists()


