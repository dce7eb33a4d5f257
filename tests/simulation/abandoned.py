"""Transactions that nobody ends: their producers die, and their transactional ids are never used
again. Only the coordinator can end such a transaction, after its timeout, whatever happens to the
log at that moment."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.model import Transaction
from tests.simulation.network import Broken
from tests.simulation.transactional_producers import Transactional

if TYPE_CHECKING:
    from tests.simulation.story import Story

IDS_MAX = 16
TIMEOUTS_MS = (50, 200, 500, 1000, 2000)
"""Timeouts of these transactions. Because there are several values, some transactions time out
while the disk is full, or while too few replicas are in sync."""


class Mortal(Transactional):
    """A producer of a single transaction, which it does not end."""

    def group(self) -> str:
        return "abandoned"              # no other client uses this group

    async def work(self, chance: Random) -> None:
        """Begin a transaction, write something, and die."""
        if not await self.begin(chance.choice(TIMEOUTS_MS)):
            return
        transaction = Transaction(f"{self.name}/{len(self.model.transactions)}", "to abort")
        self.model.transactions.append(transaction)
        with contextlib.suppress(Broken):
            for _ in range(chance.choice((1, 2))):
                offset = chance.random() < 0.2
                if not await (
                    self.commit_offset(transaction) if offset else self.write(transaction)
                ):
                    break
        for key, _ in transaction.offsets:
            # Now the model has the offset, and the final checks see that it is not committed.
            self.story.offsets.of(key)


async def abandon(story: Story) -> None:
    """Begin transactions that nobody ends, one after the other."""
    chance = Random(f"abandoned {story.world.seed}")
    for at in range(IDS_MAX):
        await asyncio.sleep(chance.expovariate(0.1 / story.pace))
        if story.over:
            return
        await Mortal(story, f"mortal{at}").work(chance)
