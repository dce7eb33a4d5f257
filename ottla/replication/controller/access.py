"""The controller's decisions about ACLs (KIP-11, KIP-290), and the filters that select ACLs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.replication.metadata import Decision, MetadataImage, MetadataRecord
from ottla.replication.networks import parse_network
from ottla.replication.principals import AccessRule, RuleSet
from ottla.replication.steps import Steps, Stepwise
from ottla.wire.errors import InvalidRequest, ProtocolError, UnsupportedVersion

CLUSTER_NAME = "kafka-cluster"
EVERYTHING = "*"
"""The literal resource name that matches every name."""
NETWORKS_FROM = 32
"""The level of metadata.version, 4.4-IV1, from which ACLs may have networks as hosts."""


class Resource(IntEnum):
    """Kafka's numbers for types of resources."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(IntEnum):
    """How the name of an ACL or a filter is matched."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """Kafka's numbers for operations."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """What an ACL grants; a DENY takes precedence over every ALLOW."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class RuleFilter(NamedTuple):
    """Selects ACLs; None and ANY match all."""

    resource_type: int = Resource.ANY
    resource_name: str | None = None
    pattern_type: int = Pattern.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY


@Stepwise
def create_rules(
    image: MetadataImage, wanted: Sequence[AccessRule]
) -> Steps[Decision[list[ProtocolError | None]]]:
    """Add ACLs; the result has an error or None for each of `wanted`."""
    records: list[MetadataRecord] = []
    errors: list[ProtocolError | None] = []
    for rule in wanted:
        yield
        try:
            _check(rule)
            if "/" in rule.host:
                _check_network(rule.host, image.features.get("metadata.version", NETWORKS_FROM))
            errors.append(None)
        except ProtocolError as error:
            errors.append(error.kept())
        else:
            if rule not in image.rules:
                records.append(RuleSet(rule, True))
    return Decision(records, errors)


def _check(rule: AccessRule) -> None:
    _need_exact("resourceType", rule.resource_type, Resource, (Resource.ANY,))
    _need_exact("patternType", rule.pattern_type, Pattern, (Pattern.ANY, Pattern.MATCH))
    _need_exact("operation", rule.operation, Operation, (Operation.ANY,))
    _need_exact("permissionType", rule.permission, Permission, (Permission.ANY,))
    if rule.resource_type == Resource.CLUSTER and rule.resource_name != CLUSTER_NAME:
        raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not rule.resource_name:
        raise InvalidRequest("Invalid empty resource name")
    if ":" not in rule.principal:
        raise InvalidRequest(
            f"Could not parse principal from `{rule.principal}` (no colon is present separating the"
            " principal type from the principal name)"
        )
    if not rule.host:
        raise InvalidRequest("Host pattern cannot be null or empty")


def _check_network(host: str, level: int) -> None:
    """Refuse a network that cannot be parsed. Refuse any network while metadata.version is too low,
    since brokers of an older version would ignore the ACL."""
    if level < NETWORKS_FROM:
        raise UnsupportedVersion(
            "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
        )
    try:
        parse_network(host)
    except ValueError as error:
        raise InvalidRequest(f"Invalid CIDR notation '{host}': {error}") from error


def _need_exact(what: str, value: int, kind: type[IntEnum], vague: Iterable[int]) -> None:
    if value not in tuple(kind) or value in vague:
        name = kind(value).name if value in tuple(kind) else "UNKNOWN"
        raise InvalidRequest(f"Invalid {what} {name}")


@Stepwise
def delete_rules(
    image: MetadataImage, filters: Sequence[RuleFilter]
) -> Steps[Decision[list[list[AccessRule] | ProtocolError]]]:
    """Remove ACLs; the result has the matching ACLs, or an error, for each of `filters`."""
    gone: dict[AccessRule, None] = {}
    results: list[list[AccessRule] | ProtocolError] = []
    for each in filters:
        try:
            matching = []
            for rule in matching_rules(image, each):
                matching.append(rule)
                yield
        except ProtocolError as error:
            results.append(error.kept())
            continue
        gone.update(dict.fromkeys(matching))
        results.append(matching)
    return Decision([RuleSet(rule, False) for rule in gone], results)


def matching_rules(image: MetadataImage, wanted: RuleFilter) -> Iterator[AccessRule]:
    """The ACLs that match a filter. Raises InvalidRequest if the filter is not valid."""
    for what, value, kind in (
        ("resourceType", wanted.resource_type, Resource),
        ("patternType", wanted.pattern_type, Pattern),
        ("operation", wanted.operation, Operation),
        ("permissionType", wanted.permission, Permission),
    ):
        _need_exact(what, value, kind, ())
    return (rule for rule in image.rules if _matches(rule, wanted))


def _matches(rule: AccessRule, wanted: RuleFilter) -> bool:
    return (
        wanted.resource_type in (Resource.ANY, rule.resource_type)
        and wanted.operation in (Operation.ANY, rule.operation)
        and wanted.permission in (Permission.ANY, rule.permission)
        and wanted.principal in (None, rule.principal)
        and wanted.host in (None, rule.host)
        and _matches_name(rule, wanted.pattern_type, wanted.resource_name)
    )


def _matches_name(rule: AccessRule, pattern: int, name: str | None) -> bool:
    if pattern in (Pattern.LITERAL, Pattern.PREFIXED) and pattern != rule.pattern_type:
        return False
    if name is None or name == rule.resource_name:
        return True
    return pattern == Pattern.MATCH and is_about(rule, name)


def is_about(rule: AccessRule, name: str) -> bool:
    """Whether an ACL applies to the resource of this name; the caller has already compared the
    resource types."""
    if rule.pattern_type == Pattern.PREFIXED:
        return name.startswith(rule.resource_name)
    return rule.resource_name in (name, EVERYTHING)
