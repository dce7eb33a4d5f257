"""ACLs (rules for a resource, a principal, a host and an operation): list, create, delete."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.errors import check
from ottla.replication.networks import parse_network
from ottla.wire.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

RESOURCES = {
    "ANY": 1,
    "TOPIC": 2,
    "GROUP": 3,
    "CLUSTER": 4,
    "TRANSACTIONAL_ID": 5,
    "DELEGATION_TOKEN": 6,
    "USER": 7,
}
PATTERNS = {"ANY": 1, "MATCH": 2, "LITERAL": 3, "PREFIXED": 4}
OPERATIONS = {
    "ANY": 1,
    "ALL": 2,
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
    "CREATE_TOKENS": 13,
    "DESCRIBE_TOKENS": 14,
    "TWO_PHASE_COMMIT": 15,
}
TOPIC_OPERATIONS = (
    "WRITE",
    "CREATE",
    "ALTER_CONFIGS",
    "DESCRIBE_CONFIGS",
    "ALTER",
    "DESCRIBE",
    "READ",
    "ALL",
    "DELETE",
)
SUPPORTED: dict[str, tuple[str, ...]] = {
    "TOPIC": TOPIC_OPERATIONS,
    "GROUP": ("READ", "DESCRIBE", "DELETE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "ALL"),
    "CLUSTER": (
        "IDEMPOTENT_WRITE",
        "CREATE",
        "ALTER_CONFIGS",
        "ALTER",
        "DESCRIBE_CONFIGS",
        "DESCRIBE",
        "CLUSTER_ACTION",
        "ALL",
    ),
    "TRANSACTIONAL_ID": ("DESCRIBE", "WRITE", "TWO_PHASE_COMMIT", "ALL"),
    "DELEGATION_TOKEN": ("DESCRIBE", "ALL"),
    "USER": ("CREATE_TOKENS", "DESCRIBE_TOKENS", "ALL"),
}
"""The operations on each kind of resource. Brokers accept rules with other operations, too, as
Apache Kafka's do, but such a rule has no effect."""
PERMISSIONS = {"ANY": 1, "DENY": 2, "ALLOW": 3}
CLUSTER_NAME = "kafka-cluster"


def name_of(table: dict[str, int], number: int) -> str:
    """The name of a number in `table`; UNKNOWN if the table does not have the number."""
    return next((name for name, known in table.items() if known == number), "UNKNOWN")


class Pattern(NamedTuple):
    """The resources that rules refer to. In a filter, the name None matches any name."""

    resource: str
    name: str | None
    kind: str = "LITERAL"


class Rule(NamedTuple):
    """An operation that is allowed or denied to a principal from a host. In a filter, None matches
    anything."""

    principal: str | None
    host: str | None
    operation: str
    permission: str


ANY_RULE = Rule(None, None, "ANY", "ANY")
ANY_PATTERN = Pattern("ANY", None, "ANY")


def why_for_nobody(principal: str, host: str = "*") -> str:
    """Why a rule would match no client: its principal or its host is mistyped. Returns "" if the
    rule may match clients. The broker accepts mistyped rules, as Apache Kafka's does."""
    kind, _, name = principal.partition(":")
    if kind != "User" or not name.strip():
        return f"principal {principal!r}: expected User:NAME, or User:* for every user"
    try:
        if host != "*":
            (parse_network if "/" in host else ip_address)(host)
    except ValueError as wrong:
        why = f" ({wrong})" if "/" in host else ""
        return (f"host {host!r}: expected an IP address, a network such as 10.0.0.0/8, or * for"
                f" every client{why}")
    return ""


def describe(
    cluster: ClusterClient, pattern: Pattern = ANY_PATTERN, rule: Rule = ANY_RULE
) -> dict[Pattern, list[Rule]]:
    """The matching rules, by resource."""
    request = DescribeAclsRequest(
        resource_type_filter=RESOURCES[pattern.resource],
        resource_name_filter=pattern.name,
        pattern_type_filter=PATTERNS[pattern.kind],
        principal_filter=rule.principal,
        host_filter=rule.host,
        operation=OPERATIONS[rule.operation],
        permission_type=PERMISSIONS[rule.permission],
    )
    response = cluster.any().call(request)
    check(response.error_code, response.error_message)
    return {
        Pattern(
            name_of(RESOURCES, item.resource_type),
            item.resource_name,
            name_of(PATTERNS, item.pattern_type),
        ): [
            Rule(
                acl.principal,
                acl.host,
                name_of(OPERATIONS, acl.operation),
                name_of(PERMISSIONS, acl.permission_type),
            )
            for acl in item.acls
        ]
        for item in response.resources
    }


def create(cluster: ClusterClient, rules: Iterable[tuple[Pattern, Rule]]) -> None:
    """Creates rules; raises Refused for the first rejected rule."""
    creations = [
        CreateAclsRequest.Creation(
            resource_type=RESOURCES[pattern.resource],
            resource_name=pattern.name or "",
            resource_pattern_type=PATTERNS[pattern.kind],
            principal=rule.principal or "",
            host="*" if rule.host is None else rule.host,
            operation=OPERATIONS[rule.operation],
            permission_type=PERMISSIONS[rule.permission],
        )
        for pattern, rule in rules
    ]
    for result in cluster.controller().call(CreateAclsRequest(creations=creations)).results:
        check(result.error_code, result.error_message)


def delete(
    cluster: ClusterClient, filters: Sequence[tuple[Pattern, Rule]]
) -> list[tuple[Pattern, Rule]]:
    """Deletes the rules that match any of the filters, and returns them."""
    request_filters = [
        DeleteAclsRequest.Filter(
            resource_type_filter=RESOURCES[pattern.resource],
            resource_name_filter=pattern.name,
            pattern_type_filter=PATTERNS[pattern.kind],
            principal_filter=rule.principal,
            host_filter=rule.host,
            operation=OPERATIONS[rule.operation],
            permission_type=PERMISSIONS[rule.permission],
        )
        for pattern, rule in filters
    ]
    deleted = []
    response = cluster.controller().call(DeleteAclsRequest(filters=request_filters))
    for result in response.filter_results:
        check(result.error_code, result.error_message)
        for acl in result.matching_acls:
            check(acl.error_code, acl.error_message)
            deleted.append(
                (
                    Pattern(
                        name_of(RESOURCES, acl.resource_type),
                        acl.resource_name,
                        name_of(PATTERNS, acl.pattern_type),
                    ),
                    Rule(
                        acl.principal,
                        acl.host,
                        name_of(OPERATIONS, acl.operation),
                        name_of(PERMISSIONS, acl.permission_type),
                    ),
                )
            )
    return deleted
