"""`ottla acl …`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection

from ottla.client.errors import ClientError
from ottla.client.similar_names import similar
from ottla.tools.admin import acls
from ottla.tools.admin.acls import CLUSTER_NAME, Pattern, Rule
from ottla.tools.cli.bootstrap import connect
from ottla.tools.cli.output import confirm, done
from ottla.tools.cli.output import show as print_rows
from ottla.tools.usage import WrongUsage
from ottla.wire.wording import counted

KINDS = {
    "topic": "TOPIC",
    "group": "GROUP",
    "transaction": "TRANSACTIONAL_ID",
    "token": "DELEGATION_TOKEN",
    "user": "USER",
}
SHOWN = {resource: name for name, resource in KINDS.items()}


def pattern_of(text: str) -> Pattern:
    """Parses `topic/orders`, `topic/orders*` (a prefix), `topic/*` (all) or `cluster`."""
    if text == "cluster":
        return Pattern("CLUSTER", CLUSTER_NAME)
    kind, slash, name = text.partition("/")
    if not slash or kind not in KINDS or not name:
        near = similar(kind, [*KINDS, "cluster"])
        raise WrongUsage(
            f"{text!r}: expected cluster or one of "
            + ", ".join(f"{one}/NAME" for one in KINDS) + near
        )
    if name.endswith("*") and name != "*":
        return Pattern(KINDS[kind], name[:-1], "PREFIXED")
    return Pattern(KINDS[kind], name)


def resource_of(pattern: Pattern) -> str:
    """The text of a pattern."""
    if pattern.resource == "CLUSTER":
        return "cluster"
    star = "*" if pattern.kind == "PREFIXED" else ""
    return f"{SHOWN.get(pattern.resource, pattern.resource.lower())}/{pattern.name}{star}"


def check_principal(principal: str | None) -> None:
    """Raises WrongUsage for a principal without a type, which no ACL can have."""
    if principal is not None and ":" not in principal:
        raise WrongUsage(f"principal {principal!r}: expected User:NAME")


def show(options: Namespace) -> None:
    check_principal(options.principal)
    pattern = pattern_of(options.resource) if options.resource else acls.ANY_PATTERN
    rule = Rule(options.principal, None, "ANY", "ANY")
    with connect(options) as cluster:
        found = acls.describe(cluster, pattern, rule)
    print_rows(
        options,
        ("principal", "permission", "operation", "resource", "host"),
        (
            {
                "principal": one.principal,
                "permission": one.permission.lower(),
                "operation": one.operation.lower(),
                "resource": resource_of(about),
                "host": one.host,
            }
            for about, rules in sorted(found.items(), key=str)
            for one in sorted(rules, key=str)
        ),
    )


def operation_of(text: str, allowed: Collection[str]) -> str:
    """Parses an operation, such as `read` or `describe-configs`."""
    operation = text.upper().replace("-", "_")
    if operation not in allowed:
        known = [name.lower() for name in allowed]
        near = similar(text, known) or f": expected one of {', '.join(known)}"
        raise WrongUsage(f"operation {text!r} is unknown{near}")
    return operation


def add(options: Namespace) -> None:
    operation = operation_of(options.operation, [one for one in acls.OPERATIONS if one != "ANY"])
    host = options.host or "*"
    if why := acls.why_for_nobody(options.principal, host):
        raise WrongUsage(why)
    rule = Rule(options.principal, host, operation, "DENY" if options.deny else "ALLOW")
    pattern = pattern_of(options.resource)
    if operation not in acls.SUPPORTED[pattern.resource]:
        known = ", ".join(map(str.lower, acls.SUPPORTED[pattern.resource]))
        raise WrongUsage(f"{options.resource} has no operation {options.operation!r}, so the ACL"
                         f" would have no effect: expected one of {known}")
    with connect(options) as cluster:
        if options.dry_run:
            acls.describe(cluster, pattern, rule)       # fails if the broker has no authorizer
        else:
            acls.create(cluster, [(pattern, rule)])
    verb = "denied" if options.deny else "allowed"
    done(options, f"{verb} {options.principal} to {options.operation} {options.resource}")


def delete(options: Namespace) -> None:
    check_principal(options.principal)
    pattern = pattern_of(options.resource) if options.resource else acls.ANY_PATTERN
    rule = Rule(
        options.principal, None, operation_of(options.operation or "any", acls.OPERATIONS), "ANY")
    with connect(options) as cluster:
        found = acls.describe(cluster, pattern, rule)
        count = sum(map(len, found.values()))
        if not count:
            narrowed = f" of operation {options.operation}" if options.operation else ""
            narrowed += f" for {options.resource}" if options.resource else ""
            raise ClientError(
                f"{options.principal} has no ACLs{narrowed}; to see all ACLs: ottla acl list")
        rules = f"{counted(count, 'ACL')} of {options.principal}"
        confirm(options, f"removing {rules}", options.principal)
        if not options.dry_run:
            acls.delete(cluster, [(pattern, rule)])
    done(options, f"removed {rules}")
