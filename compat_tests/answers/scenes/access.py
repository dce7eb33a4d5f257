"""ACLs, at brokers with an authorizer."""

from __future__ import annotations

from compat_tests.answers.conversation import Talk
from compat_tests.answers.variants import Body
from compat_tests.answers.versions import COMMON_VERSIONS
from ottla.wire.apis import ApiKey

SKIPPED = ("resource_name_filter",)


def rule(name: str = "t", **more: object) -> Body:
    """An ACL for a topic."""
    return {"resource_type": 2, "resource_name": name, "resource_pattern_type": 3,
            "principal": "User:me", "host": "*", "operation": 3, "permission_type": 3} | more


def rule_filter(name: str | None, **more: object) -> Body:
    """A filter that matches all ACLs of resources with this name (any name if None)."""
    return {"resource_type_filter": 1, "resource_name_filter": name, "pattern_type_filter": 1,
            "principal_filter": None, "host_filter": None, "operation": 1,
            "permission_type": 1} | more


def creating_rules(talk: Talk) -> None:
    """Creates ACLs, with each field wrong in turn, and describes them."""
    for kind in (2, 3, 4, 5, 6, 7):
        name = talk.fresh("r") if kind != 4 else "kafka-cluster"
        talk.explore("CreateAcls", lambda kind=kind, name=name: {  # type: ignore[misc]
            "creations": [rule(name, resource_type=kind, operation=8)]}, stride=1)
        for operation in range(-1, 15):
            talk.ask("CreateAcls", 3, {"creations": [rule(name, resource_type=kind,
                                                          operation=operation)]})
        talk.ask("DescribeAcls", 3, rule_filter(name))
    for principal in ("", "User", "User:", ":x", "user:x", "User:*", "Group:x", "a:b:c"):
        talk.ask("CreateAcls", 3, {"creations": [rule(principal=principal)]})
    for host in ("", "*", "127.0.0.1", "nonsense", "::1"):
        talk.ask("CreateAcls", 3, {"creations": [rule(host=host)]})
    talk.ask("CreateAcls", 3, {"creations": []})
    talk.ask("CreateAcls", 3, {"creations": [rule(), rule(), rule("", host="x")]})
    for version in COMMON_VERSIONS[ApiKey.DESCRIBE_ACLS]:
        talk.ask("DescribeAcls", version, rule_filter("t"))


def finding_rules(talk: Talk) -> None:
    """Describes and deletes ACLs by filters, with each field of a filter wrong in turn."""
    name = talk.fresh("r")

    def create() -> None:
        talk.ask("CreateAcls", 3, {"creations": [
            rule(name), rule(name[:-1], resource_pattern_type=4), rule(name, permission_type=2),
            rule("*"), rule(name, resource_type=3),
        ]})  # fmt: skip

    create()
    for pattern in range(-1, 6):
        talk.explore("DescribeAcls", lambda pattern=pattern: rule_filter(  # type: ignore[misc]
            name, pattern_type_filter=pattern), stride=1, skip=SKIPPED)
    for pattern in (1, 2, 3, 4):
        talk.explore("DeleteAcls", lambda pattern=pattern: {  # type: ignore[misc]
            "filters": [rule_filter(name, pattern_type_filter=pattern)],
        }, stride=1, skip=SKIPPED)
        create()
    talk.ask("DeleteAcls", 3, {"filters": []})
    talk.ask("DeleteAcls", 3, {"filters": [rule_filter(name), rule_filter(name)]})


def operations_allowed(talk: Talk) -> None:
    """Requests with and without the flag that asks for authorized operations."""
    topic, group = talk.topic("t"), talk.fresh("g")
    for asked in (False, True):
        for version in range(3, 7):
            talk.ask("DescribeGroups", version, {"groups": [group],
                                                 "include_authorized_operations": asked})
        for version in range(8, 14):
            talk.ask("Metadata", version, {
                "topics": [{"name": topic, "topic_id": bytes(16)},
                           {"name": "nobody", "topic_id": bytes(16)}],
                "allow_auto_topic_creation": False,
                "include_cluster_authorized_operations": asked,
                "include_topic_authorized_operations": asked,
            })  # fmt: skip
        for version in range(3):
            talk.ask("DescribeCluster", version, {
                "include_cluster_authorized_operations": asked, "endpoint_type": 1,
                "include_fenced_brokers": False})


SCENES = (creating_rules, finding_rules, operations_allowed)
