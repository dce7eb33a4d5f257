"""Topic names and patterns: what matches, and which names are compared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.groups.consumer import patterns
from ottla.groups.consumer.heartbeat import Heartbeat
from ottla.groups.errors import InvalidRegularExpression
from tests.groups.bench import Workbench


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topic names that have been compared with any pattern, in order."""
    seen: list[str] = []
    real = patterns.compiled

    def watched(pattern: str) -> Any:
        compiled = real(pattern)

        def fullmatch(name: str) -> Any:
            seen.append(name)
            return compiled.fullmatch(name)

        return SimpleNamespace(fullmatch=fullmatch)

    monkeypatch.setattr(patterns, "compiled", watched)
    return seen


def test_a_name_is_compared_once_with_a_pattern(compared: list[str]) -> None:
    names = ["logs-1", "logs-2", "other"]
    for _ in range(3):
        assert patterns.matching("logs-[0-9]+", names) == {"logs-1", "logs-2"}
    assert sorted(compared) == names
    compared.clear()
    assert patterns.matching("logs-[0-9]+", ["logs-2", "other", "logs-3"]) == {"logs-2", "logs-3"}
    assert compared == ["logs-3"]
    assert patterns.matching("logs-[0-9]+", ["other"]) == frozenset()
    assert patterns.matching("logs-[0-9]+", names) == {"logs-1", "logs-2"}, "it was forgotten"
    compared.clear()
    assert patterns.matching("o.*", names) == {"other"} and sorted(compared) == names
    assert patterns.matching("", names) == frozenset()


def test_the_heartbeat_after_a_join_compares_no_topic_again(compared: list[str]) -> None:
    bench = Workbench()
    for number in range(50):
        bench.cluster.make(f"logs-{number}", 1)
    request = Heartbeat("g", "m", 0, pattern="logs-[0-9][0-9]*", rebalance_timeout_ms=5,
                        owned=frozenset())
    epoch = bench.ask(lambda s, r: s.beat(request, r)).member_epoch
    assert len(compared) == 50
    for number in (50, 51):
        beat = Heartbeat("g", "m", epoch)
        epoch = bench.ask(lambda s, r, beat=beat: s.beat(beat, r)).member_epoch
        assert len(compared) == number, "only topics that are new"
        bench.cluster.make(f"logs-{number}", 1)


def test_a_pattern_that_is_no_pattern_is_refused() -> None:
    with pytest.raises(InvalidRegularExpression):
        patterns.matching("(", ["t"])
    with pytest.raises(InvalidRegularExpression):
        patterns.check("(")
    patterns.check("")
