"""Scenes of `ottla log`. Status 0 means that all was read. A new run completes a killed import."""

from __future__ import annotations

import shutil
from pathlib import Path

from compat_tests.tool_chaos.seed import PROCESS, Seed
from compat_tests.tool_chaos.world import EACH, SOURCE
from tests.tools.kafka_directory import content, write_kafka
from tests.tools.logs import open_log, some

ENDINGS = (*PROCESS[:3], "close the reader", "nothing")


def dump(seed: Seed) -> None:
    """With status 0, a dump has all records of a partition that a broker has open, even if the
    broker is killed meanwhile."""
    place = seed.world.logs() / f"{SOURCE}-{seed.chance.randrange(3)}"
    segments = ",".join(sorted(str(path) for path in place.glob("*.log")))
    words = ["log", "dump", "--print-data-log", "--files", segments]
    if seed.chance.random() < 0.3:
        words = ["kafka-dump-log", *words[2:]]
    outcome = seed.run(words, seed.event((*ENDINGS, "kill a broker"), EACH * 100))
    if outcome.status == 0 and not words[0].startswith("kafka"):
        found = sum(line.startswith(b"| offset") for line in outcome.lines)
        assert found == EACH, f"status 0 with {found} records of {EACH}"


def verify(seed: Seed) -> None:
    """With status 0, `log verify` reports no error, while a broker runs and after it was killed."""
    node = seed.world.nodes[0]
    online = seed.chance.random() < 0.5
    words = ["log", "verify", str(seed.world.logs()), *(["--online"] if online else [])]
    if not online:
        seed.world.kill(node)
    try:
        outcome = seed.run(words, seed.event(ENDINGS))
    finally:
        if not online:
            seed.world.start([node])
            seed.world.until_in_sync()
    if outcome.status == 0:
        assert b" 0 errors" in outcome.out, outcome.out[-500:]


def adopt(seed: Seed) -> None:
    """The next import completes an import that was killed, and the source stays unchanged."""
    kafka, ours = seed.folder / "kafka", seed.folder / "ours"
    write_kafka(kafka)
    log = open_log(kafka, "t-1")
    for _ in range(seed.chance.choice((1, 200))):
        log.append_bytes(some(seed.chance.randbytes(20_000)), 4)
    log.roll()
    log.close()
    before = content(kafka)
    words = ["log", "import", str(kafka), "--data-dir", str(ours)]
    how = seed.chance.choice(([], ["--link"]))
    for _ in range(2):
        outcome = seed.run([*words, *how], seed.event(PROCESS[:3]))
        if outcome.status == 0:
            break
    seed.run([*words, *how])
    assert content(kafka) == before, "the source was changed"
    checked = seed.run(["log", "verify", str(ours)])
    assert checked.status == 0, checked
    assert logs_of(ours) == {name: data for name, data in logs_of(kafka).items()
                             if not name.startswith(("__cluster", "gone"))}
    shutil.rmtree(ours)
    shutil.rmtree(kafka)


def logs_of(place: Path) -> dict[str, bytes]:
    """The bytes of all segments of each partition, except Ottla's metadata."""
    return {
        at.name: b"".join(each.read_bytes() for each in sorted(at.glob("*.log")))
        for at in sorted(place.iterdir()) if at.is_dir() and not at.name.startswith("__ottla")
    }
