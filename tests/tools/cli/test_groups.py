"""`ottla group list` and `ottla group describe`: the same facts in every format."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ottla.testing import Broker
from tests.tools.cli.ottla_command import Ottla


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def there(running: Broker) -> Ottla:
    """Two groups that read one topic: `behind` has not read the last record."""
    ottla = Ottla(running.bootstrap_servers)
    ottla.ok("topic create orders -p 1")
    ottla.ok("produce orders", b"1\n2\n")
    ottla.ok("consume orders -G ahead -o beginning -n 2")
    ottla.ok("consume orders -G behind -o beginning -n 1")
    return ottla


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_a_list_for_programs_has_the_lag_too(there: Ottla, form: str) -> None:
    printed = there.ok(f"group list -o {form}")
    rows = json.loads(printed) if form == "json" else [*map(json.loads, printed.splitlines())]
    assert [(row["group"], row["lag"], row["uncommitted"]) for row in rows] == [
        ("ahead", 0, 0), ("behind", 1, 0)]


@pytest.mark.parametrize("form", ["table", "wide"])
def test_rows_of_several_groups_name_their_group(there: Ottla, form: str) -> None:
    lines = there.ok(f"group describe ahead behind -o {form}").splitlines()
    assert [line.split()[:4] for line in lines[2:]] == [
        ["GROUP", "TOPIC", "PARTITION", "OFFSET"],
        ["ahead", "orders", "0", "2"], ["behind", "orders", "0", "1"],
    ]
    [_, head, _] = there.ok(f"group describe ahead -o {form}").splitlines()
    assert head.split()[0] == "TOPIC"
