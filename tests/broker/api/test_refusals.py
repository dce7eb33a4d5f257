"""Bad requests of groups and transactions: each gets Kafka's code, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.broker.refusals import ROWS, Stage, refused
from tests.broker.running import RunningBroker, WireClient


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    data = tmp_path_factory.mktemp("data")
    with RunningBroker(data, group_initial_rebalance_delay_ms=0) as broker:
        with WireClient(broker.address) as client:
            yield Stage(client, "refusals")


@pytest.mark.parametrize(
    ("request_of", "version", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_a_bad_request_gets_its_code_and_changes_nothing(
    stage: Stage, request_of: Callable[[Stage], Any], version: int, expected: str
) -> None:
    assert refused(stage, request_of, version) == expected
