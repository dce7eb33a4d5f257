"""One Produce request of a connection: what it waits for, and where its reply goes."""

from typing import Any

from ottla.broker.network.promises import Held

class ProduceRequest(Held):
    """A request between its frame and its reply."""

    def done(self, work: Any) -> None: ...
