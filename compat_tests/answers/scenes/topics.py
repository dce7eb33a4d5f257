"""Topics created, described, extended and deleted; the brokers; unsupported versions."""

from __future__ import annotations

import struct
from typing import Any

from compat_tests.answers.conversation import Talk
from compat_tests.answers.variants import Body, key_of, message
from compat_tests.answers.versions import COMMON_VERSIONS
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.headers import RequestHeader
from ottla.wire.messages import ApiVersionsResponse

OPERATIONS = ("include_cluster_authorized_operations", "include_topic_authorized_operations")


def create_topics(talk: Talk) -> None:
    """Names, counts, assignments and settings, good and bad."""

    def make() -> Body:
        return {
            "topics": [{
                "name": talk.fresh("t"), "num_partitions": 2, "replication_factor": 1,
                "assignments": [], "configs": [{"name": "retention.ms", "value": "1000"}],
            }],
            "timeout_ms": 10_000, "validate_only": False,
        }  # fmt: skip

    talk.explore("CreateTopics", make, skip=("timeout_ms",), stride=2)

    def assigned() -> Body:
        body = make()
        body["topics"][0] |= {
            "num_partitions": -1, "replication_factor": -1, "configs": [],
            "assignments": [{"partition_index": n, "broker_ids": [1]} for n in range(2)],
        }  # fmt: skip
        return body

    talk.explore("CreateTopics", assigned, skip=("timeout_ms",), stride=2)
    for version in COMMON_VERSIONS[ApiKey.CREATE_TOPICS]:
        body = make()
        talk.ask("CreateTopics", version, body | {"validate_only": True})
        talk.ask("CreateTopics", version, body)
        talk.ask("CreateTopics", version, body)
        for config in BAD_SETTINGS:
            body = make() | {"validate_only": True}
            body["topics"][0]["configs"] = config
            talk.ask("CreateTopics", version, body)
        for name in NAMES:
            body = make() | {"validate_only": True}
            body["topics"][0]["name"] = name
            talk.ask("CreateTopics", version, body)


def _pair(name: str, value: str | None) -> Body:
    return {"name": name, "value": value}


BAD_SETTINGS: tuple[list[Body], ...] = (
    [_pair("no.such", "1")], [_pair("retention.ms", "soon")], [_pair("retention.ms", None)],
    [_pair("retention.ms", "-2")], [_pair("retention.ms", "1"), _pair("retention.ms", "2")],
    [_pair("cleanup.policy", "burn")], [_pair("cleanup.policy", "")], [_pair("", "1")],
    [_pair("min.insync.replicas", "0")], [_pair("compression.type", "best")],
    [_pair("segment.bytes", "1")], [_pair("max.message.bytes", "-1")],
    [_pair("local.retention.ms", "5")], [_pair("remote.storage.enable", "true")],
    [_pair("message.format.version", "1.0")], [_pair("segment.bytes", "99999999999")],
    [_pair("min.cleanable.dirty.ratio", "2")], [_pair("preallocate", "maybe")],
    [_pair("leader.replication.throttled.replicas", "x")], [_pair("cleanup.policy", "compact")],
    [_pair("min.compaction.lag.ms", "10"), _pair("max.compaction.lag.ms", "5")],
)
NAMES = ("", ".", "..", "a b", "ü", "x" * 249, "x" * 250, "__consumer_offsets", "__mine", "a.b",
         "__cluster_metadata", "-", "_")


def colliding_names(talk: Talk) -> None:
    """Names that differ only in a dot and an underscore."""
    name = talk.topic("a.b")
    for other in (name.replace(".", "_"), name):
        for version in COMMON_VERSIONS[ApiKey.CREATE_TOPICS]:
            topic = {"name": other, "num_partitions": 1, "replication_factor": 1,
                     "assignments": [], "configs": []}
            talk.ask("CreateTopics", version, {"topics": [topic], "timeout_ms": 5000,
                                               "validate_only": True})


