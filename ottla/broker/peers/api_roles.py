"""The APIs that not every broker of a cluster serves by itself."""

from __future__ import annotations

from ottla.wire.apis import ApiKey

DECIDED = frozenset({
    ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS,
    ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.UPDATE_FEATURES, ApiKey.UNREGISTER_BROKER,
})
"""The controller decides them; another broker forwards them to it (KIP-590)."""
IN_PARTS = frozenset({ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS})
"""Of these, the ones of which the broker that is asked serves and checks its own part."""
BETWEEN_BROKERS = frozenset({
    ApiKey.ENVELOPE, ApiKey.ALTER_PARTITION, ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.BROKER_HEARTBEAT,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
})
"""Served only in a cluster, and only on the listener for connections between brokers."""
TOKENS = frozenset({
    ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN,
})
"""The same, once the broker that is asked has seen how the client is connected."""
