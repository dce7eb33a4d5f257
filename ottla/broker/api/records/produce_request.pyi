"""One Produce request of a connection: what it waits for, and the destination of its reply."""

from typing import Any

from ottla.broker.network.promises import Held

class ProduceRequest(Held):
    """A request from its frame to its reply."""

    def done(self, work: Any) -> None: ...
