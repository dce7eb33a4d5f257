"""Apache Kafka's recorded answers to every API from users with every kind of rule, compared with
Ottla's (`python -m compat_tests.answers.matrix --record`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.answers.matrix import JAAS, PLAIN_SETTINGS, USERS, matrix, recorded, unequal
from compat_tests.answers.running import GUARDED_SETTINGS, OTTLA_SETTINGS, SETTINGS
from tests.broker.running import RunningBroker


@pytest.mark.timeout(300)
def test_every_api_answers_every_user_as_apache_kafka_does(tmp_path: Path) -> None:
    settings = SETTINGS | OTTLA_SETTINGS | GUARDED_SETTINGS | PLAIN_SETTINGS | {
        "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT",
        "listener.name.inside.plain.sasl.jaas.config": JAAS,
    }  # fmt: skip
    overrides = {name: text for name, text in settings.items() if "_" not in name}
    with RunningBroker(tmp_path, **overrides) as broker:
        protected = ("127.0.0.1", broker.server.listeners[1].port)
        answers = matrix(broker.address, protected)
    left = unequal(recorded(), answers)
    assert not left, f"{len(left)} answers differ:\n" + "\n".join(left[:50])
    assert len(answers) > 100 * len(USERS)
