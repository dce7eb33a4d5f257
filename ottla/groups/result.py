"""The effects of a state machine: records to append, replies and markers that follow, and timers.

The state machines of this folder perform no actions themselves. Each request comes with an
`Answer`, a function that sends the reply. A JoinGroup keeps its Answer until the whole group has
joined; most other requests put their reply into the result at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.groups.history.rings import Event, event

if TYPE_CHECKING:
    from ottla.wire.errors import ProtocolError

Answer = Callable[[Any], None]
"""Called exactly once, with the reply, or with a ProtocolError instead."""


RETRY_MS = 1000
"""A timer that adds records fires again after this delay: perhaps the log refused the records of
the first attempt, as on a full disk."""


class TimerKey(NamedTuple):
    """Identifies a timer; setting a timer that is set already moves it."""

    kind: str
    owner: str
    """A group's id or a transactional id; empty for a timer of the whole shard."""
    member_id: str = ""


class MarkersDue(NamedTuple):
    """The markers of a transaction, to be written once the end of the transaction is recorded."""

    transactional_id: str
    answer: Answer | None
    """Called with the error if the log refused the record of the end. Called with `reply` once all
    markers are committed or one of them could not be written. None if no client waits."""
    reply: Any


@dataclass(slots=True)
class Result:
    """One turn of a state machine: the time of the turn, and its effects in order."""

    wall_ms: int
    """Unix time, for the timestamps in records."""
    tick_ms: int
    """Monotonic milliseconds, for deadlines."""
    records: list[Any] = field(default_factory=list)
    encoded: list[Any] = field(default_factory=list)
    """The first `len(encoded)` records, encoded as the log stores them."""
    replies: list[tuple[Answer, Any]] = field(default_factory=list)
    timers: list[tuple[TimerKey, int | None]] = field(default_factory=list)
    markers: list[MarkersDue] = field(default_factory=list)
    """Only transactions have markers."""
    events: list[tuple[str, Event]] = field(default_factory=list)
    """Events, each with its group, which are kept in memory to explain the group's state
    (`history/`)."""

    after_replay: list[Callable[[ProtocolError | None], None]] = field(default_factory=list)
    """Functions that are called with None once the records are replayed, or with the error if the
    log refuses them. They change state that exists in memory only, such as members whose JoinGroup
    is pending."""

    def encode(self, encode: Callable[[Any], Any]) -> None:
        """Encode the records that are not encoded yet; if one cannot be encoded, nothing
        changes."""
        assert len(self.encoded) <= len(self.records), "an encoded record was removed"
        self.encoded += [encode(record) for record in self.records[len(self.encoded):]]

    def note(self, group_id: str, kind: str, **fields: Any) -> None:
        """Add an event of a group; it is kept once the log has accepted this turn's records (if the
        log refuses them: see `Runtime._happened`)."""
        self.events.append((group_id, event(self.wall_ms, self.tick_ms, kind, fields)))

    def reply(self, answer: Answer, reply: Any) -> None:
        """Answer a request once this turn's records are committed."""
        self.replies.append((answer, reply))

    def set_timer(self, kind: str, owner: str, member_id: str = "", *, after_ms: int) -> int:
        """Sets a timer that fires after `after_ms`; returns its deadline: monotonic time in ms."""
        at_ms = self.tick_ms + after_ms
        self.timers.append((TimerKey(kind, owner, member_id), at_ms))
        return at_ms

    def cancel_timer(self, kind: str, owner: str, member_id: str = "") -> None:
        """Cancels a timer, whether it was set or not."""
        self.timers.append((TimerKey(kind, owner, member_id), None))
