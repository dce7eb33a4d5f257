"""Brokers that refuse every Produce or Fetch with an error that librdkafka retries silently."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator

import pytest

from ottla.testing import Broker
from ottla.tools.command import main
from ottla.tools.stream import reader, refusals, served_input, writer
from ottla.tools.stream.refusals import Refusals
from ottla.wire.errors import ErrorCode, name_of
from tests.tools.cli.ottla_command import Ottla

ADVICE = "`ottla topic why {}` shows what is wrong with the topic"


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def disturbed(running: Broker) -> Iterator[Broker]:
    """A broker whose answers the test replaces."""
    yield running
    running.heal()


@pytest.fixture
def there(disturbed: Broker) -> Ottla:
    return Ottla(disturbed.bootstrap_servers)


class EndsTheInput(io.StringIO):
    """A stream for stderr that closes the command's input when its first line is written."""

    def __init__(self, keyboard: int) -> None:
        super().__init__()
        self.keyboard = keyboard

    def write(self, text: str) -> int:
        if not self.getvalue():
            os.close(self.keyboard)
        return super().write(text)


@pytest.mark.parametrize("command", [
    "produce {1} -b {0}", "kcat -P -b {0} -t {1}",
    "kafka-console-producer --bootstrap-server {0} --topic {1}",
])
@pytest.mark.parametrize("code", ["KAFKA_STORAGE_ERROR", "NOT_ENOUGH_REPLICAS"])
def test_a_producer_that_waits_for_input_says_that_nothing_is_acknowledged(
    disturbed: Broker, monkeypatch: pytest.MonkeyPatch, command: str, code: str
) -> None:
    topic = disturbed.create_topic(f"typed-{sum(map(ord, command))}-{code}")
    monkeypatch.setattr(writer, "STALL_SECONDS", 0.1)
    monkeypatch.setattr(writer, "CLOSE_SECONDS", 0)
    monkeypatch.setattr(served_input, "SERVE_SECONDS", 0.02)
    disturbed.fail("Produce", code, count=None)
    keys, keyboard = os.pipe()
    os.write(keyboard, b"1\n")
    with os.fdopen(keys) as standard_input, contextlib.redirect_stderr(EndsTheInput(keyboard)) as e:
        monkeypatch.setattr("sys.stdin", standard_input)
        main(command.format(disturbed.bootstrap_servers, topic).split())
    waiting, failed = e.getvalue().splitlines()
    assert waiting == f"no record was acknowledged for 0.1 s; waiting. {ADVICE.format(topic)}"
    assert "records were not acknowledged" in failed


@pytest.mark.parametrize("command", [
    "consume {1} -e", "kcat -C -b {0} -t {1} -o beginning -e",
    "kafka-console-consumer --bootstrap-server {0} --topic {1} --from-beginning --timeout-ms 800",
])
def test_a_reader_whose_fetches_are_refused_says_why(
    there: Ottla, disturbed: Broker, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    topic = disturbed.create_topic(f"refused-{sum(map(ord, command))}")
    monkeypatch.setattr(refusals, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(reader, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(reader, "SILENCE_SECONDS", 0.8)
    there.ok(f"produce {topic}", b"1\n")
    fault = disturbed.fail("Fetch", "KAFKA_STORAGE_ERROR", count=None)
    done = there(command.format(there.address, topic))
    why = f"broker 0 serves no records of {topic}-0: KAFKA_STORAGE_ERROR"
    assert f"{why}; waiting. {ADVICE.format(topic)}\n" in done.err
    assert done.err.count("waiting") == 1, "it is said once"
    if "-e" in command.split():
        assert f"has records before offset 1 that were not received: {why}" in done.err
        assert done.status == 1
    assert done.out == "" and fault.hits < 50, "neither librdkafka nor the reader asks all the time"


class Silent(Refusals):
    """The `Refusals` of a reader that asks no broker: the test supplies the answers."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, str] | None] = []
        self.asked_at: list[float] = []
        super().__init__(None)      # type: ignore[arg-type]

    def ask_until(self, now: float, then: float) -> None:
        """Call `look` twice a second, as a reader does."""
        while now < then:
            self.now = now
            self.look({("t", 0): 0}, now)
            now += 0.5

    def _first_refused(self, positions: object) -> tuple[str, str] | None:
        self.asked_at.append(self.now)
        return self.answers.pop(0) if self.answers else None


def test_a_refusal_is_said_if_two_questions_find_it_and_once(
    capsys: pytest.CaptureFixture[str]
) -> None:
    silent, refused = Silent(), ("t", "broker 1 serves no records of t-0: KAFKA_STORAGE_ERROR")
    silent.begin(0.0)
    silent.answers = [refused, None]            # an election ends
    silent.ask_until(0.0, 7.0)
    assert silent.asked_at == [2.5, 5.0] and capsys.readouterr().err == ""
    silent.begin(10.0)
    silent.answers = [refused] * 4
    silent.ask_until(10.0, 20.5)
    assert silent.asked_at[2:] == [12.5, 15.0, 17.5, 20.0]
    assert capsys.readouterr().err == f"{refused[1]}; waiting. {ADVICE.format('t')}\n"
    assert silent.reason() == f": {refused[1]}"
    silent.begin(21.0)
    assert silent.reason() == ""


def test_a_reader_of_an_idle_topic_asks_less_and_less_often() -> None:
    silent = Silent()
    silent.begin(0.0)
    silent.ask_until(0.0, 300.0)
    assert silent.asked_at == [2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 140.0, 200.0, 260.0]


def test_an_unknown_error_code_has_a_name_too() -> None:
    assert name_of(ErrorCode.KAFKA_STORAGE_ERROR) == "KAFKA_STORAGE_ERROR"
    assert name_of(12345) == "error 12345"
