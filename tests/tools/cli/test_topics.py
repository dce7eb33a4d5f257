"""`ottla topic list` and `ottla topic offsets`: what is not found is not made up."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.tools.cli.ottla_command import Ottla


@pytest.fixture(scope="module", autouse=True)
def stock(ottla: Ottla) -> None:
    ottla.ok("topic create orders -p 1")
    ottla.ok("produce orders", b"a\n")
    ottla.ok("consume orders -G team -o beginning -n 1")


def test_no_record_with_a_later_time_is_no_offset(ottla: Ottla) -> None:
    [row] = json.loads(ottla.ok("topic offsets orders --at 2999-01-01 -o json"))
    assert (row["first"], row["next"], row["at"]) == (0, 1, None)
    [_, line] = ottla.ok("topic offsets orders --at 2999-01-01").splitlines()
    assert line.split() == ["orders", "0", "0", "1", "-"]
    [row] = json.loads(ottla.ok("topic offsets orders --at 1 -o json"))
    assert row["at"] == 0


@pytest.mark.parametrize(("pattern", "said"), [
    ("ord", "no topic matches 'ord': it must match the whole name, as in 'orders.*'\n"),
    ("__consumer.*",
     "no topic matches '__consumer.*': only internal topics match it; --internal lists them\n"),
    ("ord.*", ""), ("__consumer.* --internal", ""),
])
def test_a_pattern_that_lists_nothing_is_explained(ottla: Ottla, pattern: str, said: str) -> None:
    done = ottla(f"topic list {pattern}")
    assert (done.status, done.err) == (0, said)


def test_a_closed_standard_input_is_an_empty_one(ottla: Ottla) -> None:
    command = f'exec "$0" -m ottla topic delete orders -b {ottla.address} <&-'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, (
        "ottla topic delete: deleting topic orders cannot be undone: confirm with --yes\n"))
