"""One broker for the tests of a file; after each test a well-behaved client must be served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.wire.messages import CreateTopicsRequest
from tests.broker.running import RunningBroker, WireClient


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[WireClient]:
    with WireClient(broker.address) as connected:
        yield connected


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    """A new topic with two partitions, named after the test."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]
    with WireClient(broker.address) as admin:
        made = admin.call(
            CreateTopicsRequest(
                topics=[
                    CreateTopicsRequest.Topic(name=name, num_partitions=2, replication_factor=1)
                ],
                timeout_ms=10_000,
            ),
            version=5,
        )
    assert made.topics[0].error_code == 0, made
    return name


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"
