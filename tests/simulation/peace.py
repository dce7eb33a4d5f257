"""The end of a run for a group of several members. In some runs one member leaves for good. The
other members then only join and send heartbeats. Soon the group has to be *whole*: exactly the
remaining members are in it, and own all partitions."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.wire.marks import reached
from tests.simulation.network import Broken
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.story import Story

PEACE_SECONDS = 100.0
"""Longer than any session and any rebalance."""
BEAT_SECONDS = 1.0
"""The longest pause between two heartbeats; a rebalance of a classic group waits three times as
long for a member."""
LEAVER_SHARE = 0.6
"""The share of groups in which a member leaves for good."""
TIDY_SHARE = 0.8
"""The share of groups from which requests remove dead members; in the other groups, dead members
stay until their sessions end."""


class Peace(ABC):
    """A group, and those of its members that are at rest: they only join and send heartbeats."""

    def __init__(self, story: Story, group_id: str, members: int) -> None:
        self.story, self.group_id = story, group_id
        chance = Random(f"peace {group_id} {story.world.seed}")
        self.leaver = chance.randrange(members) if chance.random() < LEAVER_SHARE else -1
        """The number of the member that leaves for good."""
        # In a cluster's run it would take too long to wait for the end of sessions.
        self.tidy = chance.random() < TIDY_SHARE or not story.coordinators_stay
        self.members: list[Any] = []
        self.at_rest: set[Any] = set()
        self.was_whole = False
        self.deadline = 0.0

    @abstractmethod
    def is_whole(self) -> bool:
        """Whether exactly the remaining members are in the group, and own all partitions."""

    def settled(self) -> bool:
        """Whether the group was whole at any moment when all of its members were at rest."""
        if not self.was_whole and self.at_rest.issuperset(self.members):
            self.was_whole = self.is_whole()
            if self.was_whole and self.leaver >= 0:
                reached("a group is whole after a member has left for good")
        return self.was_whole

    async def rest(self, member: Any, act: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Have a member join and send heartbeats, by calls of `act`, until the group was whole.
        Raises Violation if this takes longer than PEACE_SECONDS."""
        self.at_rest.add(member)
        world, wait = self.story.world, 0.1
        self.deadline = world.now + PEACE_SECONDS
        while not self.settled():
            # In a cluster, the story limits how long the end of a run may take.
            late = world.now > self.deadline and self.at_rest.issuperset(self.members)
            if late and self.story.coordinators_stay:
                raise Violation(
                    f"group {self.group_id!r} has not settled in {PEACE_SECONDS:g} s in which its"
                    f" members only joined and sent heartbeats: {self}"
                )
            with contextlib.suppress(Broken):
                await act()
            await asyncio.sleep(wait)
            wait = min(wait * 1.5, BEAT_SECONDS)

    async def leave(self, member: Any, act: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        """Have a member leave for good: call `act`, which sends the request, until it succeeds."""
        done = False
        while not done:
            with contextlib.suppress(Broken):
                done = await act()
            await asyncio.sleep(0.1)
        self.members.remove(member)