def delete_topics(talk: Talk) -> None:
    """Deletes topics by name, by id, by both and by neither; missing topics; a topic twice."""
    for version in COMMON_VERSIONS[ApiKey.DELETE_TOPICS]:
        name, other = talk.topic("t"), talk.topic("u")
        by_id = {"name": None, "topic_id": talk.ids[other]}
        named: dict[str, Any] = {"name": name, "topic_id": bytes(16)}
        nobody = {"name": None, "topic_id": bytes(range(16))}
        none = {"name": None, "topic_id": bytes(16)}
        both = {"name": name, "topic_id": talk.ids[name]}
        unknown = {"name": "nobody", "topic_id": bytes(16)}
        for topics, names in (
            ([nobody, none], ["", "nobody"]), ([both], ["nobody", "nobody"]),
            ([unknown, unknown], ["not legal/", "."]), ([named, named], [name, name]),
            ([by_id, {"name": other, "topic_id": bytes(16)}], [other, "nobody"]),
            ([], []), ([by_id], [other]), ([named], [name]), ([named], [name]),
        ):
            talk.ask("DeleteTopics", version, {"topics": topics, "topic_names": names,
                                               "timeout_ms": 5000})


def create_partitions(talk: Talk) -> None:
    """CreatePartitions for more, fewer, as many and too many partitions, and with assignments."""
    name = talk.topic("t", 2)

    def make(count: int = 3, assignments: Any = None, topic: str = name) -> Body:
        return {"topics": [{"name": topic, "count": count, "assignments": assignments}],
                "timeout_ms": 5000, "validate_only": True}

    talk.explore("CreatePartitions", make, skip=("timeout_ms", "validate_only"), stride=1)
    talk.explore("CreatePartitions", lambda: make(3, [{"broker_ids": [1]}]),
                 skip=("timeout_ms", "validate_only"), stride=1)
    for version in COMMON_VERSIONS[ApiKey.CREATE_PARTITIONS]:
        for body in (
            make(2), make(1), make(10_001), make(4, [{"broker_ids": [1]}]), make(3, []),
            make(3, [{"broker_ids": [1, 1]}]), make(3, [{"broker_ids": [5]}]),
            make(topic="__consumer_offsets"), make(3 + version) | {"validate_only": False},
        ):
            talk.ask("CreatePartitions", version, body)


def metadata(talk: Talk) -> None:
    """Topics by name and id, all or none, with authorized operations."""
    name, other = talk.topic("t", 2), talk.topic("u")

    def make() -> Body:
        return {
            "topics": [{"name": name, "topic_id": bytes(16)},
                       {"name": other, "topic_id": bytes(16)}],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": True,
        }  # fmt: skip

    talk.explore("Metadata", make, skip=("topics",), stride=1)
    for version in COMMON_VERSIONS[ApiKey.METADATA]:
        for names in ([name, name], ["nobody"], [""], ["a b"], ["x" * 250], [name, "nobody"],
                      ["__consumer_offsets"]):
            topics = [{"name": each, "topic_id": bytes(16)} for each in names]
            talk.ask("Metadata", version, make() | {"topics": topics})
    for version in range(12, 14):
        for topics in (
            [{"name": None, "topic_id": talk.ids[name]}],
            [{"name": name, "topic_id": talk.ids[name]}],
            [{"name": "nobody", "topic_id": talk.ids[name]}],
            [{"name": None, "topic_id": bytes(range(16))}],
            [{"name": None, "topic_id": bytes(16)}],
            [{"name": None, "topic_id": talk.ids[name]}, {"name": name, "topic_id": bytes(16)}],
        ):
            talk.ask("Metadata", version, make() | {"topics": topics})
    for version in (10, 11):
        talk.ask("Metadata", version, make() | {"topics": [{"name": None, "topic_id": bytes(16)}]})
        talk.ask("Metadata", version,
                 make() | {"topics": [{"name": None, "topic_id": talk.ids[name]}]})


