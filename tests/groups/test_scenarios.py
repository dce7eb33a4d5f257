"""The stories in tests/scenarios/*.txt happen as they are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.groups.story import retell

STORIES = sorted((Path(__file__).parent.parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_story_happens_as_it_is_told(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    seen = retell(text)
    if request.config.getoption("--record", default=False):
        path.write_text(seen)
    assert seen == path.read_text()
