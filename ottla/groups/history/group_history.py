"""The events of the groups that this broker coordinates, and how long their rebalances take.

The state machines add events to their `Result`; `groups/runtime` adds them here once the log has
accepted the records of the same turn (if the log refuses the records: see `Runtime._happened`).
Three kinds of events measure a rebalance.

    rebalance_began     a classic group collects its members, or a KIP-848 group assigns anew
    gathered            all members of a classic group have joined, or the wait for them has ended
    rebalanced          the assignment of a classic group is recorded, or all members of a KIP-848
                        group have reached their targets
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.groups.history.rings import LISTED_MAX, Event, Rings
from ottla.groups.history.setters import Setters

BEGAN, GATHERED, REBALANCED, EMPTIED = "rebalance_began", "gathered", "rebalanced", "emptied"
ENDS = (REBALANCED, EMPTIED)
NOT_RECORDED = "not_recorded"
OFFSETS_SET = "offsets_set"


class Rebalance(NamedTuple):
    """A rebalance that is under way."""

    began: Event
    reason: Event | None
    """The group's last event before the rebalance."""
    gathered: Event | None = None


class GroupHistory:
    """The newest events of each group, and the rebalances that are under way."""

    def __init__(self, rings: Rings[str] | None = None) -> None:
        self.rings: Rings[str] = Rings() if rings is None else rings
        self.rebalances: dict[str, Rebalance] = {}
        self.setters = Setters()

    def note(self, group_id: str, of: Event) -> None:
        """Keep an event of a group."""
        if of.kind == BEGAN:
            self._begin(group_id, of)
            return
        if of.kind == GATHERED:
            if (open_ := self.rebalances.get(group_id)) is not None:
                self.rebalances[group_id] = open_._replace(gathered=of)
            return
        if of.kind in ENDS:
            of = self._end(group_id, of)
        self.rings.add(group_id, of)

    def note_set(self, group_id: str, of: Event) -> bool:
        """Keep an OFFSETS_SET event: a client that is not a member has set offsets. If the event is
        not news (`Setters` decides), it is merged into the client's previous event.

        Returns whether to log the event: True if it is news, or if the previous event does not list
        all its topics. If the previous event's list was shortened, an event that is not news is not
        logged. The field `back` is the number of records by which offsets were set back.
        """
        topics, back = {*of.fields["topics"]}, of.fields["back"]
        who = [of.fields[name] for name in ("user", "client", "host")]
        is_news = self.setters.is_news((group_id, *who, bool(back)), bool(back), of.tick_ms)
        if is_news:
            self.rings.add(group_id, of, alone=bool(back))
            return True
        old = next((
            each for each in reversed(self.rings.of(group_id))
            if each.kind == OFFSETS_SET and bool(each.fields["back"]) == bool(back)
            and [each.fields[name] for name in ("user", "client", "host")] == who), None)
        if old is None:
            return False            # newer events have displaced the previous event
        known = {*old.fields["topics"]}
        self.rings.repeat(group_id, old, of.at_ms, {
            **old.fields, "topics": tuple(sorted(known | topics)),
            "back": back and old.fields["back"] + back,
        })
        return len(known) <= LISTED_MAX and not topics <= known

    def _begin(self, group_id: str, began: Event) -> None:
        if group_id in self.rebalances:
            return                      # another member joins or leaves during the rebalance
        if len(self.rebalances) > 2 * len(self.rings):
            self.rebalances = {key: of for key, of in self.rebalances.items() if key in self.rings}
        self.rebalances[group_id] = Rebalance(began, self.rings.last(group_id))

    def _end(self, group_id: str, of: Event) -> Event:
        open_ = self.rebalances.pop(group_id, None)
        if open_ is None:
            return of
        fields = dict(of.fields) | {"took_ms": of.tick_ms - open_.began.tick_ms}
        if open_.gathered is not None:
            fields |= open_.gathered.fields
            fields["joined_ms"] = open_.gathered.tick_ms - open_.began.tick_ms
        return of._replace(fields=fields)

    def events(self, group_id: str) -> list[Event]:
        """The events of a group, the oldest first."""
        return self.rings.of(group_id)

    def rebalance(self, group_id: str) -> Rebalance | None:
        """The rebalance that is under way."""
        return self.rebalances.get(group_id)
