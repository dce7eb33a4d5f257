"""One Fetch request of a connection.

It is answered at once, when there are enough bytes, or at its timeout.
"""

from typing import Any

from ottla.broker.network.promises import Held

class FetchRequest(Held):
    """A Fetch request that waits (a long poll)."""

    def moved(self, wait: Any) -> None: ...
