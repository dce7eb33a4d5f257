"""Decides who may do what: Kafka's StandardAuthorizer over the ACLs in the metadata.

A super user may do everything. An ACL's host is an address, a network or `*`. A denying ACL wins
over all allowing ACLs. If no ACL matches a resource, `allow.everyone.if.no.acl.found` decides;
otherwise an ACL has to allow the operation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ottla.broker.security.denials import Denials
from ottla.broker.settings.addresses import canonical_host
from ottla.replication.controller.access import (
    EVERYTHING,
    Operation,
    Pattern,
    Permission,
    Resource,
)
from ottla.replication.metadata import MetadataImage
from ottla.replication.networks import is_inside
from ottla.replication.principals import AccessRule

EVERYBODY, EVERY_HOST = "User:*", "*"
IMPLIED_BY = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""Each operation with the operations that imply it; denials imply nothing (KIP-11)."""
ANY_NAME = "hardcode"
"""Kafka's example of a resource's name, by which it decides whether some resource is allowed."""
CACHE_SIZE_MAX = 100_000
NAME_SIZE_MAX = 300
"""Decisions about longer names are not cached: clients may send any name of up to 32,767
characters."""

Question = tuple[str, str, int, int, str]


class RuleIndex:
    """The ACLs of one resource type, indexed by name."""

    def __init__(self) -> None:
        self.all: list[AccessRule] = []
        self.literal: dict[str, list[AccessRule]] = {}
        self.prefixed: dict[str, list[AccessRule]] = {}
        self.lengths: list[int] = []

    def add(self, rule: AccessRule) -> None:
        """Add an ACL."""
        self.all.append(rule)
        if rule.pattern_type == Pattern.PREFIXED:
            self.prefixed.setdefault(rule.resource_name, []).append(rule)
            if len(rule.resource_name) not in self.lengths:
                self.lengths = sorted([*self.lengths, len(rule.resource_name)])
        else:
            self.literal.setdefault(rule.resource_name, []).append(rule)

    def about(self, name: str) -> list[AccessRule]:
        """The ACLs that match the resource with this name."""
        rules = [*self.literal.get(name, ())]
        if name != EVERYTHING:
            rules += self.literal.get(EVERYTHING, ())
        for length in self.lengths:
            if length > len(name):
                break
            rules += self.prefixed.get(name[:length], ())
        return rules


class Authorizer:
    """Decides by the ACLs of the newest image; decisions are cached until the ACLs change."""

    def __init__(self, super_users: Iterable[str], allow_without_rules: bool) -> None:
        self.super_users = frozenset(super_users)
        self.allow_without_rules = allow_without_rules
        self.by_type: dict[int, RuleIndex] = {}
        self.known: dict[Question, bool] = {}
        self.denials = Denials()

    def follow(
        self, old: MetadataImage, new: MetadataImage, topics: Collection[str] = ()
    ) -> None:
        """Use the ACLs of the new image; called for each change of the metadata."""
        if new.rules is old.rules and self.by_type:
            return
        self.known = {}             # a new object, by which caches of decisions notice the change
        self.by_type = {kind: RuleIndex() for kind in Resource}
        for rule in new.rules:
            host = canonical_host(rule.host)
            same = rule if host == rule.host else rule._replace(host=host)
            self.by_type[rule.resource_type].add(same)

    def allows(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        """Whether `principal` at `host` may do `operation` with this resource."""
        question = (principal, host, operation, resource_type, name)
        answer = self.known.get(question)
        if answer is None:
            answer = self._decide(*question)
            if len(name) > NAME_SIZE_MAX:
                return answer
            if len(self.known) >= CACHE_SIZE_MAX:
                self.known.clear()
            self.known[question] = answer
        return answer

    def _decide(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        if principal in self.super_users:
            return True
        about = self.by_type[resource_type].about(name)
        if not about:
            return self.allow_without_rules
        mine = [rule for rule in about if _is_for(rule, principal, host)]
        allowing = (Operation.ALL, operation, *IMPLIED_BY.get(Operation(operation), ()))
        denied = any(
            rule.permission == Permission.DENY and rule.operation in (Operation.ALL, operation)
            for rule in mine
        )
        return not denied and any(
            rule.permission == Permission.ALLOW and rule.operation in allowing for rule in mine
        )

    def allows_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether `principal` may do the operation on at least one resource of this type.

        As in Kafka, it may if it could do it on a resource named `hardcode`. So
        `allow.everyone.if.no.acl.found` does not count if ACLs for all resources of this type do
        not allow the operation."""
        if self.allows(principal, host, operation, resource_type, ANY_NAME):
            return True
        mine = [r for r in self.by_type[resource_type].all if _is_for(r, principal, host)]
        wanted = (Operation.ALL, operation)
        denied = [r for r in mine if r.permission == Permission.DENY and r.operation in wanted]
        return any(
            rule.permission == Permission.ALLOW
            and rule.operation in (*wanted, *IMPLIED_BY.get(Operation(operation), ()))
            and not any(_covers(denial, rule) for denial in denied)
            for rule in mine
        )


def _is_for(rule: AccessRule, principal: str, host: str) -> bool:
    return rule.principal in (principal, EVERYBODY) and (
        rule.host in (host, EVERY_HOST) or is_inside(host, rule.host)
    )


def _covers(denial: AccessRule, rule: AccessRule) -> bool:
    """Whether `denial` matches everything that `rule` matches."""
    if denial.pattern_type == Pattern.LITERAL:
        if denial.resource_name == EVERYTHING:
            return True
        return (
            rule.pattern_type == Pattern.LITERAL and rule.resource_name == denial.resource_name
        )
    if rule.pattern_type == Pattern.LITERAL and rule.resource_name == EVERYTHING:
        return False
    return rule.resource_name.startswith(denial.resource_name)
