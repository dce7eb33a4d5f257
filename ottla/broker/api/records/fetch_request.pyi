"""One Fetch request of a connection: answered at once, with enough bytes, or at its timeout."""

from typing import Any

from ottla.broker.network.promises import Held

class FetchRequest(Held):
    """A Fetch request that waits (a long poll)."""

    def moved(self, wait: Any) -> None: ...
