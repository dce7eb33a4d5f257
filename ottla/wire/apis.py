"""The APIs of the protocol: keys, versions, listeners, and the classes of their messages.

Everything except the names in `ApiKey` comes from the first two lines of `schema/*.txt`. Reading
them takes two milliseconds for all files; the rest of a file is read when its messages are needed.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from ottla.wire import messages
from ottla.wire.schema_parser import SCHEMA_FOLDER, camel_case, read_first_lines


class ApiKey(IntEnum):
    """The API keys. The four that were removed with ZooKeeper mode (4 to 7) are missing."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94


@dataclass(frozen=True)
class Api:
    """One API. `versions`: stable in Apache Kafka 4.4, extended down to the lowest stable in
    3.9."""

    key: ApiKey
    name: str
    versions: range
    flexible_from: int | None
    """First version with compact lengths and tagged fields; None if no version has them."""
    listeners: frozenset[str]
    """`broker` if clients may send it, `controller` if only brokers send it to the controller."""
    served_by: str
    """The module of `ottla.broker.api` with the handler; empty if this broker does not serve it."""
    roles: frozenset[str]
    """Which of `schema_parser.ROLES` it has."""

    @cached_property
    def request(self) -> type[messages.Message]:
        """The class of its requests."""
        message: type[messages.Message] = getattr(messages, f"{self.name}Request")
        return message

    @cached_property
    def response(self) -> type[messages.Message]:
        """The class of its responses."""
        message: type[messages.Message] = getattr(messages, f"{self.name}Response")
        return message


def read_apis() -> dict[int, Api]:
    """The APIs by key, in the order of their keys."""
    apis = []
    for path in SCHEMA_FOLDER.glob("*.txt"):
        with path.open(encoding="ascii") as file:
            schema = read_first_lines(file)
        key = ApiKey[schema.name.upper()]
        apis.append(Api(
            key, camel_case(schema.name), schema.versions, schema.flexible_from,
            frozenset(schema.listeners), schema.served_by, schema.roles,
        ))
    return {api.key: api for api in sorted(apis, key=lambda api: api.key)}


APIS = read_apis()


def with_role(*roles: str) -> frozenset[ApiKey]:
    """The APIs that have one of these roles."""
    return frozenset(api.key for api in APIS.values() if not api.roles.isdisjoint(roles))


AUDITED = with_role("audited")
FORWARDED = with_role("forwarded", "forwarded_in_part")
FORWARDED_AFTER_CHECK = with_role("forwarded_after_check")
BETWEEN_BROKERS = with_role("between_brokers")
