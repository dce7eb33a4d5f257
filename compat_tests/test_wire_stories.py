"""Plays the scenarios of `tests/scenarios/wire`, recorded from Apache Kafka, on any broker.

    pytest compat_tests/test_wire_stories.py --broker kafka                    # do they still hold?
    pytest compat_tests/test_wire_stories.py --broker kafka --record-stories   # write what happens
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.brokers import Broker
from tests.broker.running import WireClient
from tests.broker.wire_story import FILES, Step, WireStory, scenarios

PATIENCE_SECONDS = 30.0
"""Apache Kafka deletes a group's offsets of a deleted topic a little after the topic."""
RECORDING_SECONDS = 0.3


@pytest.fixture
def client(broker: Broker) -> Iterator[WireClient]:
    host, _, port = broker.bootstrap.rpartition(":")
    with WireClient((host, int(port))) as connected:
        yield connected


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_stories_happen_as_they_are_told(
    client: WireClient, path: Path, request: pytest.FixtureRequest
) -> None:
    records = request.config.getoption("--record-stories")
    lines, wrong = [], []
    for number, (title, steps) in enumerate(scenarios(path)):
        story = WireStory(client, f"{path.stem}-{number}-{os.getpid()}")
        lines.append(f"# {title}")
        for step in steps:
            found = told(story, step, records)
            note = "" if step.here in (step.kafka, found) else f"  | here {step.here}"
            lines.append(f"{step.request:<34} ----  {found}{note}")
            if found not in step[1:]:
                wrong.append(f"{title}: {step.request}: {found}, the story says {step.kafka}")
        lines.append("")
    if records:
        path.write_text("\n".join(lines))
    else:
        assert not wrong, "\n".join(wrong)


def told(story: WireStory, step: Step, records: bool) -> str:
    """Play a step, and return its outcome. Unless outcomes are recorded, a step that changes
    nothing is repeated until its outcome is an expected one, for at most PATIENCE_SECONDS."""
    only_looks = step.request.split()[0] in ("fetch", "groups", "show")
    if only_looks and records:
        time.sleep(RECORDING_SECONDS)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = story.play(step.request)
        if records or not only_looks or found in step[1:] or time.monotonic() > deadline:
            return found
        time.sleep(0.05)
