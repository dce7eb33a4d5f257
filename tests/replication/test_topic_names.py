"""Names of topics: which are legal, and which collide with another one."""

from __future__ import annotations

import pytest

from ottla.replication.topic_names import colliding_name, is_legal_name, require_legal_name
from ottla.wire.errors import InvalidTopic


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "a..b", "-", "x" * 249, "__offsets"])
def test_letters_digits_dot_underscore_and_dash_make_a_name(name: str) -> None:
    require_legal_name(name)
    assert is_legal_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", "x" * 250, "a/b", "../../x", "a\0b", "a b", "a\n", "\n", "ü", "a\ufffd",
        "a:b", "a,b",
    ],
)
def test_any_other_name_is_refused(name: str) -> None:
    assert not is_legal_name(name)
    with pytest.raises(InvalidTopic, match="Topic name is invalid"):
        require_legal_name(name)


def test_names_collide_that_differ_in_dots_and_underscores_only() -> None:
    names = {"a.b_c", "plain", "a-b"}
    assert colliding_name("a_b.c", names) == "a.b_c"
    assert colliding_name("a.b_c", names) is None, "a name does not collide with itself"
    assert colliding_name("plain", names) is None
    assert colliding_name("a.b", names) is None


def test_collisions_are_found_however_many_dots_a_name_has() -> None:
    name = ".".join("x" * 120)
    assert colliding_name(name, {name.replace(".", "_"), "other"}) == name.replace(".", "_")
