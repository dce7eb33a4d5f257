"""What a partition's shard needs of a group of any kind: classic, KIP-848, and those to come."""

from __future__ import annotations

from collections.abc import Sized
from typing import Protocol

from ottla.groups.records import CommittedOffset, Record
from ottla.groups.result import Answer


class Group(Protocol):
    """A group and its members, whatever their protocol."""

    group_id: str

    @property
    def type_name(self) -> str:
        """For ListGroups."""

    @property
    def protocol_type(self) -> str | None:
        """For ListGroups; None while it has had no members."""

    @property
    def members(self) -> Sized:
        """The members."""

    @property
    def is_empty(self) -> bool:
        """Whether the group may be deleted."""

    @property
    def is_unused(self) -> bool:
        """Whether the group may be removed once it has no offsets."""

    @property
    def tells_topics(self) -> bool:
        """Whether the topics that members read can be determined."""

    @property
    def state_name(self) -> str:
        """For ListGroups and descriptions."""

    @property
    def summary(self) -> str:
        """State and size, for the log."""

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member reads the topic."""

    def expiry_base_ms(self, value: CommittedOffset) -> int | None:
        """The Unix time from which an offset's retention counts; None while it cannot expire.

        An empty group's offsets expire together, counted from when it became empty. A consumer
        group with members loses offsets of topics that it no longer reads, counted from their last
        commit.
        """

    def take_answers(self) -> list[Answer]:
        """Remove and return the pending answers of its members."""

    def tombstones(self) -> list[Record]:
        """Records that remove the group."""
