"""Who may do what, by Kafka's rules: KIP-11 for operations, KIP-290 for patterns of names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.security import authorizer as module
from ottla.broker.security.authorizer import Authorizer
from ottla.replication.controller.access import (
    Operation,
    Pattern,
    Permission,
    Resource,
    is_about,
)
from ottla.replication.metadata import MetadataImage
from ottla.replication.principals import AccessRule, RuleSet

A, HOST = "User:a", "192.0.2.7"
LITERAL, PREFIXED = Pattern.LITERAL, Pattern.PREFIXED


def rule(
    operation: Operation,
    name: str = "t",
    pattern: Pattern = LITERAL,
    permission: Permission = Permission.ALLOW,
    principal: str = A,
    host: str = "*",
) -> AccessRule:
    return AccessRule(Resource.TOPIC, pattern, name, principal, host, operation, permission)


def denial(operation: Operation, name: str = "t", pattern: Pattern = LITERAL) -> AccessRule:
    return rule(operation, name, pattern, Permission.DENY)


def with_rules(*rules: AccessRule, open_otherwise: bool = False) -> Authorizer:
    made = Authorizer(["User:root"], open_otherwise)
    empty = MetadataImage.empty()
    made.follow(empty, empty.apply(RuleSet(each, True) for each in rules))
    return made


def may(made: Authorizer, operation: Operation, name: str = "t", who: str = A) -> bool:
    return made.allows(who, HOST, operation, Resource.TOPIC, name)


def test_nothing_is_allowed_without_a_rule_but_to_super_users() -> None:
    made = with_rules()
    assert not may(made, Operation.READ)
    assert may(made, Operation.ALTER, who="User:root")


@pytest.mark.parametrize(
    "stronger", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL]
)
def test_who_may_do_more_may_describe(stronger: Operation) -> None:
    made = with_rules(rule(stronger))
    assert may(made, Operation.DESCRIBE)
    assert may(made, Operation.DESCRIBE_CONFIGS) == (stronger == Operation.ALL)


def test_a_denial_is_of_what_it_names_alone() -> None:
    made = with_rules(rule(Operation.ALL), denial(Operation.DESCRIBE))
    assert may(made, Operation.READ)
    assert not may(made, Operation.DESCRIBE)
    settings = with_rules(rule(Operation.ALTER_CONFIGS), denial(Operation.READ))
    assert may(settings, Operation.DESCRIBE_CONFIGS)


def test_a_rule_is_for_its_principal_at_its_host() -> None:
    assert may(with_rules(rule(Operation.READ, host=HOST)), Operation.READ)
    assert not may(with_rules(rule(Operation.READ, host="192.0.2.8")), Operation.READ)
    assert not may(with_rules(rule(Operation.READ, principal="User:b")), Operation.READ)
    assert may(with_rules(rule(Operation.READ, principal="User:*")), Operation.READ)


def test_a_prefix_is_for_all_names_that_begin_with_it() -> None:
    made = with_rules(rule(Operation.READ, "ab", PREFIXED))
    assert may(made, Operation.READ, "ab") and may(made, Operation.READ, "abc")
    assert not may(made, Operation.READ, "a")
    star = with_rules(rule(Operation.READ, "*", PREFIXED))
    assert not may(star, Operation.READ, "a"), "a prefix is not a pattern"


@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "ab", "b", "*"]), st.booleans()), max_size=6),
    st.text("ab*", max_size=3),
)
def test_the_index_finds_the_rules_that_are_about_a_name(
    names: list[tuple[str, bool]], name: str
) -> None:
    rules = [
        rule(Operation.READ, each, PREFIXED if prefixed else LITERAL) for each, prefixed in names
    ]
    index = module.RuleIndex()
    for each in rules:
        index.add(each)
    order = {id(each): number for number, each in enumerate(rules)}
    found = sorted(index.about(name), key=lambda each: order[id(each)])
    assert found == [each for each in rules if is_about(each, name)]


def test_what_no_rule_is_about_may_be_open() -> None:
    made = with_rules(rule(Operation.READ, principal="User:b"), open_otherwise=True)
    assert not may(made, Operation.READ), "a rule is about it"
    assert may(made, Operation.READ, "u")


def test_other_rules_count_at_once_and_answers_are_remembered_in_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CACHE_SIZE_MAX", 3)
    made = with_rules(rule(Operation.READ, "t", PREFIXED))
    for number in range(10):
        assert may(made, Operation.READ, f"t{number}")
        assert len(made.known) <= 3
    other = MetadataImage.empty()
    made.follow(other, other)
    assert may(made, Operation.READ), "the same rules"
    image = MetadataImage.empty().apply([RuleSet(denial(Operation.READ), True)])
    made.follow(MetadataImage.empty(), image)
    assert not may(made, Operation.READ)


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ([], False),
        ([rule(Operation.WRITE)], True),
        ([rule(Operation.READ)], False),
        ([rule(Operation.WRITE, principal="User:b")], False),
        ([rule(Operation.WRITE), denial(Operation.WRITE)], False),
        ([rule(Operation.WRITE), denial(Operation.WRITE, "u")], True),
        ([rule(Operation.WRITE, "tu"), denial(Operation.ALL, "t", PREFIXED)], False),
        ([rule(Operation.WRITE, "t", PREFIXED), denial(Operation.WRITE, "tu", PREFIXED)], True),
        ([rule(Operation.WRITE, "*"), denial(Operation.WRITE, "t", PREFIXED)], True),
        ([rule(Operation.WRITE, "*"), denial(Operation.WRITE, "*")], False),
    ],
)
def test_an_idempotent_producer_needs_some_topic_to_write_to(
    rules: list[AccessRule], allowed: bool
) -> None:
    made = with_rules(*rules)
    assert made.allows_any(A, HOST, Operation.WRITE, Resource.TOPIC) == allowed
    assert made.allows_any("User:root", HOST, Operation.WRITE, Resource.TOPIC)


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ([], True),
        ([denial(Operation.WRITE, "t")], True),
        ([rule(Operation.WRITE, principal="User:b")], True),
        ([denial(Operation.WRITE, "*")], False),
        ([denial(Operation.ALL, "*")], False),
        ([rule(Operation.WRITE, "*", principal="User:b")], False),
        ([denial(Operation.WRITE, "*", PREFIXED)], True),
        ([rule(Operation.WRITE, "*", principal="User:b"), rule(Operation.WRITE)], True),
    ],
)
def test_access_without_acls_ends_for_idempotent_producers_once_acls_are_for_all_topics(
    rules: list[AccessRule], allowed: bool
) -> None:
    """A client that may write to no topic gets no producer id either."""
    made = with_rules(*rules, open_otherwise=True)
    assert may(made, Operation.WRITE, "any other topic") == allowed or len(rules) == 2
    assert made.allows_any(A, HOST, Operation.WRITE, Resource.TOPIC) == allowed
    assert made.allows_any("User:root", HOST, Operation.WRITE, Resource.TOPIC)


def test_long_names_leave_nothing_in_memory() -> None:
    """A client may ask about 100,000 names of 32,767 characters. An earlier version kept them all,
    which took three gigabytes."""
    made = with_rules(rule(Operation.READ, "l", PREFIXED))
    for number in range(50):
        assert may(made, Operation.READ, f"l{number}" + "x" * 30_000)
    assert not made.known
    assert may(made, Operation.READ, "l1") and len(made.known) == 1
