"""kafkajs's admin client creates a topic, and its producer writes records."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from compat_tests import readers
from compat_tests.brokers import Broker
from compat_tests.requirements import built, program

SCRIPT = Path(__file__).with_name("node") / "roundtrip.js"


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_what_kafkajs_writes_is_read_back(broker: Broker, codec: str) -> None:
    topic = f"kafkajs-{codec}-{os.getpid()}"
    environment = os.environ | {"NODE_PATH": str(built("node/node_modules"))}
    command = [program("node"), str(SCRIPT), broker.bootstrap, topic, codec, "1000"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["partitions"] == 2
    assert {int(s["partition"]): s["errorCode"] for s in facts["sent"]} == {0: 0, 1: 0}
    assert {o["partition"]: o["high"] for o in facts["offsets"]} == {0: "500", 1: "500"}
    read = readers.read_with_kcat(broker.bootstrap, topic)
    for partition in (0, 1):
        values = [line.rpartition(b"\t")[2] for line in read[partition]]
        assert values == [b"value-%d" % i for i in range(partition, 1_000, 2)]
