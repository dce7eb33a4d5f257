"""Prints one line on stderr when a librdkafka client has lost all brokers, and retries.

librdkafka reports every failed attempt, several times a second. Every 10 s, it also reports that no
broker is up. An outage has ended once librdkafka has reported nothing for QUIET_SECONDS.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from typing import Any

QUIET_SECONDS = 30.0
"""This is longer than librdkafka's pauses between attempts: reconnect.backoff.max.ms, 10 s."""
REASON = re.compile(r":\d+(?:/\S+)?: (?:.*failed: )?(?P<reason>.+?)(?: \(after .*)?$")
"""Finds the reason in a text such as
"host:9092/1: Connect to ipv4#… failed: Connection refused (after 0ms in state CONNECT)"."""


class Outages:
    """The outages of one client, whose `error_cb` is `note`."""

    def __init__(self, addresses: str, clock: Callable[[], float] = time.monotonic) -> None:
        import confluent_kafka

        kind = confluent_kafka.KafkaError
        self._all_down = kind._ALL_BROKERS_DOWN
        self._attempts = (kind._TRANSPORT, kind._RESOLVE, kind._SSL)
        self._addresses, self._clock = addresses, clock
        self._down, self._text, self._told_at = False, "", clock()

    def note(self, error: Any) -> None:
        """Handles an error of the client. Prints the reason of the first failed attempt after all
        brokers were lost."""
        attempt = error.code() in self._attempts
        if not attempt and error.code() != self._all_down:
            return
        self.reason()                       # forgets an outage that has ended
        self._told_at = self._clock()
        if not attempt:
            self._down = True
        elif self._down and not self._text and (found := REASON.search(error.str())):
            why = found["reason"]
            self._text = (
                f"cannot reach a broker at {self._addresses}: {why[:1].lower()}{why[1:]}")
            print(f"{self._text}; waiting", file=sys.stderr, flush=True)

    def reason(self) -> str:
        """The text about the present outage; "" if there is none."""
        if self._clock() - self._told_at >= QUIET_SECONDS:
            self._down, self._text = False, ""
        return self._text
