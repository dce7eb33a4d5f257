"""The response entries of topics that a client may not use.

As in Apache Kafka, they follow the entries of the allowed topics.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def refused_topics(made: Any, topics: Iterable[Any], code: int) -> list[Any]:
    """An entry of class `made` for each topic, with this error for each of its partitions."""
    return [_refused_topic(made, topic, code) for topic in topics]


def _refused_topic(made: Any, topic: Any, code: int) -> Any:
    indexes = getattr(topic, "partition_indexes", None)
    if indexes is None:
        indexes = [each.partition_index for each in topic.partitions]
    answer = made(
        partitions=[made.Partition(partition_index=index, error_code=code) for index in indexes]
    )
    for name in ("name", "topic_id"):
        if hasattr(topic, name) and hasattr(answer, name):
            setattr(answer, name, getattr(topic, name))
    return answer
