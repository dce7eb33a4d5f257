"""`python -m compat_tests.answers` sends the same requests to Apache Kafka and Ottla, and compares
their answers.

    --record        also record Kafka's answers for tests/broker/test_answers.py; with --scene, the
                    recorded answers of other scenes stay
    --seed N        which pairs of fields get borderline values together; the default is 1, and
                    --record requires it
    --scene NAME    only this scene; may be repeated
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from compat_tests.answers.comparison import (
    Accepted,
    Difference,
    differences,
    read_accepted,
    remaining,
)
from compat_tests.answers.conversation import Transcript
from compat_tests.answers.running import (
    GUARDED_SETTINGS,
    KAFKA_SETTINGS,
    OTTLA_SETTINGS,
    SEED,
    SETTINGS,
    Scene,
    record,
    recorded,
    transcript,
)
from compat_tests.answers.scenes import GUARDED, SCENES
from compat_tests.brokers import Broker, KafkaBroker, OttlaBroker

PATIENCE_SECONDS = 0.03
SHOWN_MAX = 200


def told_by(
    broker: Broker, scenes: dict[str, Scene], seed: int, patience: float, only: list[str]
) -> Transcript:
    """Start a broker, play the scenes with it, and kill it; returns the transcript."""
    broker.start()
    try:
        host, _, port = broker.bootstrap.rpartition(":")
        return transcript((host, int(port)), scenes, seed, patience, only)
    finally:
        broker.kill()


def lines(*settings: dict[str, str]) -> list[str]:
    """Settings as lines of a broker's configuration."""
    return [f"{name}={value}" for each in settings for name, value in each.items()]


def both(seed: int, only: list[str]) -> tuple[Transcript, Transcript]:
    """Returns the transcripts of Kafka and of Ottla, each without and then with an authorizer."""
    kafka: Transcript = {}
    ottla: Transcript = {}
    for scenes, more in ((SCENES, {}), (GUARDED, GUARDED_SETTINGS)):
        if only and not set(only) & set(scenes):
            continue
        with tempfile.TemporaryDirectory(prefix="ottla-answers-") as directory:
            theirs = KafkaBroker(Path(directory) / "kafka", lines(SETTINGS, KAFKA_SETTINGS, more))
            kafka |= told_by(theirs, scenes, seed, PATIENCE_SECONDS, only)
            ours = OttlaBroker(Path(directory) / "ottla", lines(SETTINGS, OTTLA_SETTINGS, more))
            ottla |= told_by(ours, scenes, seed, 0.0, only)
    return kafka, ottla


def report(left: list[Difference], accepted: Iterable[Accepted], stale: bool) -> int:
    """Print the unaccepted differences, and how many differences each accepted entry covers. With
    `stale`, an entry that covers none is an error. Returns the number of errors."""
    for one in left[:SHOWN_MAX]:
        print(one)
    for each in accepted:
        if each.used or stale:
            print(f"{each.used:6} accepted: {each.reason}")
    unused = [each for each in accepted if not each.used] if stale else []
    for each in unused:
        print(f"does not occur any more: {each.reason}")
    return len(left) + len(unused)


def main() -> int:
    """Compare both brokers. The exit status is 0 if all differences are accepted and, without
    --scene, every accepted difference still occurs."""
    parser = argparse.ArgumentParser(prog="compat_tests.answers")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--scene", action="append", default=[], choices=[*SCENES, *GUARDED])
    options = parser.parse_args()
    if options.record and options.seed != SEED:
        parser.error(f"--record requires --seed {SEED}")
    start = time.monotonic()
    kafka, ottla = both(options.seed, options.scene)
    if options.record:
        record({**recorded(), **kafka} if options.scene else kafka)
    accepted = read_accepted()
    found = list(differences(kafka, ottla))
    left = remaining(found, accepted)
    wrong = report(left, accepted, stale=not options.scene)
    asked = Counter(each.api for entries in ottla.values() for each in entries)
    print(
        f"{asked.total()} requests of {len(asked)} kinds, {len(found)} fields differ, "
        f"{len(found) - len(left)} of them accepted; {time.monotonic() - start:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
