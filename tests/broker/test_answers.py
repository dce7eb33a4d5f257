"""Apache Kafka 4.4.0's recorded answers to thousands of requests, compared with Ottla's.

`python -m compat_tests.answers --record` writes Kafka's answers; accepted differences, with
reasons, are in compat_tests/answers/accepted.toml.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.answers.comparison import differences, read_accepted, remaining
from compat_tests.answers.running import (
    GUARDED_SETTINGS,
    OTTLA_SETTINGS,
    SETTINGS,
    recorded,
    transcript,
)
from compat_tests.answers.scenes import GUARDED, SCENES
from tests.broker.running import RunningBroker

SHOWN_MAX = 50


@pytest.mark.timeout(300)
def test_answers_are_those_of_apache_kafka_but_for_accepted_differences(tmp_path: Path) -> None:
    ottla = {}
    for name, scenes, more in (("open", SCENES, {}), ("guarded", GUARDED, GUARDED_SETTINGS)):
        settings = SETTINGS | OTTLA_SETTINGS | more
        overrides = {key.replace(".", "_"): value for key, value in settings.items()}
        with RunningBroker(tmp_path / name, **overrides) as broker:
            ottla |= transcript(broker.address, scenes)
    accepted = read_accepted()
    left = remaining(list(differences(recorded(), ottla)), accepted)
    shown = "\n".join(str(each) for each in left[:SHOWN_MAX])
    assert not left, f"{len(left)} fields differ:\n{shown}"
    unused = [each.reason for each in accepted if not each.used]
    assert not unused, f"accepted, but does not occur any more: {unused}"
    assert sum(map(len, ottla.values())) > 8000
