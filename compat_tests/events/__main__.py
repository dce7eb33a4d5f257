"""`python -m compat_tests.events`: every pipeline in every event, and what came of it.

Prints one line for each, as docs/spark_promises.md has them in short; ends with 1 if something came
out wrong. An hour with all of them.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
import traceback
from pathlib import Path

from compat_tests.brokers import Broker, ClusterBroker, KafkaBroker, OttlaBroker
from compat_tests.events.happenings import HAPPENINGS, NONE
from compat_tests.events.scenes import PIPELINES, Scene
from compat_tests.spark_session import local_session

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
    settings = SETTINGS if kind == "cluster" else SETTINGS | AUTHORIZER
    overrides = [f"{name}={value}" for name, value in settings.items()]
    if kind == "cluster":
        return ClusterBroker(place, overrides, kills)
    return (OttlaBroker if kind == "ottla" else KafkaBroker)(place, overrides)


def outcome(scene: Scene, event: str) -> tuple[str, bool]:
    """What came of it, and whether it was wrong."""
    try:
        scene.make(scene.topic, scene.partitions)
        return HAPPENINGS[event](scene), False
    except Exception as error:
        print(traceback.format_exc(), file=sys.stderr, flush=True)
        return f"WRONG: {type(error).__name__}: {str(error)[:600]}", True


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=("ottla", "kafka", "cluster"), default="ottla")
    parser.add_argument("--kills", type=float, default=0.0, help="as in conftest.py")
    parser.add_argument("--events", nargs="*", choices=HAPPENINGS, default=list(HAPPENINGS))
    parser.add_argument("--pipelines", nargs="*", choices=PIPELINES, default=list(PIPELINES))
    options = parser.parse_args()
    wrong, numbers = 0, itertools.count()
    with tempfile.TemporaryDirectory(prefix="ottla-events-") as directory:
        broker = broker_of(options.broker, Path(directory) / "broker", options.kills)
        broker.start()
        spark = local_session("OFF")
        try:
            for event, pipeline in itertools.product(options.events, options.pipelines):
                place = Path(directory) / f"{next(numbers)}"
                place.mkdir()
                scene = Scene(spark, broker, pipeline, place, f"source-{place.name}")
                begin = time.monotonic()
                said, failed = outcome(scene, event)
                wrong += failed
                if said != NONE:
                    seconds = time.monotonic() - begin
                    print(f"{event} | {pipeline} | {said} ({seconds:.0f} s)", flush=True)
        finally:
            spark.stop()
            broker.stop()
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
