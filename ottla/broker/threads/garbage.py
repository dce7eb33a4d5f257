"""Garbage collection in small pieces: a collection walks only the newest objects.

Reference counts free nearly everything here; a collection only has to find cycles. But a full
collection walks all objects, on the loop: 60 ms with 10,000 groups and as many offsets. So objects
that have survived three collections are excluded from further ones (`gc.freeze`). Reference counts
still free them. Only excluded cycles that become garbage stay in memory. So a collection walks all
objects once their number has grown by more than the broker's state explains.
"""

from __future__ import annotations

import gc
import sys

THRESHOLDS = (700, 10, 1)
"""How many new objects cause a collection, and how many collections of a generation cause one of
the next older generation. Even the oldest generation is walked after some 15,000 new objects that
are still in use."""
OLDEST = 2
GROWTH = 2
GROWTH_BLOCKS_MIN = 4_000_000
"""The least growth after which a collection walks all objects. (A block is an allocation of up to
512 bytes.) These blocks are about 400 MB, which is more than 100,000 partitions need."""


class Garbage:
    """Decides which objects the collections of this process walk."""

    def __init__(self, growth_blocks_min: int = GROWTH_BLOCKS_MIN) -> None:
        self.growth_blocks_min = growth_blocks_min
        self.everything_above = 0
        """The number of allocated blocks above which a collection walks all objects."""

    def begin(self) -> None:
        """Collect in small pieces from now on. All objects that exist now live as long as the
        process."""
        gc.freeze()
        # CPython delays a full collection until there are enough new objects: a fourth of the
        # objects that the previous full collection has walked. This collection walks no objects, so
        # the next one is not delayed.
        gc.collect()
        self._measure()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._collecting)
        gc.enable()

    def end(self) -> None:
        """Stop controlling the collections."""
        gc.callbacks.remove(self._collecting)

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != OLDEST:
            return
        if phase == "start":
            if sys.getallocatedblocks() > self.everything_above:
                gc.unfreeze()
                self.everything_above = 0
            return
        gc.freeze()
        if not self.everything_above:
            self._measure()

    def _measure(self) -> None:
        blocks = sys.getallocatedblocks()
        self.everything_above = max(GROWTH * blocks, blocks + self.growth_blocks_min)
