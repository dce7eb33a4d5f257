"""Runs one seed; what it raises is a broken promise."""

from __future__ import annotations

import gc

from tests.simulation.options import Options
from tests.simulation.story import Story
from tests.simulation.world import Patches, World


def run_seed(seed: int, options: Options | None = None) -> World:
    """One run from start to end; the world afterwards. Raises Violation."""
    world = World(seed, options or Options.draw(seed))
    with Patches(world):
        try:
            story = Story(world)
            world.run(story.run())
        except BaseException as error:
            error.world = world         # type: ignore[attr-defined]
            raise
        finally:
            world.close()
            gc.collect()
    return world
