"""RE2 matches the regular expressions of users in linear time; too large ones are refused."""

from __future__ import annotations

import pytest

from ottla.wire import patterns
from ottla.wire.patterns import InvalidPattern, compiled


def test_a_pattern_that_backtracks_elsewhere_decides_at_once() -> None:
    # Python's `re` would take exponential time.
    assert compiled("([a-z]+-?)+[0-9]+").fullmatch("a" * 10_000) is None
    assert compiled("(x+x+)+y", captures=True).fullmatch("x" * 1000) is None


@pytest.mark.parametrize(
    "pattern",
    [
        "(a",
        r"(?=a)b",                          # RE2 has no look-ahead
        r"(a)\1",                           # and no back-references
        "((a{0,100}){0,100}){0,100}",
        "([ab]|aa|bab)*" * 1000,            # RE2 accepts this, but takes 10 ms for one topic name
        "\ud800",
    ],
)
def test_a_pattern_that_is_invalid_or_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        compiled(pattern)


def test_an_alternation_of_topic_names_fits() -> None:
    names = [f"orders-of-the-region-{number}" for number in range(250)]
    found = compiled("|".join(names))
    assert all(map(found.fullmatch, names)) and not found.fullmatch("orders")


def test_groups_are_captured_only_where_they_are_wanted() -> None:
    assert compiled("CN=(.*?),.*", captures=True).fullmatch("CN=a,O=b")[1] == "a"
    assert compiled("CN=(.*?),.*").fullmatch("CN=a,O=b").groups() == ()


def test_a_pattern_may_be_as_large_as_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled.cache_clear()
    size = compiled("a{20}b").programsize       # type: ignore[attr-defined]
    for limit, allowed in ((size, True), (size - 1, False)):
        compiled.cache_clear()
        monkeypatch.setattr(patterns, "PROGRAM_SIZE_MAX", limit)
        if allowed:
            assert compiled("a{20}b").fullmatch("a" * 20 + "b")
        else:
            said = f"{size} instructions, but at most {limit} are"
            with pytest.raises(InvalidPattern, match=said):
                compiled("a{20}b")
    compiled.cache_clear()


def test_an_invalid_pattern_is_the_clients_affair_and_not_logged(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(InvalidPattern, match=r"'\(b' is not valid for RE2: missing \)"):
        compiled("(b")
    assert capfd.readouterr() == ("", "")
