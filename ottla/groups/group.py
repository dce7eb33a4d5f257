"""The interface between a partition's shard and its groups, of any kind.

`classic/requests.py` and `consumer/requests.py` implement it; `absent.py` answers for groups that
do not exist. A group refuses the requests that its kind does not serve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from ottla.groups.classic.messages import Join, Leaving, Sync
    from ottla.groups.cluster_view import ClusterView
    from ottla.groups.consumer.heartbeat import Heartbeat, HeartbeatReply, UnchangedHeartbeat
    from ottla.groups.offset_requests import Commit
    from ottla.groups.records import CommittedOffset, Record
    from ottla.groups.result import Answer, Result, TimerKey
    from ottla.groups.settings import GroupSettings
    from ottla.wire.errors import ErrorCode


@dataclass(slots=True, eq=False)
class Context:
    """The objects that groups use besides their own state, shared by all groups of a shard."""

    settings: GroupSettings
    cluster: ClusterView
    """The newest view of the cluster; replaced when the cluster changes."""
    new_id: Callable[[], str]
    """Makes the unique part of a member id."""
    place: Callable[[Group], None]
    """Adds a forming group, which has no records yet, to the shard."""


class Group(Protocol):
    """A group and its members, whatever their protocol."""

    group_id: str
    keys: ClassVar[tuple[type, ...]]
    """The types of the record keys that belong to a group of this class."""

    # Descriptions

    @property
    def type_name(self) -> str:
        """The group's type in ListGroups."""

    @property
    def protocol_type(self) -> str | None:
        """The protocol type in ListGroups; None until the group has had a member."""

    @property
    def members(self) -> Sized:
        """The members."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members, so that a client may delete it."""

    @property
    def is_unused(self) -> bool:
        """Whether the coordinator may delete the group by itself once the group has no offsets."""

    @property
    def tells_topics(self) -> bool:
        """Whether the topics that members read can be determined."""

    @property
    def state_name(self) -> str:
        """The state in ListGroups and in descriptions."""

    @property
    def summary(self) -> str:
        """State and size, for the log."""

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member reads the topic."""

    def expiry_base_ms(self, value: CommittedOffset) -> int | None:
        """The Unix time at which an offset's retention begins; None while it cannot expire.

        If the last member has left a classic group, the retention of all its offsets begins at that
        time. Otherwise the retention of an offset begins at its last commit. A consumer group with
        members loses only offsets of topics that it no longer reads.
        """

    # Requests of the classic protocol

    def join(self, request: Join, answer: Answer, result: Result, context: Context) -> None:
        """JoinGroup; answered at once or when all members have joined."""

    def sync(self, request: Sync, answer: Answer, result: Result, context: Context) -> None:
        """SyncGroup; answered when the assignment is recorded."""

    def heartbeat(
        self, generation: int, member_id: str, instance_id: str | None, tick_ms: int
    ) -> ErrorCode | None:
        """Serve a Heartbeat if it needs no `Result`: it adds no record and sets no timer. Returns
        None if it may need one: then call `heartbeat_turn`."""

    def heartbeat_turn(
        self,
        generation: int,
        member_id: str,
        instance_id: str | None,
        result: Result,
        context: Context,
    ) -> ErrorCode:
        """Serve a Heartbeat that may add records to the result or set timers."""

    def leave(
        self, leaving: Sequence[Leaving], result: Result, context: Context
    ) -> list[ErrorCode]:
        """LeaveGroup: a code for each member."""

    # Requests of KIP-848

    def beat(self, request: Heartbeat, result: Result, context: Context) -> HeartbeatReply:
        """ConsumerGroupHeartbeat, after its fields were checked."""

    def keep_alive(
        self, request: UnchangedHeartbeat, client: tuple[str, str], tick_ms: int, context: Context
    ) -> int | None:
        """Serve a ConsumerGroupHeartbeat without changes; returns the ms to the next heartbeat, or
        None if `beat` is needed."""

    # Offsets

    def check_commit(self, request: Commit, result: Result, context: Context) -> None:
        """Check that the client may commit offsets now."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Check that the client may fetch offsets as this member."""

    # Time and the log

    def fire(self, key: TimerKey, result: Result, context: Context) -> None:
        """Called when a timer of the group is due."""

    def loaded(self, result: Result, context: Context) -> None:
        """Starts the members' sessions after all records have been read."""

    def replay_record(self, key: Any, value: Any, aloud: bool) -> bool:
        """Applies a record with one of `keys`; returns whether the group still exists.

        With `aloud`, a change of the group's state is logged.
        """

    def take_answers(self) -> list[Answer]:
        """Remove and return the pending answers of the group's members."""

    def tombstones(self) -> list[Record]:
        """Records that remove the group."""
