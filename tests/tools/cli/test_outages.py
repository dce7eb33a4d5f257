"""A command that sends or reads reports once that its broker is gone, and again when the command
ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from ottla.testing import Broker
from ottla.tools.admin.offsets import EARLIEST
from ottla.tools.cli.bootstrap import connect
from ottla.tools.cli.consume import reading
from ottla.tools.stream.outages import QUIET_SECONDS, Outages
from tests.broker.running import RunningBroker
from tests.tools.cli.ottla_command import Ottla

LOST = "cannot reach a broker at {}: connection refused; waiting\n"
ATTEMPT = "h:1/4: Connect to ipv4#1.2.3.4:1 failed: Connection refused (after 0ms in state CONNECT)"
TRANSPORT, RESOLVE, ALL_BROKERS_DOWN = -195, -193, -187     # librdkafka's local errors
ALL_DOWN = KafkaError(ALL_BROKERS_DOWN, "2/2 brokers are down")
REFUSED = KafkaError(TRANSPORT, ATTEMPT)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    broker = RunningBroker(tmp_path)
    yield broker
    if broker.thread.is_alive():        # the test did not stop it
        broker.stop()


def started(words: str, address: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ottla.tools.command", *words.split()], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"OTTLA_BOOTSTRAP_SERVERS": address, "HOME": "/nonexistent"},
    )  # fmt: skip


def test_an_outage_is_told_once_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    outages = Outages("h:1,h:2", lambda: now)
    outages.note(REFUSED)               # one of several brokers: the others serve
    assert capsys.readouterr().err == "" == outages.reason()
    for _ in range(3):                  # librdkafka says it again every 10 s
        outages.note(ALL_DOWN)
        outages.note(REFUSED)
        now += QUIET_SECONDS - 1
    assert capsys.readouterr().err == LOST.format("h:1,h:2")
    assert outages.reason() == "cannot reach a broker at h:1,h:2: connection refused"
    now += 1
    assert outages.reason() == ""
    outages.note(REFUSED)
    assert capsys.readouterr().err == ""
    outages.note(ALL_DOWN)
    outages.note(KafkaError(
        RESOLVE, "h:1/bootstrap: Failed to resolve 'h:1': Name or service not known"
        " (after 7ms in state CONNECT)"))
    assert capsys.readouterr().err == (
        "cannot reach a broker at h:1,h:2: failed to resolve 'h:1': Name or service not known;"
        " waiting\n")


@pytest.mark.parametrize(("terminal", "printed"), [
    (True, "no broker\\x1b; trying again for up to 5 s (--timeout), because the broker may be"
           " starting\n"),
    (False, ""),
])
def test_a_command_on_a_terminal_says_that_it_waits_for_its_first_broker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool,
    printed: str,
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    waiting = connect(Namespace(bootstrap_server="h:1", command_config="", timeout=None)).waiting
    if waiting is not None:
        waiting("no broker\x1b")
    assert capsys.readouterr().err == printed


def test_a_producer_says_what_it_waits_for_and_what_was_not_acknowledged(
    broker: RunningBroker
) -> None:
    address = f"127.0.0.1:{broker.port}"
    ottla = Ottla(address)
    ottla.ok("topic create letters --partitions 1")
    with started("produce letters", address) as sender:
        assert sender.stdin is not None and sender.stderr is not None
        try:
            sender.stdin.write("one\n")
            sender.stdin.flush()
            assert ottla.ok("consume letters -n 1") == "one\n"
            broker.stop()
            sender.stdin.write("two\n")
            sender.stdin.flush()
            assert sender.stderr.readline() == LOST.format(address)
            sender.send_signal(signal.SIGINT)
            assert sender.stderr.readline() == (
                "waiting up to 60 s for the broker to acknowledge 1 record;"
                " to give up, press Ctrl-C again\n")
            sender.send_signal(signal.SIGINT)
            assert sender.stderr.read() == "1 record sent, 1 not acknowledged\n"
            assert sender.wait(60) == 130
        finally:
            sender.kill()


def test_a_producer_that_gives_up_names_address_reason_and_numbers(
    broker: RunningBroker
) -> None:
    address = f"127.0.0.1:{broker.port}"
    ottla = Ottla(address)
    ottla.ok("topic create letters --partitions 1")
    with started("produce letters -X delivery.timeout.ms=2000", address) as sender:
        assert sender.stdin is not None and sender.stderr is not None
        try:
            sender.stdin.write("one\n")
            sender.stdin.flush()
            assert ottla.ok("consume letters -n 1") == "one\n"
            broker.stop()
            sender.stdin.write("x\n" * 1234)
            sender.stdin.close()
            assert sender.stderr.read() == (
                LOST.format(address) + "ottla produce: records were not acknowledged: "
                f"cannot reach a broker at {address}: connection refused; topic letters: "
                "_MSG_TIMED_OUT: Local: Message timed out"
                " (1 record sent, 1,234 not acknowledged)\n")
            assert sender.wait(60) == 1
        finally:
            sender.kill()


def test_a_refused_record_is_reported_although_the_input_has_not_ended(
    broker: RunningBroker
) -> None:
    address = f"127.0.0.1:{broker.port}"
    ottla = Ottla(address)
    ottla.ok("topic create small --partitions 1 -c max.message.bytes=1000")
    with started("produce small", address) as sender:
        assert sender.stdin is not None and sender.stderr is not None
        try:
            sender.stdin.write("x" * 5000 + "\n")
            sender.stdin.flush()
            assert sender.stderr.readline() == (
                "a record was not acknowledged: topic small: MESSAGE_TOO_LARGE: Message size too"
                " large; the limit is the topic's max.message.bytes: ottla config show"
                " topic/small. Later records are still sent\n")
            sender.stdin.write("later\n")
            sender.stdin.close()
            assert sender.stderr.read().endswith(" (1 record sent, 1 not acknowledged)\n")
            assert sender.wait(60) == 1
        finally:
            sender.kill()
    assert ottla.ok("consume small --exit") == "later\n"


@pytest.mark.parametrize("offset", ["1", "-1", "@0"])
def test_a_reader_whose_records_are_deleted_goes_on_at_the_first_one_that_is_left(
    broker: RunningBroker, offset: str
) -> None:
    address = f"127.0.0.1:{broker.port}"
    Ottla(address).ok("topic create letters --partitions 1")
    options = Namespace(topic=["letters"], group=None, partition=None, offset=offset, exit=False,
                        bootstrap_server=address, command_config="", timeout=None)
    with connect(options) as cluster:
        assert reading(options, cluster, committed=True).start == EARLIEST


@pytest.mark.parametrize("more", ["", " --group me"])
def test_a_reader_says_once_that_its_broker_is_gone(broker: RunningBroker, more: str) -> None:
    address = f"127.0.0.1:{broker.port}"
    ottla = Ottla(address)
    ottla.ok("topic create letters --partitions 1")
    ottla.ok("produce letters", b"one\n")
    with started(f"consume letters{more}", address) as reader:
        assert reader.stdout is not None and reader.stderr is not None
        try:
            assert reader.stdout.readline() == "one\n"
            broker.stop()
            assert reader.stderr.readline() == LOST.format(address)
        finally:
            reader.kill()


@pytest.mark.parametrize(("more", "step"), [
    ("", "; the change may still be made: see ottla cluster check, and look before you repeat the"
     " command"), (" --dry-run", ""),
])
def test_timeout_limits_how_long_a_change_waits_for_a_silent_controller(
    more: str, step: str
) -> None:
    with Broker() as broker:
        at = broker.bootstrap_servers
        broker.delay("CreateTopics", 60)
        done = Ottla(at)(f"topic create t --timeout 1{more}")
    assert done.status == 1
    assert done.err == (
        f"ottla topic create: {at}: no answer within 1 s to CreateTopics{step}\n")
