"""The table of marks shows what seeds reach, and names the marks that they miss."""

from __future__ import annotations

from tests.simulation import marks
from tests.simulation.marks import Reached, excuse, excuses
from tests.simulation.run import python_alone

LEAST = 150


def test_there_are_enough_marks_each_with_a_text_of_its_own() -> None:
    assert len(marks.marks()) >= LEAST


def test_each_excuse_names_a_mark_or_a_path_that_has_marks() -> None:
    known, paths = marks.marks(), set(marks.marks().values())
    for brokers in (1, 3):
        for name, reason in excuses(brokers).items():
            assert name in known or any(path.startswith(name) for path in paths), name
            assert reason


def test_each_mark_is_wanted_of_some_world_or_is_named_itself() -> None:
    named = {*excuses(1), *excuses(3)}
    for mark in marks.marks():
        assert not (excuse(mark, 1) and excuse(mark, 3)) or mark in named, mark


def test_a_mark_that_no_seed_reached_is_missed_unless_it_has_an_excuse() -> None:
    reached, every = Reached(), list(marks.marks())
    wanted = next(each for each in every if not excuse(each, 1))
    for mark in every:
        if mark != wanted:
            reached.add({mark: 1})
    assert reached.missed(1) == [wanted]
    reached.add({wanted: 2})
    assert reached.missed(1) == []


def test_a_run_counts_the_marks_that_it_reaches_and_none_are_counted_after_it() -> None:
    program = (
        "from tests.simulation.options import Options\n"
        "from tests.simulation.run import outcome\n"
        "from ottla.wire.marks import reached\n"
        "found = outcome(3, Options.draw(3)).marks\n"
        "before = dict(found)\n"
        "reached('a mark after the run')\n"
        "assert found == before and found, found\n"
    )
    ran = python_alone("-c", program)
    assert ran.returncode == 0, ran.stderr[-2000:]
