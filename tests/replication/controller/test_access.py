"""ACLs: added once, removed by filters; bad ones refused as by Apache Kafka 4.3.1."""

from __future__ import annotations

import pytest

from ottla.replication.controller.access import (
    Operation,
    Pattern,
    Permission,
    Resource,
    RuleFilter,
    create_rules,
    delete_rules,
    matching_rules,
)
from ottla.replication.metadata import FeatureSet, MetadataImage
from ottla.replication.principals import AccessRule, RuleSet
from ottla.wire.errors import InvalidRequest, ProtocolError, UnsupportedVersion

READ = AccessRule(
    Resource.TOPIC, Pattern.LITERAL, "orders", "User:a", "*", Operation.READ, Permission.ALLOW)
WRITE = READ._replace(operation=Operation.WRITE)
OF_B = READ._replace(principal="User:b")
FROM_HERE = READ._replace(host="127.0.0.1")
DENIED = READ._replace(permission=Permission.DENY)
GROUP = READ._replace(resource_type=Resource.GROUP)
STOCKS = READ._replace(resource_name="stocks")
EVERY = READ._replace(resource_name="*")
OR = READ._replace(resource_name="or", pattern_type=Pattern.PREFIXED)
RULES = [READ, WRITE, OF_B, FROM_HERE, DENIED, GROUP, STOCKS, EVERY, OR]


@pytest.fixture
def image() -> MetadataImage:
    return MetadataImage.empty().apply(create_rules(MetadataImage.empty(), RULES).records)


def test_an_acl_that_exists_is_not_recorded_again(image: MetadataImage) -> None:
    assert {*image.rules} == {*RULES}
    new = READ._replace(principal="User:c")
    decision = create_rules(image, [READ, new])
    assert decision.records == [RuleSet(new, True)]
    assert decision.result == [None, None]


@pytest.mark.parametrize(("wanted", "found"), [
    (RuleFilter(), RULES),
    (RuleFilter(resource_type=Resource.GROUP), [GROUP]),
    (RuleFilter(operation=Operation.WRITE), [WRITE]),
    (RuleFilter(permission=Permission.DENY), [DENIED]),
    (RuleFilter(principal="User:b"), [OF_B]),
    (RuleFilter(principal="User:none"), []),
    (RuleFilter(host="127.0.0.1"), [FROM_HERE]),
    (RuleFilter(principal="User:b", host="127.0.0.1"), []),
    (RuleFilter(resource_name="stocks"), [STOCKS]),
    (RuleFilter(resource_name="stocks", pattern_type=Pattern.PREFIXED), []),
    (RuleFilter(resource_name="or", pattern_type=Pattern.PREFIXED), [OR]),
    (RuleFilter(resource_name="or", pattern_type=Pattern.LITERAL), []),
    (RuleFilter(pattern_type=Pattern.PREFIXED), [OR]),
    (RuleFilter(resource_name="stocks", pattern_type=Pattern.MATCH), [STOCKS, EVERY]),
    (RuleFilter(resource_name="orb", pattern_type=Pattern.MATCH), [EVERY, OR]),
    (RuleFilter(resource_name="order"), []),
], ids=str)  # fmt: skip
def test_a_filter_finds_the_acls_that_fit_in_every_part(
    image: MetadataImage, wanted: RuleFilter, found: list[AccessRule]
) -> None:
    assert {*matching_rules(image, wanted)} == {*found}
    decision = delete_rules(image, [wanted])
    assert {*decision.records} == {RuleSet(rule, False) for rule in found}
    assert {*decision.result[0]} == {*found}        # type: ignore[misc]


def test_an_acl_that_two_filters_find_is_removed_once(image: MetadataImage) -> None:
    filters = [RuleFilter(principal="User:b"), RuleFilter(pattern_type=0), RuleFilter()]
    decision = delete_rules(image, filters)
    assert len(decision.records) == len(RULES)
    assert decision.result[0] == [OF_B]
    refused = decision.result[1]
    assert isinstance(refused, InvalidRequest) and "patternType UNKNOWN" in str(refused)
    assert len(decision.result[2]) == len(RULES)    # type: ignore[arg-type]
    assert image.apply(decision.records).rules == MetadataImage.empty().rules


CLUSTER = READ._replace(resource_type=Resource.CLUSTER, resource_name="kafka-cluster")


@pytest.mark.parametrize(("rule", "reason"), [
    (READ._replace(resource_type=Resource.ANY), "Invalid resourceType ANY"),
    (READ._replace(resource_type=99), "Invalid resourceType UNKNOWN"),
    (READ._replace(pattern_type=Pattern.ANY), "Invalid patternType ANY"),
    (READ._replace(pattern_type=Pattern.MATCH), "Invalid patternType MATCH"),
    (READ._replace(operation=Operation.ANY), "Invalid operation ANY"),
    (READ._replace(permission=Permission.ANY), "Invalid permissionType ANY"),
    (READ._replace(permission=0), "Invalid permissionType UNKNOWN"),
    (CLUSTER._replace(resource_name="mine"), "The only valid name for the CLUSTER resource"),
    (READ._replace(resource_name=""), "Invalid empty resource name"),
    (READ._replace(principal="a"), "Could not parse principal from `a`"),
    (READ._replace(host=""), "Host pattern cannot be null or empty"),
    (READ._replace(host="10.0.0.0/99"), "Invalid CIDR notation '10.0.0.0/99'"),
])
def test_a_bad_acl_is_refused_and_the_others_are_added(rule: AccessRule, reason: str) -> None:
    decision = create_rules(MetadataImage.empty(), [rule, CLUSTER, OR])
    assert decision.records == [RuleSet(CLUSTER, True), RuleSet(OR, True)]
    refused, *added = decision.result
    assert isinstance(refused, InvalidRequest) and reason in str(refused)
    assert added == [None, None]


@pytest.mark.parametrize(("level", "accepted"), [(31, False), (32, True)])
def test_networks_need_brokers_that_know_them(level: int, accepted: bool) -> None:
    image = MetadataImage.empty()
    image = image.apply([FeatureSet("metadata.version", level)])
    decision = create_rules(image, [READ._replace(host="10.0.0.0/8"), FROM_HERE])
    error: ProtocolError | None = decision.result[0]
    assert (error is None) == accepted
    assert accepted or isinstance(error, UnsupportedVersion)
    assert len(decision.records) == 1 + accepted


def test_types_and_operations_have_kafkas_numbers() -> None:
    assert {each.name: each.value for each in Resource} == {
        "ANY": 1, "TOPIC": 2, "GROUP": 3, "CLUSTER": 4, "TRANSACTIONAL_ID": 5,
        "DELEGATION_TOKEN": 6, "USER": 7,
    }
    assert [each.name for each in Pattern] == ["ANY", "MATCH", "LITERAL", "PREFIXED"]
    assert [each.name for each in Permission] == ["ANY", "DENY", "ALLOW"]
    assert {each.name: each.value for each in Operation} == {
        "ANY": 1, "ALL": 2, "READ": 3, "WRITE": 4, "CREATE": 5, "DELETE": 6, "ALTER": 7,
        "DESCRIBE": 8, "CLUSTER_ACTION": 9, "DESCRIBE_CONFIGS": 10, "ALTER_CONFIGS": 11,
        "IDEMPOTENT_WRITE": 12, "CREATE_TOKENS": 13, "DESCRIBE_TOKENS": 14, "TWO_PHASE_COMMIT": 15,
    }
    for numbers in (Pattern, Permission):
        assert [each.value for each in numbers] == [n + 1 for n in range(len(numbers))]
