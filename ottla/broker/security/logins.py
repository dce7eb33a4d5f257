"""The logins at one listener: how many succeeded and failed, and which of them the log names.

A busy broker has thousands of logins a minute. The first login of a user from an address is logged
at INFO, further ones at DEBUG. If there are too many first logins, only their number is logged.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict

log = logging.getLogger("ottla.authentication")

LOGGED_PER_SWEEP = 10
KNOWN_MAX = 1000
"""How many combinations of user, address and mechanism are remembered."""


class Logins:
    """The counts of one listener since its start. Used on the loop only."""

    def __init__(self, listener: str) -> None:
        self.listener = listener
        self.counts: Counter[str] = Counter()
        """The number of logins of each outcome. The keys are parts of the names of Kafka's metrics:
        `successful_authentication`, `failed_authentication`, `successful_reauthentication` and
        `failed_reauthentication`. A "reauthentication" is a later login on the same connection
        (KIP-368)."""
        self.known: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._logged = self._not_logged = 0

    def success(self, principal: str, host: str, peer: str, mechanism: str, again: bool) -> None:
        """Count a login, and log it. Only the first login of each user, address and mechanism is
        logged at INFO."""
        self._count("successful", again)
        who = principal, host, mechanism
        news = who not in self.known and not again
        self.known[who] = None
        self.known.move_to_end(who)
        if len(self.known) > KNOWN_MAX:
            self.known.popitem(last=False)
        listed = news and self._logged < LOGGED_PER_SWEEP
        self._logged += listed
        self._not_logged += news and not listed
        log.log(
            logging.INFO if listed else logging.DEBUG,
            "listener %s: %s from %s has authenticated by %s",
            self.listener, principal, peer, mechanism,
        )

    def failure(self, again: bool) -> None:
        """Count a failed login; the listener logs why it closes the connection."""
        self._count("failed", again)

    def _count(self, outcome: str, again: bool) -> None:
        self.counts[f"{outcome}_{'re' * again}authentication"] += 1

    def sweep(self) -> None:
        """Log how many first logins were not logged at INFO since the last sweep."""
        if self._not_logged:
            log.info(
                "listener %s: %d more logins are not logged one by one; each was a user's first"
                " login from an address",
                self.listener, self._not_logged,
            )
        self._logged = self._not_logged = 0
