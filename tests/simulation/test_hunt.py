"""A hunt varies runs that are the first to reach two rare marks together, keeps and shortens runs
that break a promise, and continues where the previous hunt stopped."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation import pool, run
from tests.simulation.hunt import RARE_SHARE, VARIATIONS, Curiosity, Hunt
from tests.simulation.options import Options
from tests.simulation.pool import Kind, Pool, Ran, Run
from tests.simulation.run import Outcome

USUAL = ("a restart", "a retry")


def ran(seed: int, *marks: str, violation: str = "") -> Ran:
    """A run that has reached these marks."""
    return Ran(Run(seed), violation, violation[:10], dict.fromkeys(marks, 1))


def seasoned() -> Curiosity:
    """A Curiosity that knows which marks are usual."""
    curiosity = Curiosity(1)
    for _ in range(int(2 / RARE_SHARE)):
        assert not curiosity.note(ran(curiosity.next().seed, *USUAL))
    return curiosity


def test_two_rare_branches_in_one_run_are_varied_once_and_new_seeds_come_in_between() -> None:
    curiosity = seasoned()
    assert not curiosity.note(ran(7, "a deletion", *USUAL)), "one rare branch is no pair"
    assert curiosity.note(ran(8, "a deletion", "a snapshot", *USUAL))
    runs = [curiosity.next() for _ in range(2 * VARIATIONS + 2)]
    assert [each.like for each in runs].count(8) == VARIATIONS
    assert {each.like for each in runs} == {0, 8}
    assert len({each.seed for each in runs}) == len(runs), "no run twice"
    assert not curiosity.note(ran(9, "a deletion", "a snapshot")), "the pair is known"


def test_a_variation_has_the_options_of_its_model_but_for_the_faults() -> None:
    model = Options.draw(8)
    options = Run(1000, like=8).options(Kind())
    assert options.drawn_from == 8
    options.faults = model.faults
    assert options == model


def test_a_hunt_keeps_what_it_finds_and_the_next_one_goes_on_after_it(tmp_path: Path) -> None:
    hunt = Hunt(tmp_path, Kind(3))
    seeds = [hunt.curiosity.next().seed for _ in range(5)]
    hunt.note(ran(seeds[3], "a deletion", violation="a-1 lost 5 records"))
    hunt.report()
    assert "lost 5 records" in (tmp_path / f"seed-{seeds[3]}.txt").read_text()
    assert f"`--seed {seeds[3]}`" in (tmp_path / "report.md").read_text()
    assert [*hunt.to_shorten] == [Run(seeds[3], shortened=True)]
    assert Hunt(tmp_path, Kind(3)).curiosity.next().seed == seeds[-1] + 1


def test_what_breaks_a_promise_is_shortened_to_what_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def outcome(seed: int, options: Options) -> Outcome:
        broken = "power cut" in options.faults and options.groups > 0
        tried.append(copy.deepcopy(options))
        return Outcome(seed, 1, "an offset is lost" if broken else "", ["the end"])

    tried: list[Options] = []
    monkeypatch.setattr(pool, "outcome", outcome)
    monkeypatch.setattr(run, "outcome", outcome)
    seed = next(
        seed for seed in range(1, 1000)
        if "power cut" in (drawn := Options.draw(seed)).faults and len(drawn.faults) > 1
        and drawn.groups and drawn.narrow and drawn.members
    )
    told = pool.answer(Run(seed, shortened=True), Kind())
    left = tried[-1]
    assert (left.faults, left.groups, left.narrow, left.members) == (["power cut"], 1, False, False)
    assert told["options"] == str(left) and told["trace"] == ["the end"]


def test_a_process_that_dies_is_told_and_replaced() -> None:
    def runs() -> Iterator[Run]:
        yield Run(1)
        for worker in processes.running:
            worker.kill()
        yield Run(2)
        yield Run(3)

    with Pool(Kind(), 2) as processes:
        found = {each.run.seed: each.violation for each in processes.run(runs())}
    assert found == {1: "its process has ended with -9", 2: "", 3: ""}
