"""Compares two transcripts: which fields differ, and which differences are accepted, and why.

Error messages are compared only by their key words (`KEY_WORDS`), because scripts look for those. A
message must be present or absent as in Apache Kafka, and contain all key words of Kafka's message.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from compat_tests.answers.conversation import Entry, Transcript

ACCEPTED = Path(__file__).with_name("accepted.toml")
MESSAGES = ("error_message", "batch_index_error_message")
KEY_WORDS = re.compile(
    r"already exists|not found|does not exist|doesn't exist|unknown|not supported|unsupported"
    r"|not authori[sz]ed|not empty|timed out|in progress|not needed|too large|out of range",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Difference:
    """One field of one answer in which the brokers differ."""

    scene: str
    number: int
    api: str
    version: int
    place: str
    """The path of the field, with array indexes: `topics[0].partitions[1].offset`."""
    kafka: str
    ottla: str

    def __str__(self) -> str:
        where = f"{self.scene} #{self.number}: {self.api} v{self.version} {self.place}"
        return f"{where}: Kafka {self.kafka}, Ottla {self.ottla}"


@dataclass
class Accepted:
    """One kind of accepted difference, and why a user would accept it."""

    reason: str
    api: str = "*"
    scene: str = "*"
    place: str = "*"
    kafka: str = "*"
    ottla: str = "*"
    used: int = field(default=0, compare=False)

    def covers(self, one: Difference) -> bool:
        """Whether a difference is of this kind."""
        return all(
            fnmatchcase(getattr(one, name), getattr(self, name).replace("[", "[[]"))
            for name in ("api", "scene", "place", "kafka", "ottla")
        )


def read_accepted() -> list[Accepted]:
    """The list of accepted differences."""
    return [Accepted(**each) for each in tomllib.loads(ACCEPTED.read_text())["accepted"]]


def differences(kafka: Transcript, ottla: Transcript) -> Iterator[Difference]:
    """The differences, in the order of the requests."""
    for scene, theirs in kafka.items():
        ours = ottla[scene]
        for number, (one, other) in enumerate(zip(theirs, ours, strict=False)):
            if one.known_by != other.known_by:
                asked = f"{other.api} v{other.version} {json.dumps(other.request)[:300]}"
                yield Difference(scene, number, one.api, one.version, "request", "another", asked)
                break
            yield from of_entry(scene, number, one, other)
        if len(theirs) != len(ours):
            yield Difference(scene, min(len(theirs), len(ours)), "-", 0, "requests",
                             str(len(theirs)), str(len(ours)))


def of_entry(scene: str, number: int, kafka: Entry, ottla: Entry) -> Iterator[Difference]:
    """The differences between two answers to the same request."""
    for place, theirs, ours in _unequal(kafka.answer, ottla.answer, ""):
        if place.endswith(MESSAGES) and _says_the_same(theirs, ours):
            continue
        yield Difference(scene, number, kafka.api, kafka.version, place, _short(theirs),
                         _short(ours))


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _says_the_same(kafka: Any, ottla: Any) -> bool:
    """Whether both are messages, and ours has the key words of theirs."""
    if not (isinstance(kafka, str) and isinstance(ottla, str)) or bool(kafka) != bool(ottla):
        return False
    return words(kafka) <= words(ottla)


def words(message: str) -> set[str]:
    """The key words in a message."""
    return {each.lower() for each in KEY_WORDS.findall(message)}


def _unequal(kafka: Any, ottla: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(kafka, dict) and isinstance(ottla, dict):
        for name in kafka:
            yield from _unequal(kafka[name], ottla.get(name), f"{place}.{name}".lstrip("."))
    elif isinstance(kafka, list) and isinstance(ottla, list) and len(kafka) == len(ottla):
        for at, (one, other) in enumerate(zip(kafka, ottla, strict=True)):
            yield from _unequal(one, other, f"{place}[{at}]")
    elif isinstance(kafka, list) and isinstance(ottla, list):
        yield from _unlike(kafka, ottla, place)
    elif kafka != ottla:
        yield place, kafka, ottla


def _unlike(kafka: list[Any], ottla: list[Any], place: str) -> Iterator[tuple[str, Any, Any]]:
    """Arrays of different lengths: only elements that one of them lacks are reported."""
    theirs = Counter(json.dumps(each, sort_keys=True) for each in kafka)
    ours = Counter(json.dumps(each, sort_keys=True) for each in ottla)
    yield place, sorted((theirs - ours).elements()), sorted((ours - theirs).elements())


def remaining(found: list[Difference], accepted: list[Accepted]) -> list[Difference]:
    """Returns the differences that no entry covers. `used` of an entry counts those it covers."""
    left = []
    for one in found:
        by = next((each for each in accepted if each.covers(one)), None)
        if by is None:
            left.append(one)
        else:
            by.used += 1
    return left
