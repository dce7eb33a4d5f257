"""One Fetch request of a connection: answered at once, or when enough has moved, or in time."""

from typing import Any

from ottla.broker.network.promises import Held

class FetchRequest(Held):
    """A long poll."""

    def moved(self, wait: Any) -> None: ...
