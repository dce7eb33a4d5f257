"""The scenarios in tests/scenarios/wire, recorded from Apache Kafka, have the same outcomes
here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.running import RunningBroker, WireClient
from tests.broker.wire_story import FILES, WireStory, scenarios

STORIES = [(path.stem, title, steps) for path in FILES for title, steps in scenarios(path)]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireClient]:
    data = tmp_path_factory.mktemp("data")
    with (
        RunningBroker(data, group_initial_rebalance_delay_ms=0) as broker,
        WireClient(broker.address) as connected,
    ):
        yield connected


@pytest.mark.parametrize("number", range(len(STORIES)), ids=[title for _, title, _ in STORIES])
def test_it_happens_as_in_apache_kafka(client: WireClient, number: int) -> None:
    _, _, steps = STORIES[number]
    story = WireStory(client, str(number))
    for step in steps:
        assert story.play(step.request) == step.here, step
