"""Ottla's answers to every API, for users with every kind of ACL, are compared with Apache Kafka's
answers, which `python -m compat_tests.answers.matrix --record` has recorded. Answers reveal no
hidden resource."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.answers.conversation import prepare
from compat_tests.answers.generated import Generator, Named, naming_apis
from compat_tests.answers.matrix import (
    ASKED,
    JAAS,
    PLAIN_SETTINGS,
    USERS,
    MatrixTalk,
    make_groups,
    matrix,
    recorded,
    unequal,
)
from compat_tests.answers.normal import normal
from compat_tests.answers.running import GUARDED_SETTINGS, OTTLA_SETTINGS, SETTINGS
from compat_tests.answers.variants import message
from ottla.broker import api
from ottla.broker.dispatch import HANDLERS
from ottla.wire.apis import APIS, BETWEEN_BROKERS
from tests.broker.running import RunningBroker
from tests.broker.security.guarded import GROUP, TOPIC, TRANSACTION

HIDDEN = {Named.TOPIC: TOPIC, Named.GROUP: GROUP, Named.TRANSACTION: TRANSACTION}
ABSENT = {Named.TOPIC: "a", Named.GROUP: "a", Named.TRANSACTION: "a"}
"""Names of things that do not exist. They are as long as the hidden names."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    settings = SETTINGS | OTTLA_SETTINGS | GUARDED_SETTINGS | PLAIN_SETTINGS | {
        "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT",
        "listener.name.inside.plain.sasl.jaas.config": JAAS,
    }  # fmt: skip
    overrides = {name: text for name, text in settings.items() if "_" not in name}
    with RunningBroker(tmp_path, **overrides) as running:
        yield running


def protected(broker: RunningBroker) -> tuple[str, int]:
    return ("127.0.0.1", broker.server.listeners[1].port)


@pytest.mark.timeout(300)
def test_every_api_answers_every_user_as_apache_kafka_does(broker: RunningBroker) -> None:
    answers = matrix(broker.address, protected(broker))
    left = unequal(recorded(), answers)
    record = "of an API that is new here: python -m compat_tests.answers.matrix --record"
    assert not left, f"{len(left)} answers differ ({record}):\n" + "\n".join(left[:50])
    assert len(answers) > 200 * len(USERS)


def test_every_api_that_names_something_is_in_the_matrix() -> None:
    api.load()
    missing = set(naming_apis()) & HANDLERS.keys() - BETWEEN_BROKERS - ASKED
    assert not missing, "add a request and the rights that it needs to QUESTIONS in guarded.py"


def test_what_one_may_not_see_is_answered_like_what_does_not_exist(broker: RunningBroker) -> None:
    """Whole answers, with their messages, are compared in every version that has topic names.
    Versions with topic ids are left out: nobody can guess an id, so a client that sends one already
    knows of the topic."""
    prepare(broker.address)
    talk = MatrixTalk(broker.address, "hidden", 1, protected=protected(broker))
    try:
        make_groups(talk)
        client, compared = talk.connection_of("nobody"), 0
        for key in naming_apis():
            if key not in ASKED:
                continue
            for version in APIS[key].versions:
                said = []
                for own in (HIDDEN, ABSENT):
                    body = Generator(own, {}).body(key, version)
                    if any("topic_id" in each for each in elements(body)):
                        break
                    answer = client.call(message(APIS[key].name, version, body), version)
                    said.append(without_names(normal(answer, version, talk.names), own))
                if said:
                    assert said[0] == said[1], f"{APIS[key].name} v{version}"
                    compared += 1
        assert compared > 150
    finally:
        talk.close()


def elements(body: Any) -> Iterator[dict[str, Any]]:
    """The structs in a body, at any depth, that have no topic name."""
    if isinstance(body, dict):
        if not {"name", "topic"} & body.keys():
            yield body
        for value in body.values():
            yield from elements(value)
    elif isinstance(body, list):
        for value in body:
            yield from elements(value)


def without_names(answer: Any, own: dict[Named, str]) -> str:
    """An answer as text, without the requested names and with sorted lists, so that answers about
    different names can be compared."""
    if isinstance(answer, dict):
        made = {name: without_names(value, own) for name, value in answer.items()}
        return json.dumps(made, sort_keys=True)
    if isinstance(answer, list):
        return json.dumps(sorted(without_names(each, own) for each in answer))
    text = str(answer)
    for name in own.values():
        text = "<own>" if text == name else text.replace(f"'{name}'", "<own>")
    return text
