"""Elections, reassignments, quotas, credentials, features, the quorum, SASL and tokens."""

from __future__ import annotations

from typing import Any

from compat_tests.answers.conversation import Talk
from compat_tests.answers.variants import Body
from compat_tests.answers.versions import COMMON_VERSIONS
from ottla.wire.apis import ApiKey


def elections(talk: Talk) -> None:
    """ElectLeaders of partitions, of none, and of all."""
    topic = talk.topic("t", 2)

    def make() -> Body:
        return {"election_type": 0, "timeout_ms": 5000,
                "topic_partitions": [{"topic": topic, "partitions": [0, 1]}]}

    talk.explore("ElectLeaders", make, skip=("timeout_ms", "topic_partitions"), stride=1)
    for version in COMMON_VERSIONS[ApiKey.ELECT_LEADERS]:
        for kind in (0, 1):
            for asked in (
                None, [], [{"topic": topic, "partitions": []}],
                [{"topic": topic, "partitions": [0, 0, 9]}], [{"topic": "nobody",
                                                               "partitions": [0]}],
                [{"topic": topic, "partitions": [0]}, {"topic": topic, "partitions": [1]}],
                [{"topic": "", "partitions": [0]}],
            ):
                talk.ask("ElectLeaders", version,
                         make() | {"election_type": kind, "topic_partitions": asked})


def reassignments(talk: Talk) -> None:
    """Reassignments to existing and missing brokers, and lists of reassignments."""
    topic = talk.topic("t", 2)

    def make(replicas: Any = (1,)) -> Body:
        partition = {"partition_index": 0,
                     "replicas": None if replicas is None else list(replicas)}
        return {"timeout_ms": 5000, "allow_replication_factor_change": True,
                "topics": [{"name": topic, "partitions": [partition]}]}

    talk.explore("AlterPartitionReassignments", make, skip=("timeout_ms",), stride=1)
    for version in (0, 1):
        for replicas in (None, (), (1, 1), (1, 2), (2,), (-1,)):
            for allow in (False, True):
                talk.ask("AlterPartitionReassignments", version,
                         make(replicas) | {"allow_replication_factor_change": allow})
    for topics in (None, [], [{"name": topic, "partition_indexes": [0, 9]}],
                   [{"name": "nobody", "partition_indexes": [0]}],
                   [{"name": topic, "partition_indexes": []}]):
        talk.ask("ListPartitionReassignments", 0, {"timeout_ms": 5000, "topics": topics})


def quotas(talk: Talk) -> None:
    """Sets quotas, describes them by many filters, and removes them."""
    user, client = talk.fresh("user"), talk.fresh("client")

    def entity(kind: str, name: str | None) -> Body:
        return {"entity_type": kind, "entity_name": name}

    def alter(entities: list[Body], key: str, value: float, remove: bool = False,
              validate: bool = False) -> None:
        for version in (0, 1):
            talk.ask("AlterClientQuotas", version, {
                "entries": [{"entity": entities,
                             "ops": [{"key": key, "value": value, "remove": remove}]}],
                "validate_only": validate,
            })  # fmt: skip

    rate = "producer_byte_rate"
    both = [entity("user", user), entity("client-id", client)]
    alter([entity("user", user)], rate, 1000.0)
    alter(both, "consumer_byte_rate", 2000.0)
    alter([entity("ip", "127.0.0.9")], "connection_creation_rate", 5.0)
    for value in (0.0, -1.0, 0.5, float("inf"), float("nan"), 1e300):
        alter([entity("user", user)], rate, value, validate=True)
        alter([entity("user", user)], "request_percentage", value, validate=True)
    for entities in (
        [], [entity("nonsense", "x")], [entity("user", "")], [entity("user", None)],
        [entity("ip", "not an address")], [entity("ip", None)], [entity("", "x")],
        [entity("user", "a"), entity("user", "b")], [entity("user", "a"), entity("ip", "1.2.3.4")],
        [entity("client-id", "x" * 300)],
    ):
        for key in (rate, "connection_creation_rate", "nonsense", ""):
            alter(entities, key, 10.0, validate=True)
            alter(entities, key, 10.0, remove=True, validate=True)

    def component(kind: str, match_type: int, match: str | None) -> Body:
        return {"entity_type": kind, "match_type": match_type, "match": match}

    for strict in (False, True):
        for version in (0, 1):
            for components in (
                [component("user", 0, user)], [component("client-id", 0, client)],
                [component("user", 0, user), component("client-id", 0, client)],
                [component("user", 0, user), component("client-id", 2, None)],
                [component("user", 1, None)], [component("user", 1, "x")],
                [component("user", 0, None)], [component("user", 2, "x")],
                [component("user", 3, None)], [component("user", -1, "x")],
                [component("nonsense", 0, "x")], [component("", 0, "x")],
                [component("user", 0, user), component("user", 0, user)],
                [component("ip", 0, "127.0.0.9")], [component("ip", 2, None),
                                                    component("user", 2, None)],
                [component("ip", 0, "x"), component("client-id", 0, "y")],
            ):
                talk.ask("DescribeClientQuotas", version,
                         {"components": components, "strict": strict})
    alter(both, "consumer_byte_rate", 0.0, remove=True)
    alter([entity("user", user)], rate, 0.0, remove=True)
    alter([entity("ip", "127.0.0.9")], "connection_creation_rate", 0.0, remove=True)


