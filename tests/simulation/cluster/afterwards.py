"""Checks that transactions work again after everything is repaired.

The clients of a run give up a transaction that makes no progress, as stock clients do. So without
this check nobody would notice if the brokers refused all transactions for good.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from tests.simulation.model import ABORTED, COMMITTED, UNKNOWN, Transaction
from tests.simulation.network import Broken
from tests.simulation.transactional_producers import Transactional
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster.story import ClusterStory
    from tests.simulation.model import PartitionModel

ATTEMPTS = 5
"""The number of attempts. Some may fail because leadership is still returning to preferred
replicas."""
COMMIT_SECONDS = 60.0


async def commit_everywhere(story: ClusterStory) -> None:
    """With each of the two protocols, commit a transaction that writes to every partition of the
    topics with transactions."""
    story.over = False                      # the other clients have ended
    for second in (False, True):
        last = Last(story, second)
        task = asyncio.ensure_future(last.work())
        await story.world.until(task.done, f"producer {last.name!r} ends", COMMIT_SECONDS)
        task.result()
    story.over = True


class Last(Transactional):
    """A producer that commits one transaction, with a batch for every partition."""

    def __init__(self, story: ClusterStory, second: bool) -> None:
        super().__init__(story, f"last {'second' if second else 'first'}")  # type: ignore[arg-type]
        self.second = second
        self.partition: PartitionModel | None = None

    def choose(self) -> PartitionModel | None:
        return self.partition

    async def work(self) -> None:
        """Commit the transaction. Raises Violation if no attempt succeeds."""
        trouble = ""
        for _ in range(ATTEMPTS):
            transaction = Transaction(f"{self.name}/{len(self.model.transactions)}")
            self.model.transactions.append(transaction)
            if not await self.begin():
                raise Violation(f"producer {self.name!r} gets no producer id")
            try:
                trouble = await self.try_commit(transaction)
            except Broken as error:
                trouble = f"a connection ended: {error}"
            if not trouble:
                return
            # The next attempt's InitProducerId aborts the transaction, or completes its commit.
            self.decided(transaction, ABORTED if transaction.fate == "to abort" else UNKNOWN)
            await asyncio.sleep(1.0)
        raise Violation(
            f"producer {self.name!r} cannot commit, though every broker is well: {trouble}"
        )

    async def try_commit(self, transaction: Transaction) -> str:
        """Try once to commit. Returns what was refused, or "" if nothing was."""
        self.added.clear()
        transaction.fate = "to abort"
        for topic in self.model.live():
            for self.partition in topic.partitions:
                if not await self.write(transaction):
                    return f"a batch for partition {self.partition!r} is refused"
        transaction.fate = UNKNOWN
        code = await self.end(True)
        if code != ErrorCode.NONE:
            return f"EndTxn is answered {code.name}"
        self.decided(transaction, COMMITTED)
        return ""
