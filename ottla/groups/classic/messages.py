"""Requests and replies of the classic group protocol, independent of the wire's versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla.groups.errors import MemberIdRequired


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup. `protocols` are (name, metadata) in order of preference."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    needs_member_id: bool = True
    """The client understands MEMBER_ID_REQUIRED (version 4, KIP-394)."""
    may_skip_assignment: bool = True
    """The client understands skip_assignment (version 9, KIP-814)."""
    sees: Callable[[str], bool] | None = None
    """Returns whether the client may see a topic; None if all clients may see all topics."""
    reason: str | None = None
    """The client's reason for joining, for logs (KIP-800)."""


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the leader's JoinGroup reply lists it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """The new generation; only the leader gets the members."""

    member_id: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class NewMemberId(MemberIdRequired):
    """The client has to join again with this member id."""

    def __init__(self, member_id: str) -> None:
        super().__init__("join again with the member id of this reply")
        self.member_id = member_id


@dataclass(frozen=True, slots=True)
class Sync:
    """A SyncGroup. Only the leader's SyncGroup has assignments, by member id."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Synced:
    """A member's assignment."""

    protocol_type: str | None
    protocol: str | None
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Leaving:
    """One member of a LeaveGroup. The member id is empty if an administrator removes a static
    member (KIP-345)."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None
    """The client's reason for leaving, for logs (KIP-800)."""
