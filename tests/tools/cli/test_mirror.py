"""A mirror may be killed at any time: it copies each record once, in order, and groups continue."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.tools.cli.mirror import Mirror
from ottla.tools.stream.mirror_progress import Progress
from tests.broker.running import RunningBroker
from tests.documents import ROOT
from tests.tools.cli.ottla_command import Ottla, mirroring
from tests.tools.kafka_names.stage import OVERRIDES

RECORDS = 12_000


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ottla]:
    with RunningBroker(tmp_path_factory.mktemp("target") / "data", **OVERRIDES) as running:
        yield Ottla(f"127.0.0.1:{running.port}")


def contents(ottla: Ottla, topic: str) -> dict[int, list[tuple[object, ...]]]:
    """Returns the records of each partition, with their offsets."""
    found: dict[int, list[tuple[object, ...]]] = {}
    for line in ottla.ok(["consume", topic, "-e", "--output", "jsonl"]).splitlines():
        one = json.loads(line)
        found.setdefault(one["partition"], []).append(
            (one["offset"], one["timestamp"], one["key"], one["value"], str(one["headers"]))
        )
    return found


def test_a_killed_mirror_loses_nothing_and_repeats_nothing(
    ottla: Ottla, target: Ottla
) -> None:
    flights, pilots = "flights", "pilots"
    ottla.ok(f"topic create {flights} --partitions 3 --config cleanup.policy=compact")
    lines = "".join(
        json.dumps({"key": f"k{number}", "value": f"v{number}", "headers": [["n", str(number)]],
                    "timestamp": 1_700_000_000_000 + number}) + "\n"
        for number in range(RECORDS)
    )  # fmt: skip
    ottla.ok(f"config set topic/{flights} cleanup.policy=delete")
    ottla.ok(f"produce {flights} -i jsonl", lines.encode())
    ottla.ok(f"consume {flights} -G {pilots} -n 1000 -o beginning")
    chosen = ["--topics", flights]
    for _ in range(3):  # killed as soon as it reports further copied records
        process = mirroring(ottla, target, *chosen)
        assert process.stderr is not None
        assert process.stderr.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()
    process = mirroring(ottla, target, *chosen, "--groups", pilots, "--once")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "lag 0" in said.splitlines()[-1]
    assert contents(target, flights) == contents(ottla, flights)
    assert json.loads(target.ok(f"config show topic/{flights} -o json"))[0]["value"] == "delete"
    there = json.loads(target.ok(f"group describe {pilots} -o json"))
    here = json.loads(ottla.ok(f"group describe {pilots} -o json"))
    assert [(row["partition"], row["offset"]) for row in there] == [
        (row["partition"], row["offset"]) for row in here
    ]


def test_a_cluster_is_not_copied_into_itself(ottla: Ottla) -> None:
    ottla.ok("topic create self")
    done = ottla(["mirror", "--from", ottla.address, "--to", ottla.address, "--once"])
    assert done.status == 1 and "--prefix" in done.err
    done = ottla(["mirror", "--from", ottla.address, "--to", ottla.address, "--once", "--topics",
                  "self", "--prefix", "copy.", "--dry-run"])  # fmt: skip
    assert done.status == 0 and "self to copy.self" in done.err


def test_kafkas_flags_mirror_too(ottla: Ottla, target: Ottla, tmp_path: Path) -> None:
    ottla.ok("topic create old --partitions 1")
    ottla.ok("produce old", b"1\n2\n")
    (tmp_path / "from").write_text(f"bootstrap.servers={ottla.address}\n")
    (tmp_path / "to").write_text(f"bootstrap.servers={target.address}\n")
    words = ["kafka-mirror-maker", "--consumer.config", str(tmp_path / "from"),
             "--producer.config", str(tmp_path / "to"), "--include", "old", "--once"]  # fmt: skip
    ottla.ok(words)
    assert target.ok("consume old -e").split() == ["1", "2"]
    (tmp_path / "mm2").write_text(
        f"clusters=a,b\na.bootstrap.servers={ottla.address}\nb.bootstrap.servers={target.address}\n"
        "a->b.enabled=true\na->b.topics=old\na->b.groups=none\n"
    )
    ottla.ok(["kafka-mirror-maker", str(tmp_path / "mm2"), "--once"])
    assert target.ok("consume a.old -e").split() == ["1", "2"]


@pytest.mark.parametrize(("lines", "copied"), [
    ("a->b.topics=mm-one, mm-two", {"mm-one", "mm-two"}),
    ("topics=mm-one\na->b.enabled=True", {"mm-one"}),
    ("topics=mm-.*\ntopics.exclude=mm-two, .*-three", {"mm-one"}),
    ("topics=mm-.*\na->b.topics.exclude=mm-one\ntopics.exclude=mm-two", {"mm-two", "mm-three"}),
    ("topics=mm-.*\ntopics.blacklist=mm-t.*", {"mm-one"}),
    ("topics=mm-.*\ntopics.exclude=", {"mm-one", "mm-two", "mm-three"}),
])  # fmt: skip
def test_a_property_file_of_mirrormaker_2_chooses_and_excludes_topics(
    ottla: Ottla, target: Ottla, tmp_path: Path, lines: str, copied: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = ottla.ok("topic list -o name").split()
    for topic in {"mm-one", "mm-two", "mm-three"}.difference(known):
        ottla.ok(f"topic create {topic}")
    (tmp_path / "mm2").write_text(
        f"clusters=a,b\na.bootstrap.servers={ottla.address}\nb.bootstrap.servers={target.address}\n"
        f"a->b.enabled=true\n{lines}\n"
    )
    chosen: set[str] = set()
    monkeypatch.setattr(Mirror, "make", lambda _, name, count: chosen.add(name))
    monkeypatch.setattr(Mirror, "copy", lambda _: None)
    ottla.ok(["kafka-mirror-maker", str(tmp_path / "mm2"), "--once"])
    assert chosen == copied


def test_offsets_translate_across_gaps() -> None:
    progress = Progress(("t", 0), 0, 0)
    for target, source in enumerate([0, 1, 5, 6, 9]):
        progress.passed(source, target)
    translated = [progress.translate(offset) for offset in (0, 2, 5, 6, 8, 9, 10)]
    assert translated == [0, 2, 2, 3, 4, 4, 5]
    assert progress.translate(11) is None, "not copied yet"
    again = Progress.restored(("t", 0), progress.source, progress.metadata())
    assert again is not None and again.runs == progress.runs and again.target == 5
    assert Progress.restored(("t", 0), 3, "somebody else's") is None


def test_what_was_copied_is_not_copied_back(ottla: Ottla, target: Ottla) -> None:
    """Otherwise two mirrors in opposite directions would copy every record for ever."""
    there = f"mirror --from {ottla.address} --to {target.address} --once --topics 'circle|back'"
    back = f"mirror --from {target.address} --to {ottla.address} --once --topics 'circle|back'"
    ottla.ok("topic create circle --partitions 1")
    ottla.ok("produce circle", b"1\n2\n")
    ottla.ok(there)
    refused = target(back)
    assert refused.status == 1 and "circle is skipped" in refused.err
    target.ok("topic create back --partitions 1")
    target.ok("produce back", b"3\n")
    for _ in range(2):
        target.ok(back)
        ottla.ok(there)
    for one in (ottla, target):
        assert one.ok("consume circle -e") == "1\n2\n" and one.ok("consume back -e") == "3\n"


def test_what_it_must_not_be_used_for_is_said_by_help_and_pages(ottla: Ottla) -> None:
    told = [
        ottla.ok("mirror --help"),
        (ROOT / "docs" / "commands.md").read_text().partition("### ottla mirror")[2],
        (ROOT / "docs" / "from_kafka.md").read_text(),
    ]
    for text in told:
        warning = text.partition("Do not use it")[2][:1500]
        for case in ("compacted", "source or", "another writer", "offsets.retention.minutes",
                     "far behind", "MirrorMaker 2"):
            assert case in warning, (case, warning)
    assert "ottla mirror --help" in ottla("kafka-mirror-maker --help").out
