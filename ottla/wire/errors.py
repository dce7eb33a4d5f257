"""Kafka's error codes, and the exceptions that carry them through the broker.

Errors are raised as ProtocolError where they are detected; handlers and dispatch turn them into
error codes. MalformedMessage closes the connection instead, since bytes that cannot be parsed as a
request cannot be answered.
Reference: Kafka protocol guide, "Error Codes".
"""

from enum import IntEnum
from typing import Self


class ErrorCode(IntEnum):
    """Every code that Apache Kafka 4.4 sends."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    GROUP_DELETION_FAILED = 134
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135
    CONTROLLER_ID_NOT_REGISTERED = 136


RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
"""Codes after which a client may send the same request again."""


class MalformedMessage(ValueError):
    """Bytes that are not a valid message of the protocol; their connection is closed."""


class UnencodableMessage(ValueError):
    """A value that its field cannot hold: a forbidden null, too long, or out of range."""


class NotInThisVersion(UnencodableMessage):
    """A field is set and must not be dropped, but the version to be written lacks this field."""


class NumberOutOfRange(UnencodableMessage):
    """A number that its field cannot hold. `field` is empty until `located` adds its name."""

    def __init__(self, value: int | None, lowest: int, highest: int, where: str = "") -> None:
        number = "the number" if value is None else value
        self.what = f"{number} is not between {lowest} and {highest}"
        super().__init__(f"{where}: {self.what}" if where else self.what)
        self.value, self.lowest, self.highest = value, lowest, highest
        """The value is None if it has more than 64 bits."""
        self.field = where.partition(" ")[0].rpartition(".")[2]

    @property
    def sentence(self) -> str:
        """The error's text for a user: without the message and version that `located` added."""
        return f"{self.field.replace('_', ' ')}: {self.what}" if self.field else self.what


def located(error: Exception, where: str) -> UnencodableMessage:
    """An error about a value, with the field and the version in which it could not be encoded."""
    if isinstance(error, NumberOutOfRange):
        return NumberOutOfRange(error.value, error.lowest, error.highest, where)
    kind = type(error) if isinstance(error, UnencodableMessage) else UnencodableMessage
    return kind(f"{where}: {error}")


MESSAGE_MAX = 1000
"""Maximum characters of an error message to a client. A string in a reply is limited to 32,767
bytes, and a message may quote a name of that length from the request.
"""


def name_of(code: int) -> str:
    """An error's name, for the log; its number if Ottla does not know it."""
    known = ErrorCode.__members__.values()
    return ErrorCode(code).name if code in known else f"error {code}"


def as_message(text: str) -> str:
    """A text that may quote a long name from a request, shortened to fit into a reply."""
    return text if len(text) <= MESSAGE_MAX else f"{text[:MESSAGE_MAX]}..."


class ProtocolError(Exception):
    """An error for the client: a code, and a message with what was wrong, where, and what to do."""

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    record_errors: tuple[tuple[int, str], ...] = ()
    """The rejected records of a batch: index in the batch, and reason (KIP-467)."""

    def __init__(self, message: str = "", code: ErrorCode | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code

    @property
    def message(self) -> str:
        """The message for the client, which may be empty; shortened if it quotes a long text."""
        return as_message(str(self.args[0]))

    def kept(self) -> Self:
        """This error without its traceback, so that it can be stored. Frames of the traceback may
        refer to the error, and only the garbage collector would free such a cycle."""
        self.__traceback__ = self.__context__ = self.__cause__ = None
        return self

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code in RETRIABLE


class OffsetOutOfRange(ProtocolError):
    """No record has this offset: it is below the log's start or above its end."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class CorruptMessage(ProtocolError):
    """The bytes of a batch contradict its checksum, magic or length."""

    code = ErrorCode.CORRUPT_MESSAGE


class InvalidRecord(ProtocolError):
    """A batch with a valid checksum, but with fields that contradict each other."""

    code = ErrorCode.INVALID_RECORD


class InvalidTimestamp(ProtocolError):
    """A timestamp outside the range that the topic allows."""

    code = ErrorCode.INVALID_TIMESTAMP


class MessageTooLarge(ProtocolError):
    """A batch larger than the topic's max.message.bytes."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class UnsupportedCompression(ProtocolError):
    """A codec that is unknown, not installed, or not allowed in this version of the API."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class UnknownTopicOrPartition(ProtocolError):
    """This broker has no such topic or partition."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class UnknownTopicId(ProtocolError):
    """No topic has this id."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


class InvalidTopic(ProtocolError):
    """A name that is not valid for a topic, or that clients may not use."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class NotLeaderOrFollower(ProtocolError):
    """The broker is not the partition's leader or, if any replica may answer, not a replica."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class NotEnoughReplicas(ProtocolError):
    """Fewer replicas are in sync than acks=all demands."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class FencedLeaderEpoch(ProtocolError):
    """The client's leader epoch is older than the partition's."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(ProtocolError):
    """The client's leader epoch is newer than the partition's."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class StorageFailed(ProtocolError):
    """A disk operation failed, or the log or its directory is offline."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class OutOfOrderSequence(ProtocolError):
    """A batch whose sequence number does not follow the producer's previous batch (KIP-98)."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class DuplicateSequence(ProtocolError):
    """A batch that is in the log already, at an offset that is unknown after a restart (KIP-98)."""

    code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


class InvalidProducerEpoch(ProtocolError):
    """A producer fenced by a newer epoch (KIP-98)."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidRequest(ProtocolError):
    """A request that contradicts itself; the message gives the reason."""

    code = ErrorCode.INVALID_REQUEST


class InvalidConfig(ProtocolError):
    """A setting that is unknown, or a value that the setting does not allow."""

    code = ErrorCode.INVALID_CONFIG


class UnsupportedVersion(ProtocolError):
    """A version of an API that this broker does not serve."""

    code = ErrorCode.UNSUPPORTED_VERSION


class RequestTimedOut(ProtocolError):
    """The event that the request waits for did not happen in time."""

    code = ErrorCode.REQUEST_TIMED_OUT


class CoordinatorNotAvailable(ProtocolError):
    """The coordinator is not available yet; the client should retry."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
