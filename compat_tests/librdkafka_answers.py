"""Repeats calls of librdkafka's clients until an election is over; librdkafka gives up too soon."""

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
"""It asks three times, within some 300 ms, and passes these on."""
Answer = TypeVar("Answer")


def answer_of(ask: Callable[[], Answer]) -> Answer:
    """The answer to a question, which is asked again while the error is one of an election."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in ELECTION or time.monotonic() > deadline:
                raise
        time.sleep(0.1)
