"""Brokers that take long to apply a change of the metadata. Meanwhile they serve requests with the
previous image, and then several changes become visible at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import chain
from random import Random
from typing import Any

from ottla.broker.cluster import metadata_log
from ottla.broker.threads.slices import Slices

SECONDS = (0.0, 0.0, 0.001, 0.01, 0.1, 0.5)


def follow_late(seed: int, put: Callable[[Any, str, Any], None]) -> None:
    """Have a broker take longer to apply a change of the metadata to its partitions."""
    chance = Random(f"slow images {seed}")

    async def in_late_slices(steps: Iterable[None]) -> None:
        seconds, wait_at = chance.choice(SECONDS), chance.choice((0, 0, 1, 2))
        slices = Slices()
        for number, _ in enumerate(chain((None,), steps)):
            if number == wait_at and seconds:
                await asyncio.sleep(0)          # here `begun` creates a task; a task may sleep
                await asyncio.sleep(seconds)
            if slices.over:
                await slices.pause()

    put(metadata_log, "in_slices", in_late_slices)
