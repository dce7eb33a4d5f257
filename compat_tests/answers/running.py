"""Plays the scenes with one broker, and stores Apache Kafka's answers in a file."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

from compat_tests.answers.comparison import MESSAGES, words
from compat_tests.answers.conversation import Entry, Talk, Transcript, prepare

SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""Settings of both brokers, so that they differ as little as possible."""
KAFKA_SETTINGS = {"quorum.append.linger.ms": "0"}
OTTLA_SETTINGS = {
    "node.id": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
}
GUARDED_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SEED = 1
RECORDED = Path(__file__).with_name("kafka-4.4.0.json.xz")

Scene = Callable[[Talk], None]


def transcript(
    address: tuple[str, int],
    scenes: dict[str, Scene],
    seed: int = SEED,
    patience: float = 0.0,
    only: Container[str] = (),
) -> Transcript:
    """Play scenes with a broker, all of them or those in `only`; returns the transcript."""
    prepare(address)
    told: Transcript = {}
    for name, scene in scenes.items():
        if only and name not in only:
            continue
        talk = Talk(address, name, seed, patience)
        try:
            scene(talk)
        except Exception as error:
            last = str(talk.entries[-1] if talk.entries else None)
            raise RuntimeError(f"scene {name} broke off after {last[:1000]}") from error
        finally:
            talk.close()
        told[name] = talk.entries
    return told


def record(kafka: Transcript) -> None:
    """Store Kafka's answers, for comparisons without Kafka. Messages are reduced to key words."""
    known: dict[str, int] = {}
    scenes = {}
    for name, entries in kafka.items():
        scenes[name] = [
            [each.api, each.version, each.known_by,
             known.setdefault(json.dumps(_reduced(each.answer), sort_keys=True), len(known))]
            for each in entries
        ]  # fmt: skip
    kept = json.dumps({"answers": list(known), "scenes": scenes})
    RECORDED.write_bytes(lzma.compress(kept.encode(), preset=9))


def recorded() -> Transcript:
    """The answers that `record` has stored; requests are identified by their digests only."""
    kept = json.loads(lzma.decompress(RECORDED.read_bytes()))
    answers = [json.loads(each) for each in kept["answers"]]
    return {
        name: [Entry(api, version, None, answers[at], digest) for api, version, digest, at in told]
        for name, told in kept["scenes"].items()
    }


def _reduced(answer: Any) -> Any:
    if isinstance(answer, list):
        return [_reduced(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    return {
        name: ", ".join(["text", *sorted(words(value))])
        if name in MESSAGES and isinstance(value, str) and value
        else _reduced(value)
        for name, value in answer.items()
    }
