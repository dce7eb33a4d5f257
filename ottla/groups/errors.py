"""The errors of a group coordinator, each with Kafka's code."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode, ProtocolError


class UnknownMember(ProtocolError):
    """The group has no such member; a classic consumer joins again with an empty member id."""

    code = ErrorCode.UNKNOWN_MEMBER_ID


class IllegalGeneration(ProtocolError):
    """The member's generation is not the group's."""

    code = ErrorCode.ILLEGAL_GENERATION


class RebalanceInProgress(ProtocolError):
    """The group is rebalancing; the member has to join again."""

    code = ErrorCode.REBALANCE_IN_PROGRESS


class InconsistentProtocol(ProtocolError):
    """No protocol of the member is supported by the whole group."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class FencedInstance(ProtocolError):
    """Another member has taken over this group instance id (KIP-345)."""

    code = ErrorCode.FENCED_INSTANCE_ID


class UnreleasedInstance(ProtocolError):
    """The group instance id belongs to a member that has not left (KIP-848)."""

    code = ErrorCode.UNRELEASED_INSTANCE_ID


class FencedMemberEpoch(ProtocolError):
    """The member has a wrong epoch; it gives up its partitions and joins again (KIP-848)."""

    code = ErrorCode.FENCED_MEMBER_EPOCH


class StaleMemberEpoch(ProtocolError):
    """The request's member epoch is not the member's current epoch (KIP-848)."""

    code = ErrorCode.STALE_MEMBER_EPOCH


class UnsupportedAssignor(ProtocolError):
    """No server-side assignor has this name (KIP-848)."""

    code = ErrorCode.UNSUPPORTED_ASSIGNOR


class InvalidRegularExpression(ProtocolError):
    """The subscription is not a valid RE2 expression (KIP-848)."""

    code = ErrorCode.INVALID_REGULAR_EXPRESSION


class MemberIdRequired(ProtocolError):
    """A new member has to join once more, with the id in this reply (KIP-394)."""

    code = ErrorCode.MEMBER_ID_REQUIRED


class GroupMaxSizeReached(ProtocolError):
    """The group has as many members as `group.max.size` or `group.consumer.max.size` allows."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class InvalidSessionTimeout(ProtocolError):
    """The timeout is below group.min.session.timeout.ms or above group.max.session.timeout.ms."""

    code = ErrorCode.INVALID_SESSION_TIMEOUT


class InvalidGroupId(ProtocolError):
    """The group id is empty, but one is required."""

    code = ErrorCode.INVALID_GROUP_ID


class GroupIdNotFound(ProtocolError):
    """The group does not exist, or is of another kind than the request is for."""

    code = ErrorCode.GROUP_ID_NOT_FOUND


class NonEmptyGroup(ProtocolError):
    """The group still has members."""

    code = ErrorCode.NON_EMPTY_GROUP


class NotCoordinator(ProtocolError):
    """Another broker coordinates this group; the client asks FindCoordinator again."""

    code = ErrorCode.NOT_COORDINATOR


class CoordinatorLoadInProgress(ProtocolError):
    """The groups of this partition are being loaded from the log; the client asks again."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


FINAL = (
    UnknownMember, IllegalGeneration, FencedInstance, UnreleasedInstance, FencedMemberEpoch,
    StaleMemberEpoch, InconsistentProtocol, GroupMaxSizeReached, GroupIdNotFound, NonEmptyGroup,
)
"""Errors after which a client gives up its partitions or its commit, or terminates."""