def credentials(talk: Talk) -> None:
    """SCRAM credentials."""
    user = talk.fresh("user")

    def upsert(**more: Any) -> Body:
        return {"name": user, "mechanism": 1, "iterations": 4096, "salt": b"salt",
                "salted_password": b"p" * 32} | more

    def alter(deletions: list[Body], upsertions: list[Body]) -> None:
        talk.ask("AlterUserScramCredentials", 0, {"deletions": deletions,
                                                  "upsertions": upsertions})

    alter([], [upsert()])
    for more in ({"iterations": 4095}, {"iterations": 16385}, {"iterations": 16384},
                 {"mechanism": 0}, {"mechanism": 3}, {"mechanism": -1}, {"name": ""},
                 {"salt": b""}, {"salted_password": b""}, {"mechanism": 2},
                 {"iterations": -1}, {"name": "x" * 300}):
        alter([], [upsert(**more)])
    alter([], [upsert(), upsert()])
    alter([{"name": user, "mechanism": 1}], [upsert()])
    for mechanism in (0, 1, 1, 2, 3, -1):
        alter([{"name": user, "mechanism": mechanism}], [])
    alter([{"name": "", "mechanism": 1}], [])
    alter([{"name": "nobody", "mechanism": 1}] * 2, [])
    alter([], [])
    alter([], [upsert(), upsert(mechanism=2)])
    for users in (None, [], [{"name": user}], [{"name": "nobody"}], [{"name": ""}],
                  [{"name": user}, {"name": user}], [{"name": user}, {"name": "nobody"}]):
        talk.ask("DescribeUserScramCredentials", 0, {"users": users})
    alter([{"name": user, "mechanism": 1}, {"name": user, "mechanism": 2}], [])


def features(talk: Talk) -> None:
    """UpdateFeatures with validate_only."""
    for version in COMMON_VERSIONS[ApiKey.UPDATE_FEATURES]:
        for name, level, kind in (
            ("nonsense", 1, 1), ("", 1, 1), ("transaction.version", 2, 1),
            ("transaction.version", 9, 1), ("transaction.version", -1, 1),
            ("transaction.version", 1, 1), ("transaction.version", 1, 0),
            ("transaction.version", 1, 9), ("group.version", 0, 1), ("metadata.version", 5, 2),
            ("metadata.version", 99, 1),
        ):
            update = {"feature": name, "max_version_level": level, "allow_downgrade": False,
                      "upgrade_type": kind}
            if version == 0 and name == "transaction.version" and level == 1:
                continue                       # version 0 would make the change
            for updates in ([update], [update, update]):
                talk.ask("UpdateFeatures", version, {
                    "timeout_ms": 5000, "feature_updates": updates, "validate_only": True})
        talk.ask("UpdateFeatures", version, {
            "timeout_ms": 5000, "feature_updates": [], "validate_only": True})


def quorum(talk: Talk) -> None:
    """DescribeQuorum, UnregisterBroker of missing brokers, AddRaftVoter and RemoveRaftVoter."""
    talk.explore("DescribeQuorum", lambda: {
        "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}],
    }, stride=1)  # fmt: skip
    for broker_id in (9, -1, 2147483647):
        talk.ask("UnregisterBroker", 0, {"broker_id": broker_id})
    listener = {"name": "CONTROLLER", "host": "localhost", "port": 1}

    def voter() -> Body:
        return {"cluster_id": None, "timeout_ms": 1000, "voter_id": 9,
                "voter_directory_id": bytes(range(16)), "listeners": [listener],
                "ack_when_committed": True}

    talk.explore("AddRaftVoter", voter, stride=1, skip=("timeout_ms", "listeners"))
    talk.explore("RemoveRaftVoter", lambda: {
        "cluster_id": None, "voter_id": 9, "voter_directory_id": bytes(range(16)),
    })  # fmt: skip


def authentication(talk: Talk) -> None:
    """SASL, delegation tokens and ACLs, none of which is enabled on the broker."""
    for version in (0, 1):
        for mechanism in ("PLAIN", "", "nonsense", "SCRAM-SHA-256"):
            talk.ask("SaslHandshake", version, {"mechanism": mechanism})
    for version in range(3):
        for token in (b"", b"\0me\0secret"):
            talk.ask("SaslAuthenticate", version, {"auth_bytes": token})
    renewers = [{"principal_type": "User", "principal_name": "me"}]
    talk.explore("CreateDelegationToken", lambda: {
        "owner_principal_type": None, "owner_principal_name": None, "renewers": renewers,
        "max_lifetime_ms": -1,
    }, stride=1)  # fmt: skip
    talk.explore("RenewDelegationToken", lambda: {"hmac": b"h", "renew_period_ms": 1})
    talk.explore("ExpireDelegationToken", lambda: {"hmac": b"h", "expiry_time_period_ms": 1})
    talk.explore("DescribeDelegationToken", lambda: {"owners": renewers})
    acl_filter = {"resource_type_filter": 1, "resource_name_filter": None,
                  "pattern_type_filter": 1, "principal_filter": None, "host_filter": None,
                  "operation": 1, "permission_type": 1}
    rule = {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3,
            "principal": "User:me", "host": "*", "operation": 3, "permission_type": 3}
    talk.explore("DescribeAcls", lambda: acl_filter, stride=1)
    talk.explore("CreateAcls", lambda: {"creations": [rule]}, stride=1)
    talk.explore("DeleteAcls", lambda: {"filters": [acl_filter]}, stride=1)


SCENES = (elections, reassignments, quotas, credentials, features, quorum, authentication)
