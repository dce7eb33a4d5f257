"""One broker for the tests of a file that changes no settings of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.running import RunningBroker
from tests.tools.cli.ottla_command import Ottla
from tests.tools.kafka_names.stage import OVERRIDES


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ottla]:
    with RunningBroker(tmp_path_factory.mktemp("one") / "data", **OVERRIDES) as running:
        yield Ottla(f"127.0.0.1:{running.port}")
