"""Every fuzzer with its seeds, with seeds that are damaged at random, and with inputs that once
were findings."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.listener_target import listeners
from tests.fuzz.targets import TARGETS

SEEDS_MAX = {"listeners": 60, "partition_files": 12}
DAMAGED = 3


@pytest.fixture(scope="module", autouse=True)
def no_broker_stays() -> Iterator[None]:
    yield
    listeners.close()


def damaged(data: bytes, chance: random.Random) -> bytes:
    """A copy of the data in which some bytes are changed, repeated, left out or put in."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) + 1)
        run = chance.choice((1, 1, 2, 4, 8))
        changed[at : at + run * chance.randrange(2)] = chance.choice(
            (b"", chance.randbytes(run), b"\xff" * run, b"\x7f" * run, bytes(changed[:run]))
        )
    return bytes(changed)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_damaged_seeds_find_nothing(name: str) -> None:
    target, chance = TARGETS[name], random.Random(name)
    seeds = target.seeds()
    for seed in chance.sample(seeds, min(len(seeds), SEEDS_MAX.get(name, 400))):
        target.run(seed)
        for _ in range(DAMAGED):
            target.run(damaged(seed, chance))


def test_an_input_of_your_own() -> None:
    """OTTLA_FUZZ_INPUT=TARGET:FILE replays a finding."""
    name, _, path = os.environ.get("OTTLA_FUZZ_INPUT", "messages:").partition(":")
    TARGETS[name].run(Path(path).read_bytes() if path else b"")
