"""The scenarios of groups and transactions in tests/scenarios have the recorded outcomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.groups import story
from tests.groups.transactions import story as transaction_story

SCENARIOS = Path(__file__).parent.parent / "scenarios"
STORIES = sorted(SCENARIOS.glob("*.txt")) + sorted(SCENARIOS.glob("transactions/*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_story_happens_as_written(path: Path, request: pytest.FixtureRequest) -> None:
    teller = story if path.parent == SCENARIOS else transaction_story
    text = path.read_text()
    seen = teller.retell(text)
    if request.config.getoption("--record", default=False):
        path.write_text(seen)
    assert seen == path.read_text()
