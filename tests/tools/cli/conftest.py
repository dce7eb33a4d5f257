"""A broker for each module of the commands' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.running import RunningBroker
from tests.tools.cli.ottla_command import Ottla
from tests.tools.kafka_names.stage import OVERRIDES


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("cli") / "data", **OVERRIDES) as running:
        yield running


@pytest.fixture(scope="module")
def ottla(broker: RunningBroker) -> Ottla:
    return Ottla(f"127.0.0.1:{broker.port}")
