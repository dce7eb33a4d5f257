"""The ACLs of a run with guarded topics, and what they allowed at which time.

All clients have the same principal, so an ACL names the host of a client. Each change of the ACLs
makes a new version. A broker that applies changes late still uses an older one. So a request may be
judged by each version between the oldest that a broker shows when the request is sent, and the
newest that was asked for when the answer arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.replication.controller.access import (
    CLUSTER_NAME,
    Operation,
    Pattern,
    Permission,
    Resource,
)
from ottla.replication.principals import AccessRule
from ottla.wire.messages import CreateAclsRequest, DeleteAclsRequest
from tests.simulation.network import Broken

if TYPE_CHECKING:
    from ottla.replication.metadata import MetadataImage

OWNER = "10.9.0.1"
"""The host of the client that has all rights."""
ANYBODY = "User:*"
IMPLIED_BY = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
OF_THE_CLUSTER = (
    Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.CLUSTER_ACTION,
)
"""Operations on the cluster that clients with partial rights are denied. Some of them would allow
operations on every topic."""

Right = tuple[str, Operation, str]
"""A host, an operation and the name of a topic."""
Granted = frozenset[Right]


def rule_of(right: Right) -> AccessRule:
    """The ACL that grants a right."""
    host, operation, name = right
    return AccessRule(
        Resource.TOPIC, Pattern.LITERAL, name, ANYBODY, host, operation, Permission.ALLOW
    )


def first_rules(hosts: tuple[str, ...], names: tuple[str, ...]) -> list[AccessRule]:
    """The ACLs that never change. Clients at `hosts` have partial rights."""
    cluster = Resource.CLUSTER, Pattern.LITERAL, CLUSTER_NAME, ANYBODY
    return [
        AccessRule(*cluster, "*", Operation.ALL, Permission.ALLOW),
        *(AccessRule(*cluster, host, each, Permission.DENY)
          for host in hosts for each in OF_THE_CLUSTER),
        *(rule_of((OWNER, Operation.ALL, name)) for name in names),
    ]


def creation_of(rules: list[AccessRule]) -> CreateAclsRequest:
    made = CreateAclsRequest.Creation
    return CreateAclsRequest(creations=[
        made(
            resource_type=each.resource_type, resource_name=each.resource_name,
            resource_pattern_type=each.pattern_type, principal=each.principal, host=each.host,
            operation=each.operation, permission_type=each.permission,
        ) for each in rules
    ])


def deletion_of(rule: AccessRule) -> DeleteAclsRequest:
    made = DeleteAclsRequest.Filter
    return DeleteAclsRequest(filters=[made(
        resource_type_filter=rule.resource_type, resource_name_filter=rule.resource_name,
        pattern_type_filter=rule.pattern_type, principal_filter=rule.principal,
        host_filter=rule.host, operation=rule.operation, permission_type=rule.permission,
    )])


class Rights:
    """All versions of the ACLs. Before the first one, everything is allowed to everybody.

    `ask` sends a request of the owner to any broker; `decided` is the newest image, None if no
    broker has it at present; `shown` are the images that the brokers use.
    """

    def __init__(
        self, ask: Callable[[Any, int], Any], decided: Callable[[], MetadataImage | None],
        shown: Callable[[], list[MetadataImage]],
    ) -> None:
        self.ask, self.decided, self.shown = ask, decided, shown
        self.versions: list[Granted | None] = [None]
        self.offsets: list[int | None] = [0]
        """The offset of an image that has this version; None until its change was answered."""

    @property
    def newest(self) -> Granted:
        """The rights in the newest version."""
        return self.versions[-1] or frozenset()

    def oldest(self) -> int:
        """The number of the oldest version that a broker may use at present."""
        known = [(at, offset) for at, offset in enumerate(self.offsets) if offset is not None]
        return min((
            max(at for at, offset in known if offset <= image.offset) for image in self.shown()
        ), default=0)

    def possible(self, since: int, host: str, operation: Operation, name: str) -> bool:
        """Whether one of the versions from `since` on allows this."""
        return any(allows(each, host, operation, name) for each in self.versions[since:])

    def certain(self, since: int, host: str, operation: Operation, name: str) -> bool:
        """Whether all versions from `since` on allow this."""
        return all(allows(each, host, operation, name) for each in self.versions[since:])

    async def begin(self, rules: list[AccessRule], granted: Granted) -> None:
        """Create the first ACLs, in one request."""
        await self._change(granted, creation_of([*rules, *map(rule_of, sorted(granted))]), 1)

    async def change(self, right: Right) -> None:
        """Grant a right, or take it away if it is granted."""
        if right in self.newest:
            request: Any = deletion_of(rule_of(right))
        else:
            request = creation_of([rule_of(right)])
        await self._change(self.newest ^ {right}, request, 1)

    async def _change(self, granted: Granted, request: Any, version: int) -> None:
        self.versions.append(granted)
        self.offsets.append(None)
        while True:
            try:
                answer = await self.ask(request, version)
            except Broken:
                await asyncio.sleep(0.1)
                continue
            parts = answer.results if hasattr(answer, "results") else answer.filter_results
            if not any(each.error_code for each in parts):
                break
            await asyncio.sleep(0.1)
        while (image := self.decided()) is None:
            await asyncio.sleep(0.1)
        self.offsets[-1] = image.offset


def allows(granted: Granted | None, host: str, operation: Operation, name: str) -> bool:
    """Whether a version of the ACLs allows an operation on a topic."""
    if granted is None or host == OWNER:
        return True
    return any(
        (host, each, name) in granted for each in (operation, *IMPLIED_BY.get(operation, ()))
    )
