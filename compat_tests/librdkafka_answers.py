"""Repeats calls of librdkafka's clients during elections, because librdkafka gives up too soon."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from compat_tests.waiting import SECONDS_MAX

ELECTION = {
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TRANSPORT,
}  # fmt: skip
"""Errors during an election. librdkafka repeats a request three times within about 300 ms, and then
returns these errors to the caller."""
Answer = TypeVar("Answer")


def answer_of(ask: Callable[[], Answer]) -> Answer:
    """Return what `ask` returns. Calls `ask` again after errors in ELECTION, up to a deadline."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in ELECTION or time.monotonic() > deadline:
                raise
        time.sleep(0.1)
