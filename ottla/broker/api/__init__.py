"""One file for each area of the protocol, imported at the first request for one of its APIs."""

from importlib import import_module

from ottla.broker.dispatch import expect
from ottla.wire.apis import ApiKey

AREAS = {
    "access_control": (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS),
    "authentication": (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
    "delegation_tokens": (
        ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ),
    "classic_groups": (ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.SYNC_GROUP),
    "controller": (
        ApiKey.ENVELOPE, ApiKey.BROKER_HEARTBEAT, ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ALTER_PARTITION, ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ),
    "configs": (
        ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.LIST_CONFIG_RESOURCES,
    ),
    "consumer_groups": (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE),
    "find_coordinator": (ApiKey.FIND_COORDINATOR,),
    "credentials": (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS),
    "delete_records": (ApiKey.DELETE_RECORDS,),
    "features": (ApiKey.UPDATE_FEATURES,),
    "records.fetch": (ApiKey.FETCH,),
    "group_admin": (ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS),
    "group_offsets": (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE),
    "log_dirs": (ApiKey.ALTER_REPLICA_LOG_DIRS, ApiKey.DESCRIBE_LOG_DIRS),
    "metadata": (ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_TOPIC_PARTITIONS),
    "offsets": (ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH),
    "partitions": (
        ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ),
    "records.produce": (ApiKey.PRODUCE,),
    "producer_ids": (ApiKey.INIT_PRODUCER_ID,),
    "quorum": (
        ApiKey.DESCRIBE_QUORUM, ApiKey.UNREGISTER_BROKER, ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    ),
    "quotas": (ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS),
    "telemetry": (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY),
    "topics": (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS),
    "transaction_admin": (
        ApiKey.WRITE_TXN_MARKERS, ApiKey.DESCRIBE_PRODUCERS, ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    ),
    "transaction_offsets": (ApiKey.TXN_OFFSET_COMMIT,),
    "transactions": (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN),
    "versions": (ApiKey.API_VERSIONS,),
}

for area, keys in AREAS.items():
    for key in keys:
        expect(key, f"{__name__}.{area}")


def load() -> None:
    """Import every area now."""
    for area in AREAS:
        import_module(f"{__name__}.{area}")
