"""The target of a mirror keeps records as long as the source, and with their timestamps."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from ottla.client.cluster import ClusterClient
from ottla.client.errors import Refused
from ottla.testing import Broker
from ottla.tools.admin import configs
from ottla.tools.cli.mirror_topics import kept_shorter
from ottla.wire.errors import ErrorCode
from tests.tools.cli.ottla_command import Ottla

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def here() -> Iterator[Ottla]:
    with Broker(settings={"log.retention.ms": "-1"}) as broker:
        yield Ottla(broker.bootstrap_servers)


@pytest.fixture(scope="module")
def there() -> Iterator[Ottla]:
    with Broker() as broker:
        yield Ottla(broker.bootstrap_servers)


def mirrored(here: Ottla, there: Ottla, topic: str) -> str:
    """Copies a topic; returns what the mirror reported."""
    done = here(["mirror", "--from", here.address, "--to", there.address, "--topics", topic,
                 "--once"])  # fmt: skip
    assert done.status == 0, done
    return done.err


def own(ottla: Ottla, topic: str) -> dict[str, str]:
    rows = json.loads(ottla.ok(f"config show topic/{topic} -o json"))
    return {row["name"]: row["value"] for row in rows
            if row["source"] == "DYNAMIC_TOPIC_CONFIG"}  # fmt: skip


def test_a_copy_keeps_records_as_long_as_the_sources_brokers_do(
    here: Ottla, there: Ottla
) -> None:
    here.ok("topic create old -p 1 -c max.message.bytes=2000")
    assert mirrored(here, there, "old") == "old: 0 records copied, lag 0\n"
    assert own(there, "old") == {"retention.ms": "-1", "max.message.bytes": "2000"}


def test_a_copy_has_the_timestamps_of_its_source(here: Ottla, there: Ottla) -> None:
    at_ms = int(time.time() * 1000) - 30 * DAY_MS
    here.ok("topic create stamped aged -p 1")
    line = json.dumps({"value": "v", "timestamp": at_ms}).encode()
    for topic in ("stamped", "aged"):
        here.ok(f"produce {topic} -i jsonl", line)
    here.ok("config set topic/stamped message.timestamp.type=LogAppendTime")
    here.ok("config set topic/aged message.timestamp.before.max.ms=1d")
    for topic in ("stamped", "aged"):
        assert "1 record copied, lag 0" in mirrored(here, there, topic)
        assert there.ok(["consume", topic, "-e", "-f", "%T"]) == str(at_ms)
        assert own(there, topic) == {"retention.ms": "-1"}


@pytest.mark.parametrize(("source", "target", "wanted"), [
    ("", "", ["retention.ms=-1"]),
    ("retention.ms=9d", "retention.ms=10d", []),
    ("retention.ms=9d", "retention.ms=8d", ["retention.ms=777600000"]),
    ("retention.ms=1d", "", []),
    ("retention.ms=1d", "retention.bytes=9", ["retention.bytes=-1"]),
    ("cleanup.policy=compact", "cleanup.policy=compact", []),
    ("", "cleanup.policy=compact", ["cleanup.policy=delete", "retention.ms=-1"]),
])
def test_a_topic_of_the_target_that_keeps_less_is_reported_with_the_command_that_changes_it(
    here: Ottla, there: Ottla, source: str, target: str, wanted: list[str]
) -> None:
    topic = re.sub("[^a-z0-9]", "-", f"less-{source}-{target}")
    here.ok(f"topic create {topic}{f' -c {source}' if source else ''}")
    there.ok(f"topic create {topic}{f' -c {target}' if target else ''}")
    *warned, report = mirrored(here, there, topic).splitlines()
    assert report == f"{topic}: 0 records copied, lag 0" and len(warned) == len(wanted)
    for line, setting in zip(warned, wanted, strict=True):
        assert line.startswith(
            f"ottla mirror: the target may delete records of {topic} that the source keeps: there,"
            f" {setting.partition('=')[0]} is ")
        command = f"ottla config set topic/{topic} {setting} -b {there.address}"
        assert line.endswith(f"To keep them, run: {command}")
        here.ok(command.removeprefix("ottla "))
    assert len(mirrored(here, there, topic).splitlines()) == 1


def test_hidden_settings_are_not_compared(
    here: Ottla, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    monkeypatch.setattr(configs, "describe_many", refuses)
    with ClusterClient(here.address) as cluster:
        assert not [*kept_shorter(cluster, cluster, "old", "old")]
