"""Merges the topics that a request names more than once, as Apache Kafka does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

Part = TypeVar("Part", covariant=True)
Item = TypeVar("Item")


class NamedTopic(Protocol[Part]):
    """A topic of a request, with its partitions."""

    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> Sequence[Part]: ...


def merged_topics(topics: Iterable[NamedTopic[Item]]) -> dict[str, list[Item]]:
    """The partitions by topic: merges duplicate topics, leaves out topics without partitions."""
    merged: dict[str, list[Item]] = {}
    for topic in topics:
        if topic.partitions:
            merged.setdefault(topic.name, []).extend(topic.partitions)
    return merged
