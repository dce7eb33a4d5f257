"""Answers requests for group ids that have no group. The first member to join, by the classic
protocol or by KIP-848, creates the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from ottla.groups.classic.requests import ServedClassicGroup
from ottla.groups.consumer.heartbeat import (
    JOIN,
    Heartbeat,
    HeartbeatReply,
    UnchangedHeartbeat,
    first_group,
    heartbeat,
)
from ottla.groups.errors import GroupIdNotFound, IllegalGeneration, UnknownMember

if TYPE_CHECKING:
    from ottla.groups.classic.messages import Join, Leaving, Sync
    from ottla.groups.consumer.group import ConsumerGroup
    from ottla.groups.group import Context
    from ottla.groups.offset_requests import Commit
    from ottla.groups.result import Answer, Result
    from ottla.wire.errors import ErrorCode


class AbsentGroup:
    """Answers the requests for any group id that has no group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    def join(self, request: Join, answer: Answer, result: Result, context: Context) -> None:
        """Creates a classic group. Raises UnknownMember if the request has a member id."""
        if request.member_id:
            raise UnknownMember(f"group {self.group_id!r} not found")
        group = ServedClassicGroup(self.group_id, state_ms=result.wall_ms)
        try:
            group.join(request, answer, result, context)
        finally:
            if group.is_forming:
                context.place(group)

    def sync(self, request: Sync, answer: Answer, result: Result, context: Context) -> None:
        """Raises UnknownMember: without a group there is no member."""
        self._refuse_member()

    def heartbeat(
        self, generation: int, member_id: str, instance_id: str | None, tick_ms: int
    ) -> ErrorCode:
        """Raises UnknownMember."""
        self._refuse_member()

    def leave(
        self, leaving: Sequence[Leaving], result: Result, context: Context
    ) -> list[ErrorCode]:
        """Raises UnknownMember."""
        self._refuse_member()

    def _refuse_member(self) -> NoReturn:
        raise UnknownMember(f"classic group {self.group_id!r} not found")

    def beat(self, request: Heartbeat, result: Result, context: Context) -> HeartbeatReply:
        """Creates a KIP-848 group. Raises GroupIdNotFound for a heartbeat that does not join."""
        if request.member_epoch != JOIN:
            raise GroupIdNotFound(f"consumer group {self.group_id!r} not found")
        group: ConsumerGroup = first_group(request)
        return heartbeat(group, request, result, context.settings, context.cluster)

    def keep_alive(
        self, request: UnchangedHeartbeat, client: tuple[str, str], tick_ms: int, context: Context
    ) -> None:
        """Returns None: then the caller uses `beat`, which refuses the heartbeat."""

    def check_commit(self, request: Commit, result: Result, context: Context) -> None:
        """Raises GroupIdNotFound for a member's commit (IllegalGeneration for older clients)."""
        if request.generation >= 0:
            error = GroupIdNotFound if request.knows_kip_848 else IllegalGeneration
            raise error(f"group {self.group_id!r} not found")

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Any client may fetch: there are no offsets, or only those of a former group."""
