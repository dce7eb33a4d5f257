"""The fault `refused call`: the disk of one broker refuses one call, or a few calls in a row, as
`../refusals.py` describes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tests.simulation.refusals import (
    AT_A_SEGMENT,
    AT_A_START,
    PLACES,
    SEGMENT_SECONDS,
    Refusal,
    Stopped,
    note_where,
)

if TYPE_CHECKING:
    from tests.simulation.cluster.story import ClusterStory
    from tests.simulation.cluster.world import ClusterMachine


@contextlib.contextmanager
def willing(machines: Iterable[ClusterMachine]) -> Iterator[None]:
    """For checks of the simulation: within this block, no disk refuses a call."""
    with contextlib.ExitStack() as stack:
        for machine in machines:
            if machine.disk.refusal is not None:
                stack.enter_context(machine.disk.willing())
        yield


async def refused_call(story: ClusterStory) -> None:
    """Refuse calls of a broker where a segment begins, at a start or at a stop. Then the broker is
    stopped cleanly, killed, or loses its power, and starts again."""
    machine, chance = story.some_machine(), story.refusing
    if machine is None:
        return
    place = chance.choice(PLACES)
    refusal = Refusal.draw(chance, place)
    story.world.note(f"{machine.name}: {refusal} {place}")
    if place == AT_A_SEGMENT:
        if not refusal.passes:
            machine.excuse = "a call has failed"
        for each in refusal.repeated(chance):
            machine.disk.refusal = each
            end = story.world.now + SEGMENT_SECONDS
            while not each.began and story.world.now < end:
                await story.pass_time(0.05)
            note_where(each, place)
            await story.wait(chance.choice((0.0, 0.1, 0.5)))
    elif place == AT_A_START:
        await _end(story, machine, chance.choice(("kill", "power cut", "clean stop")))
        machine.excuse = "a call of the start has failed"
        machine.disk.refusal = refusal
        if machine.loop is None:
            machine.begin_broker()
        await story.until_up(machine)
        await story.wait(chance.choice((0.0, 0.1, 0.5, 6.0)))
    else:
        machine.excuse = "a call of the stop has failed"
        await _stop(machine, refusal)
    if place != AT_A_SEGMENT:
        note_where(refusal, place)
    machine.disk.refusal = None
    if machine.up and place == AT_A_SEGMENT and refusal.passes and chance.random() < 0.3:
        return
    await _end(story, machine, chance.choice(("kill", "power cut", "clean stop", "clean stop")))
    machine.excuse = None
    await story.restart_later(machine)


async def _end(story: ClusterStory, machine: ClusterMachine, how: str) -> None:
    """End the process, if there is one."""
    if how == "clean stop":
        await _stop(machine, None)
    elif how == "power cut":
        story.cut_power(machine)
    else:
        machine.kill()


async def _stop(machine: ClusterMachine, refusal: Refusal | None) -> None:
    """Stop a broker cleanly, if it serves; `refusal` are the calls that its disk refuses."""
    stopped, serves = Stopped(machine), machine.up
    machine.disk.refusal = refusal
    if serves:
        await machine.stop_cleanly()
    machine.kill()
    if serves:
        stopped.check(machine)
