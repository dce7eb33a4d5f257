"""What a group coordinator refuses, each with Kafka's code."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode, ProtocolError


class UnknownMember(ProtocolError):
    """The group has no such member; a consumer joins again with an empty member id."""

    code = ErrorCode.UNKNOWN_MEMBER_ID


class IllegalGeneration(ProtocolError):
    """The member speaks of a generation that is not the group's."""

    code = ErrorCode.ILLEGAL_GENERATION


class RebalanceInProgress(ProtocolError):
    """The group gathers its members anew; the member has to join again."""

    code = ErrorCode.REBALANCE_IN_PROGRESS


class InconsistentProtocol(ProtocolError):
    """No protocol of the member is spoken by the whole group."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class FencedInstance(ProtocolError):
    """Another member has taken over this group instance id (KIP-345)."""

    code = ErrorCode.FENCED_INSTANCE_ID


class UnreleasedInstance(ProtocolError):
    """The group instance id belongs to a member that has not left (KIP-848)."""

    code = ErrorCode.UNRELEASED_INSTANCE_ID


class FencedMemberEpoch(ProtocolError):
    """The member cannot have this epoch; it gives all up and joins again (KIP-848)."""

    code = ErrorCode.FENCED_MEMBER_EPOCH


class StaleMemberEpoch(ProtocolError):
    """The member has a newer epoch than the one that it commits or fetches with (KIP-848)."""

    code = ErrorCode.STALE_MEMBER_EPOCH


class UnsupportedAssignor(ProtocolError):
    """No server-side assignor has this name (KIP-848)."""

    code = ErrorCode.UNSUPPORTED_ASSIGNOR


class InvalidRegularExpression(ProtocolError):
    """A subscription that RE2 does not understand (KIP-848)."""

    code = ErrorCode.INVALID_REGULAR_EXPRESSION


class MemberIdRequired(ProtocolError):
    """A new member is to join once more, with the id that this reply carries (KIP-394)."""

    code = ErrorCode.MEMBER_ID_REQUIRED


class GroupMaxSizeReached(ProtocolError):
    """The group has `group.max.size` members."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class InvalidSessionTimeout(ProtocolError):
    """Outside of group.min.session.timeout.ms and group.max.session.timeout.ms."""

    code = ErrorCode.INVALID_SESSION_TIMEOUT


class InvalidGroupId(ProtocolError):
    """An empty group id where a group is needed."""

    code = ErrorCode.INVALID_GROUP_ID


class GroupIdNotFound(ProtocolError):
    """No such group."""

    code = ErrorCode.GROUP_ID_NOT_FOUND


class NonEmptyGroup(ProtocolError):
    """The group still has members."""

    code = ErrorCode.NON_EMPTY_GROUP


class NotCoordinator(ProtocolError):
    """Another broker coordinates this group; the client asks FindCoordinator again."""

    code = ErrorCode.NOT_COORDINATOR


class CoordinatorLoadInProgress(ProtocolError):
    """The groups of this partition are being read from the log; the client asks again."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