def topic_partitions(talk: Talk) -> None:
    """DescribeTopicPartitions page by page."""
    name, other = talk.topic("t", 3), talk.topic("u", 2)

    def make() -> Body:
        return {"topics": [{"name": name}, {"name": other}], "response_partition_limit": 3,
                "cursor": {"topic_name": name, "partition_index": 1}}

    talk.explore("DescribeTopicPartitions", make)
    for limit in (1, 2, 4, 5, 6):
        for cursor in (None, {"topic_name": other, "partition_index": 1},
                       {"topic_name": "zzz", "partition_index": 0},
                       {"topic_name": "a", "partition_index": 2}):
            talk.ask("DescribeTopicPartitions", 0,
                     make() | {"response_partition_limit": limit, "cursor": cursor})
    for names in (["nobody"], [name, name], ["a b", name], [""]):
        talk.ask("DescribeTopicPartitions", 0,
                 {"topics": [{"name": each} for each in names], "response_partition_limit": 5})


def describe_cluster(talk: Talk) -> None:
    """DescribeCluster, with each field wrong in turn."""
    talk.explore("DescribeCluster", lambda: {
        "include_cluster_authorized_operations": True, "endpoint_type": 1,
        "include_fenced_brokers": False,
    }, stride=1)  # fmt: skip


def api_versions(talk: Talk) -> None:
    """ApiVersions with many names of client software, and in unsupported versions."""
    talk.explore("ApiVersions", lambda: {
        "client_software_name": "compare", "client_software_version": "1.0",
    }, stride=1)  # fmt: skip
    for name in ("a", "-a", "a-", "a b", "a.b-c", "ü", "", "x" * 300):
        for version in (3, 4):
            for body in ({"client_software_name": name, "client_software_version": "1"},
                         {"client_software_name": "a", "client_software_version": name}):
                talk.ask("ApiVersions", version, body)

    def decode(frame: bytes) -> Any:
        answer = ApiVersionsResponse.decode(frame[4:], 0)
        return [answer.error_code,
                [each.min_version for each in answer.api_keys if each.api_key == 18]]

    for version in (6, 7, 99, 32767, -1, -32768):
        header = struct.pack(">hhih", ApiKey.API_VERSIONS, version, 5, -1)
        for rest in (b"", b"\0", bytes(30), b"\xff" * 30, b"\0\x05hello"):
            talk.frame("ApiVersions to come", header + rest, decode)


def versions_of_nobody(talk: Talk) -> None:
    """Each API in a version after the last, and frames that are not requests."""
    for key, api in APIS.items():
        if "broker" in api.listeners and key not in (ApiKey.API_VERSIONS, ApiKey.PRODUCE):
            header = RequestHeader(key, api.versions[-1] + 1, 1, "c").encode()
            talk.frame(f"{api.name} to come", header + bytes(8), lambda frame: "answered")
    for key in (4, 5, 6, 7, 52, 53, 99, -1, 32767):
        talk.frame("unknown API", struct.pack(">hhih", key, 0, 1, -1) + bytes(8),
                   lambda frame: "answered")
    for api_name in ("Metadata", "ListGroups", "DescribeGroups", "Heartbeat", "Fetch"):
        key = key_of(api_name)
        version = COMMON_VERSIONS[key].start
        good = RequestHeader(key, version, 1, "c").encode()
        body: Body = {"topics": []} if api_name == "Metadata" else {}
        encoded = message(api_name, version, body).encode(version)
        for frame in (good + encoded + b"\1\2\3", good + encoded[:-1], good):
            if frame != good or encoded:
                talk.frame(f"{api_name} of another length", frame, lambda frame: "answered")


SCENES = (
    create_topics, colliding_names, delete_topics, create_partitions, metadata, topic_partitions,
    describe_cluster, api_versions, versions_of_nobody,
)  # fmt: skip
