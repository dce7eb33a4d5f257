"""`python -m compat_tests.events`: runs every pipeline in every event, and prints the outcomes.

Each pipeline in each event gets a line; docs/spark_promises.md has a summary of these lines. The
exit status is 1 if an outcome is wrong. All events with all pipelines take an hour.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compat_tests.brokers import Broker, ClusterBroker, KafkaBroker, OttlaBroker
from compat_tests.events.happenings import ALONE, AWAY, HAPPENINGS, NONE, broker_away
from compat_tests.events.scenes import PIPELINES, Scene
from compat_tests.spark_session import local_session

EVENTS = [*HAPPENINGS, AWAY]
AT_ONCE = 3     # scenes that run in parallel, because each spends most of its time waiting
SETTINGS = {
    "log.retention.check.interval.ms": "500", "log.cleaner.backoff.ms": "500",
    "log.segment.delete.delay.ms": "500", "group.initial.rebalance.delay.ms": "0",
}  # fmt: skip
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def broker_of(kind: str, place: Path, kills: float) -> Broker:
    """The broker under test."""
    overrides = [f"{name}={value}" for name, value in (SETTINGS | AUTHORIZER).items()]
    if kind == "cluster":
        return ClusterBroker(place, overrides, kills)
    return (OttlaBroker if kind == "ottla" else KafkaBroker)(place, overrides)


def outcome(scene: Scene, event: str) -> str:
    """Make an event happen in a scene; return the outcome, "WRONG: …" after an exception."""
    begin = time.monotonic()
    try:
        scene.begin()
        said = HAPPENINGS[event](scene)
    except Exception as error:
        print(f"{event}, {scene.pipeline}: {traceback.format_exc()}", file=sys.stderr, flush=True)
        said = f"WRONG: {type(error).__name__}: {str(error)[:600]}"
    return said if said == NONE else f"{said} ({time.monotonic() - begin:.0f} s)"


def outcomes(scenes: list[Scene], event: str) -> Iterator[str]:
    """The event's outcome in each scene. Scenes run in parallel unless they would disturb each
    other."""
    if event == AWAY:
        yield from broker_away(scenes)
    else:
        with ThreadPoolExecutor(1 if event in ALONE else AT_ONCE) as pool:
            yield from pool.map(outcome, scenes, itertools.repeat(event))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=("ottla", "kafka", "cluster"), default="ottla")
    parser.add_argument("--kills", type=float, default=0.0, help="as in conftest.py")
    parser.add_argument("--events", nargs="*", choices=EVENTS, default=EVENTS)
    parser.add_argument("--pipelines", nargs="*", choices=PIPELINES, default=list(PIPELINES))
    options = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="ottla-events-") as directory:
        broker = broker_of(options.broker, Path(directory) / "broker", options.kills)
        broker.start()
        spark = local_session("OFF")
        try:
            for number, event in enumerate(options.events):
                scenes = [Scene(spark, broker, pipeline, Path(directory) / f"{number}-{n}",
                                f"source-{number}-{n}")
                          for n, pipeline in enumerate(options.pipelines)]  # fmt: skip
                for scene, said in zip(scenes, outcomes(scenes, event), strict=True):
                    wrong += said.startswith("WRONG")
                    if said != NONE:
                        print(f"{event} | {scene.pipeline} | {said}", flush=True)
        finally:
            spark.stop()
            broker.stop()
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
