"""The versions of each API that Apache Kafka 4.4.0 and Ottla both serve."""

from __future__ import annotations

from ottla.wire.apis import APIS, ApiKey

KAFKA_FROM = {
    ApiKey.PRODUCE: 3, ApiKey.FETCH: 4, ApiKey.LIST_OFFSETS: 1, ApiKey.OFFSET_COMMIT: 2,
    ApiKey.OFFSET_FETCH: 1, ApiKey.CREATE_TOPICS: 2, ApiKey.DELETE_TOPICS: 1,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 2, ApiKey.WRITE_TXN_MARKERS: 1, ApiKey.DESCRIBE_ACLS: 1,
    ApiKey.CREATE_ACLS: 1, ApiKey.DELETE_ACLS: 1, ApiKey.DESCRIBE_CONFIGS: 1,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 1, ApiKey.DESCRIBE_LOG_DIRS: 1,
    ApiKey.CREATE_DELEGATION_TOKEN: 1, ApiKey.RENEW_DELEGATION_TOKEN: 1,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 1, ApiKey.DESCRIBE_DELEGATION_TOKEN: 1,
}  # fmt: skip
"""The first version that Kafka 4 serves of APIs that once had earlier versions."""

COMMON_VERSIONS = {
    key: range(KAFKA_FROM.get(key, api.versions.start), api.versions[-1] + 1)
    for key, api in APIS.items()
}
