"""One Fetch request of a connection.

The request is answered at once if the reply is due, for example because there are enough bytes.
Otherwise it waits until the reply is due, at most until its timeout.
"""

from typing import Any

from ottla.broker.network.promises import Held

class FetchRequest(Held):
    """A Fetch request that waits (a long poll)."""

    def moved(self, wait: Any) -> None: ...
