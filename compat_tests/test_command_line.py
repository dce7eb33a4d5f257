"""`ottla consume | ottla produce` and `ottla mirror` copy each flight once, byte for byte."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from compat_tests import readers
from compat_tests.brokers import Broker, OttlaBroker
from compat_tests.flights import LoadedTopic, same_lines

Flights = Callable[[str], LoadedTopic]
KILLS = 4


def ottla(bootstrap: str, *words: str) -> str:
    """The output of a command that must succeed."""
    command = [str(Path(sys.executable).with_name("ottla")), *words]
    environment = os.environ | {"OTTLA_BOOTSTRAP_SERVERS": bootstrap}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_consume_prints_produce_sends_byte_for_byte(
    broker: Broker, flights: Flights, new_topic: Callable[..., str]
) -> None:
    loaded = flights("zstd")
    copy = new_topic("flights-copy", partitions=6)
    program = Path(sys.executable).with_name("ottla")
    line = (
        f"{program} consume {loaded.name} --exit --output jsonl | "
        f"{program} produce {copy} --input jsonl --compression lz4"
    )
    environment = os.environ | {"OTTLA_BOOTSTRAP_SERVERS": broker.bootstrap}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    same_lines(readers.read_with_confluent_kafka(broker.bootstrap, copy), loaded.lines())


def test_a_mirror_that_is_killed_copies_every_flight_once(
    broker: Broker, flights: Flights, tmp_path: Path
) -> None:
    loaded = flights("zstd")
    ottla(broker.bootstrap, "consume", loaded.name, "--group", "pilots", "--count", "50000",
          "--offset", "beginning")  # fmt: skip
    target = OttlaBroker(tmp_path / "target")
    target.start()
    command = [
        str(Path(sys.executable).with_name("ottla")), "mirror", "--from", broker.bootstrap, "--to",
        target.bootstrap, "--topics", loaded.name, "--groups", "pilots", "--report", "1",
    ]  # fmt: skip
    try:
        for kill in range(KILLS):
            process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            assert process.stderr is not None
            process.stderr.readline()  # `--report 1` prints a line each second
            time.sleep(0.13 * kill)    # so that kills happen at different points of a transaction
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            process.stderr.close()
        done = subprocess.run([*command, "--once"], capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr.splitlines()[-1].endswith("lag 0"), done.stderr
        same_lines(readers.read_with_confluent_kafka(target.bootstrap, loaded.name), loaded.lines())
        here, there = (
            {row["partition"]: row["offset"]
             for row in json.loads(ottla(one, "group", "describe", "pilots", "-o", "json"))}
            for one in (broker.bootstrap, target.bootstrap)
        )  # fmt: skip
        assert here == there and sum(here.values()) == 50_000
        more = ottla(target.bootstrap, "consume", loaded.name, "--group", "pilots", "--count", "1",
                     "--format", "%p %o")  # fmt: skip
        partition, offset = map(int, more.split())
        assert offset == here.get(partition, 0)
    finally:
        target.stop()
