"""Delays the answers of coordinators to leaders that ask whether a transaction is open. Meanwhile
the transaction may end, and its marker may arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from ottla.broker.coordination.transaction_verifier import LANE
from ottla.broker.peers.peers import Peers

SECONDS = (0.0, 0.0, 0.01, 0.1, 0.3)


def answer_late(seed: int, put: Callable[[Any, str, Any], None]) -> None:
    """Delay some of the answers to leaders that verify a batch of a transaction."""
    chance, ask = Random(f"slow verdicts {seed}"), Peers.ask

    async def ask_slowly(
        self: Peers, node_id: int, request: Any, version: int, *others: Any, **named: Any
    ) -> Any:
        answer = await ask(self, node_id, request, version, *others, **named)
        if LANE in others:
            await asyncio.sleep(chance.choice(SECONDS))
        return answer

    put(Peers, "ask", ask_slowly)
