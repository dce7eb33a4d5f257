"""What a broker remembers of transactions besides their log: which groups were seen waiting for an
open transaction, and which clients initialised the transactional ids (InitProducerId)."""

from __future__ import annotations

from typing import NamedTuple

from ottla.groups.history.rings import TEXT_CHARS_MAX, cut

HELD_MAX, PRODUCING_MAX = 10_000, 10_000
RELEASED_MS = 60_000


class HeldBack:
    """When each group was last seen waiting for an open transaction in a partition. This explains a
    lag shortly after the transaction has ended: the group needs a moment to read on."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, int], int] = {}

    def note(self, key: tuple[str, str, int], tick_ms: int) -> None:
        """A group waits for an open transaction; `key` is (group id, topic, partition index)."""
        self._seen.pop(key, None)
        self._seen[key] = tick_ms
        if len(self._seen) > HELD_MAX:
            del self._seen[next(iter(self._seen))]

    def ago(self, key: tuple[str, str, int], tick_ms: int) -> int | None:
        """How many ms ago a group was last seen waiting; None if never or over RELEASED_MS ago."""
        seen = self._seen.get(key)
        return None if seen is None or tick_ms - seen > RELEASED_MS else tick_ms - seen


class Producing(NamedTuple):
    """The last client that initialised a transactional id."""

    user: str
    client: str | None
    host: str


class TransactionalClients:
    """The clients that initialised the transactional ids which this broker coordinates. Clients of
    very long ids are not remembered, and long names are cut, so that the memory is bounded."""

    def __init__(self) -> None:
        self._clients: dict[str, Producing] = {}

    def note(self, transactional_id: str, client: Producing) -> None:
        """A client has initialised the transactional id."""
        if len(transactional_id) > TEXT_CHARS_MAX:
            return
        self._clients.pop(transactional_id, None)
        self._clients[transactional_id] = Producing(*map(cut, client))
        if len(self._clients) > PRODUCING_MAX:
            del self._clients[next(iter(self._clients))]

    def of(self, transactional_id: str) -> Producing | None:
        """The client; None if it is not known, for example because this broker has restarted
        since."""
        return self._clients.get(transactional_id)
