"""One Fetch request of a connection.

The request is answered at once if there are enough bytes. Otherwise it waits until there are, at
most until its timeout.
"""

from typing import Any

from ottla.broker.network.promises import Held

class FetchRequest(Held):
    """A Fetch request that waits (a long poll)."""

    def moved(self, wait: Any) -> None: ...
