"""Checks at the end of a run that some order of the requests explains the answers: for each
committed offset, transactional id and classic group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ottla.wire.marks import reached
from tests.simulation.histories import committed_offsets, generations, transactional_ids
from tests.simulation.histories.search import Operation, Step, linearize
from tests.simulation.options import REFUSED
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster.story import ClusterStory
    from tests.simulation.story import Story

SHOWN_MOST = 12
"""The number of operations that a violation shows: the last ones that were sent before the
unexplained answer."""


def check_histories(story: Story | ClusterStory) -> None:
    """Raise a Violation if no order explains the answers of a history. If a search takes too
    long, nothing is raised; the run only reaches a mark."""
    for name, operations, state, step in _histories(story):
        verdict = linearize(operations, state, step)
        if not verdict.decided:
            reached("a history was too long to decide")
            story.world.note(f"the history of {name} is too long: {len(operations)} operations")
        elif verdict.order is None:
            raise Violation(_told(name, operations, verdict.stuck, verdict.states))
        else:
            _mark(verdict.order)


def _histories(
    story: Story | ClusterStory,
) -> Iterator[tuple[str, Sequence[Operation], Any, Step]]:
    """Each history's name, operations, first state and step function."""
    calls, settings = story.world.history.calls, story.options.settings
    expires = "offsets.retention.minutes" in settings
    stable_only = not story.coordinators_stay or REFUSED in story.options.faults
    for (group, topic, index), operations in committed_offsets.histories(
        calls, {each.topic_id: each.name for each in story.model.topics},
        stable_only, expires,
    ).items():
        name = f"group {group}'s offset of {topic}-{index}"
        yield name, operations, committed_offsets.NO_OFFSET, committed_offsets.step
    step = transactional_ids.step_of("transactional.id.expiration.ms" in settings)
    for each, operations in transactional_ids.histories(calls).items():
        yield f"transactional id {each}", operations, transactional_ids.NEW, step
    if story.coordinators_stay and not expires:
        for group, operations in generations.histories(calls).items():
            name = f"the generation of group {group}"
            yield name, operations, generations.NO_GENERATION, generations.step


def _mark(order: Sequence[Operation]) -> None:
    if any(each.is_lost for each in order):
        reached("what no answer has confirmed had happened, as a later answer shows")
    answered = [each.asked for each in order if not each.is_lost]
    if answered != sorted(answered):
        reached("of two requests to a coordinator at once the later one came first")


def _told(
    name: str, operations: Sequence[Operation], stuck: Operation | None, states: Sequence[Any]
) -> str:
    assert stuck is not None, "a search without an order must say where it stuck"
    before = [each for each in operations if each.asked < stuck.answered]
    shown = sorted(before, key=lambda each: each.asked)[-SHOWN_MOST:]
    events = ", ".join(
        f"{each.asked}-{'?' if each.is_lost else each.answered} {each.what}" for each in shown
    )
    return (
        f"{name}: no order of the requests explains {stuck.what} after {list(states[:3])}: {events}"
    )
