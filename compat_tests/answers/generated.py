"""Requests about several topics, groups and transactions at once, generated from the schema.

`Generator.body` makes a request of every API whose request names a topic, a group or a
transactional id. All fields that name such a resource are filled in, at any depth; all other fields
have values that change nothing. A list of resources gets four: one for which each user has ACLs of
its own, one that everybody may access, one that nobody may access, and one that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from compat_tests.answers.variants import Body
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.plan import Layout
from ottla.wire.records import Record, build_batch
from ottla.wire.schema_parser import Field


class Named(Enum):
    """What a field of a request names."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTION = "transaction"


PUBLIC, BANNED, MISSING = "public", "banned", "missing"
OTHERS = (PUBLIC, BANNED, MISSING)
"""ACLs of `User:*` allow everything on the first, and deny everything on the second. The third has
no ACLs, and does not exist."""
UNKNOWN_ID = bytes(range(16))
TOPICS_INSIDE = {
    "topics", "topic_data", "v3_and_below_topics", "topic_partitions", "resources",
}  # fmt: skip
"""Arrays whose elements name topics. In `resources`, VALUES sets the type to topic."""
TOPIC_FIELDS = {"topic", "topic_name", "topic_names", "subscribed_topic_names"}
GROUP_FIELDS = {"group_id", "group_ids", "groups", "groups_names"}
TRANSACTION_FIELDS = {"transactional_id", "transactional_ids", "v3_and_below_transactional_id"}
EMPTY = {"forgotten_topics_data", "cursor", "configs", "replicas", "assignments", "renewers"}
VALUES: dict[str, Any] = {
    "acks": 1, "timeout_ms": 1000, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 1000,
    "transaction_timeout_ms": 1000, "member_id": "m", "member_epoch": 5, "validate_only": True,
    "num_partitions": 1, "replication_factor": 1, "count": 9, "partition_max_bytes": 1000,
    "protocol_type": "consumer", "path": "/no/such/directory", "resource_type": 2, "timestamp": -1,
    "partitions": [0], "partition_indexes": [0], "session_epoch": -1, "replica_id": -1,
    "response_partition_limit": 2000, "max_bytes": 1_000_000, "allow_auto_topic_creation": False,
    "include_authorized_operations": True, "include_topic_authorized_operations": True,
    "include_cluster_authorized_operations": True,
}  # fmt: skip
"""Values of fields for which zero would have no meaning, or would change something."""
RECORDS = build_batch([Record(offset=0, timestamp=1_600_000_000_000, key=None, value=b"v")])


def named_by(field: Field, inside: str) -> Named | None:
    """Returns what a field names, which depends on its name and the array that contains it."""
    if field.name in TRANSACTION_FIELDS and field.type == "string":
        return Named.TRANSACTION
    if field.name in GROUP_FIELDS and field.type == "string":
        return Named.GROUP
    is_name = field.name in ("name", "resource_name") and inside in TOPICS_INSIDE
    if field.name == "topic_id" or (field.type == "string" and (
        field.name in TOPIC_FIELDS or is_name
    )):  # fmt: skip
        return Named.TOPIC
    return None


def names(layout: Layout, inside: str = "") -> Iterator[Named]:
    """Yields what a request names, at any depth."""
    for field in layout.fields:
        if field.is_struct:
            yield from names(layout.classes[field.name].LAYOUT, field.name)
        elif (found := named_by(field, inside)) is not None:
            yield found


def naming_apis() -> list[ApiKey]:
    """The APIs for clients in which a request names topics, groups or transactional ids."""
    return [
        key for key, api in APIS.items()
        if "broker" in api.listeners and any(names(api.request.LAYOUT))
    ]


class Generator:
    """Makes requests. `own` has the names of the users' own resources, `ids` the topics' ids."""

    def __init__(self, own: dict[Named, str], ids: dict[str, bytes]) -> None:
        self.own, self.ids = own, ids

    def body(self, key: ApiKey, version: int) -> Body:
        """The request of an API in a version."""
        return self._struct(APIS[key].request.LAYOUT, version, "", 0)

    def _names(self, kind: Named) -> tuple[str, ...]:
        return (self.own[kind], *OTHERS)

    def _struct(self, layout: Layout, version: int, inside: str, at: int) -> Body:
        """A struct that names the `at`-th resource of each kind."""
        fields = [f for f in layout.fields if version in f.versions and f.tag is None]
        by_name = any(named_by(f, inside) is Named.TOPIC and f.type == "string" for f in fields)
        made: Body = {}
        for field in fields:
            kind = named_by(field, inside)
            if field.name in EMPTY:
                made[field.name] = None if version in field.nullable else []
            elif field.is_struct and field.array:
                inner = layout.classes[field.name].LAYOUT
                count = 1 + len(OTHERS) if self._names_something(inner, field.name) else 1
                made[field.name] = [
                    self._struct(inner, version, field.name, each) for each in range(count)
                ]
            elif field.is_struct:
                made[field.name] = None
            elif kind is not None and field.array:
                made[field.name] = list(self._names(kind))
            elif kind is not None:
                name = self._names(kind)[at]
                zero = bytes(16) if by_name else self.ids.get(name, UNKNOWN_ID)
                made[field.name] = zero if field.type == "uuid" else name
            else:
                made[field.name] = _plain(field, version)
        return made

    @staticmethod
    def _names_something(layout: Layout, inside: str) -> bool:
        """Whether an array's elements name a resource in a field outside nested structs."""
        return any(
            named_by(field, inside) is not None for field in layout.fields if not field.is_struct
        )


def _plain(field: Field, version: int) -> Any:
    if field.name in VALUES and not (field.name == "partitions" and not field.array):
        return VALUES[field.name]
    if field.type == "records":
        return RECORDS
    if field.array:
        return []
    if field.default is not None:
        return field.default
    if version in field.nullable:
        return None
    zeros = {"string": "", "bytes": b"", "bool": False, "uuid": bytes(16), "float64": 0.0}
    return zeros.get(field.type, 0)
