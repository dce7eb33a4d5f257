"""POST, PATCH and DELETE: each sends an admin request as the user, and the broker authorizes it.

The field `confirm` of a destructive request repeats a name, such as that of the topic to delete.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.client.addresses import show_address
from ottla.client.errors import ClientError, check
from ottla.console.access_pages import HANGING_MINUTES, abort_hanging
from ottla.console.requests import ApiRequest, BadRequest
from ottla.tools.admin import acls as rules
from ottla.tools.admin import configs, offsets, partitions
from ottla.tools.admin import groups as group_admin
from ottla.tools.admin import topics as topic_admin
from ottla.tools.admin import transactions as transaction_admin
from ottla.tools.admin.acls import Pattern, Rule
from ottla.tools.admin.offsets import Place
from ottla.tools.admin.resets import clamp
from ottla.tools.cli.group import planned
from ottla.tools.cli.moments import milliseconds
from ottla.tools.cli.reassign import refuse
from ottla.tools.stream.client_settings import (
    librdkafka_settings,
    open_client,
    reason_with_code,
)

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

Row = dict[str, Any]
DONE: Row = {"done": True}
DELIVERY_SECONDS = 10.0
VALUE_SIZE_MAX = 1 << 20
HEADERS_MAX = 100


def strings(values: Mapping[str, Any], what: str) -> dict[str, str]:
    """Checks that all values are strings; returns them. Raises BadRequest."""
    for name, value in values.items():
        if not isinstance(value, str):
            raise BadRequest(f"{what} {name!r}: expected a string")
    return dict(values)


async def create_topic(request: ApiRequest) -> Row:
    """Create a topic."""
    name = await request.field("topic", str)
    made = await request.visitor.connections.run(
        topic_admin.create, name,
        partitions=await request.field("partitions", int, -1),
        replication_factor=await request.field("replication_factor", int, -1),
        configs=strings(await request.field("configs", dict, {}), "setting"),
        dry_run=await request.field("dry_run", bool, False),
    )
    return {"topic": name, "partitions": made.num_partitions,
            "replication_factor": made.replication_factor}


async def delete_topic(request: ApiRequest) -> Row:
    """Delete a topic with all its records."""
    name = request.path("topic")
    await request.confirmed(name)
    done = await request.visitor.connections.run(topic_admin.delete, [name])
    for code, message in done.values():
        check(code, message, f"topic {name!r}")
    return DONE


async def grow_topic(request: ApiRequest) -> Row:
    """Add partitions to a topic: `count` is the new total."""
    name, count = request.path("topic"), await request.field("count", int)
    dry_run = await request.field("dry_run", bool, False)
    await request.visitor.connections.run(topic_admin.grow, name, count, dry_run=dry_run)
    return {"topic": name, "partitions": count}


async def trim_topic(request: ApiRequest) -> Row:
    """Delete the records below an offset of each partition; -1 is the end."""
    name = request.path("topic")
    await request.confirmed(name)
    wanted = await request.field("before", dict)
    if not all(index.isdecimal() and isinstance(at, int) for index, at in wanted.items()):
        raise BadRequest(
            "the field 'before': expected an offset for each partition, as in {\"0\": 100}")
    below = {(name, int(index)): at for index, at in wanted.items()}
    starts = await request.visitor.connections.run(offsets.delete_or_raise, below)
    return {"rows": [{"partition": place[1], "start": at} for place, at in starts.items()]}


async def change_config(request: ApiRequest, kind: int, name: str) -> Row:
    """Set some settings, and reset others."""
    set_to = strings(await request.field("set", dict, {}), "setting")
    reset = await request.field("reset", list, [])
    if not all(isinstance(one, str) for one in reset):
        raise BadRequest("the field 'reset': expected a list of setting names")
    await request.visitor.connections.run(
        configs.alter, kind, name, set_to, reset,
        dry_run=await request.field("dry_run", bool, False),
    )
    return DONE


async def change_topic_config(request: ApiRequest) -> Row:
    """Change settings of a topic: `set` some, `reset` others."""
    return await change_config(request, configs.TOPIC, request.path("topic"))


async def change_broker_config(request: ApiRequest) -> Row:
    """Change settings of a broker: `set` some, `reset` others."""
    return await change_config(request, configs.BROKER, request.path("broker"))


async def produce(request: ApiRequest) -> Row:
    """Send one record; `key` and `value` are texts, or base64 if `encoding` is base64."""
    name = request.path("topic")
    encoding = await request.field("encoding", str, "text")
    headers = await request.field("headers", list, [])
    if len(headers) > HEADERS_MAX:
        raise BadRequest(f"the record has more than {HEADERS_MAX} headers, the console's limit")
    pairs = []
    for one in headers:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise BadRequest("the field 'headers': expected objects with 'name' and 'value'")
        pairs.append((one["name"], data_of(one.get("value"), "text")))
    key = data_of(await request.field("key", str, None), encoding)
    value = data_of(await request.field("value", str, None), encoding)
    partition = await request.field("partition", int, -1)
    return await request.visitor.connections.run(
        sent, dict(request.visitor.properties), name, partition, key, value, pairs)


def data_of(text: Any, encoding: str) -> bytes | None:
    """The bytes of a key or a value. Raises BadRequest."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise BadRequest("the fields 'key' and 'value' must be strings or null")
    try:
        if encoding not in ("text", "base64"):
            raise BadRequest(f"encoding={encoding}: expected text or base64")
        data = text.encode() if encoding == "text" else base64.b64decode(text, validate=True)
    except (UnicodeEncodeError, binascii.Error) as wrong:
        raise BadRequest(f"a key or a value is not {encoding}: {wrong}") from wrong
    if len(data) > VALUE_SIZE_MAX:
        raise BadRequest(f"a key or a value has more than {VALUE_SIZE_MAX} bytes")
    return data


def sent(
    cluster: ClusterClient, properties: dict[str, str], topic: str, partition: int,
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]],
) -> Row:
    """Send a record and wait for its acknowledgement. Raises ClientError."""
    known = topic_admin.leaders(cluster, [topic])       # a misspelled topic must not be created
    if partition >= 0 and (topic, partition) not in known:
        raise BadRequest(f"topic {topic!r} has no partition {partition}", 404)
    producer = open_client("Producer", {
        "partitioner": "murmur2_random",        # as in Java's clients and `ottla produce`
        **librdkafka_settings(properties), "client.id": "ottla-console",
        "bootstrap.servers": ",".join(show_address(one) for one in cluster.bootstrap),
        "message.timeout.ms": int(DELIVERY_SECONDS * 1000), "linger.ms": 0,
    })
    answers: list[tuple[Any, Any]] = []
    producer.produce(
        topic, value=value, key=key, headers=headers, partition=partition,
        on_delivery=lambda error, message: answers.append((error, message)),
    )
    producer.flush(DELIVERY_SECONDS + 1)
    if not answers or answers[0][0] is not None:
        reason = reason_with_code(answers[0][0]) if answers else (
            "no broker acknowledged the record in time")
        raise ClientError(f"topic {topic!r}: {reason}")
    message = answers[0][1]
    return {"topic": topic, "partition": message.partition(), "offset": message.offset()}


async def reset_group(request: ApiRequest) -> Row:
    """Set a group's offsets: `to` is beginning, end, N, +N, -N or @TIME, or `offsets` has a row
    for each partition. With `dry_run`, the default, only report what would change. A row of
    `offsets` may repeat the field `old` of this report. The whole reset is then refused if the
    committed offset is no longer `old`, or if the partition no longer has the row's `offset`."""
    name = request.path("group")
    dry_run = await request.field("dry_run", bool, True)
    if not dry_run:
        await request.confirmed(name)
    to, rows_given = await request.field("to", str, ""), await request.field("offsets", list, [])
    if not to and not rows_given:
        raise BadRequest(
            "the new offsets are missing: send the field 'to' (beginning, end, N, +N, -N or @TIME),"
            " or the field 'offsets' (a list with an offset for each partition)")
    at_ms = milliseconds(to) if to.startswith(("@", "s@")) else None
    rows = await request.visitor.connections.run(
        reset, name, to, await request.field("topics", list, []),
        rows_given, dry_run,
    )
    return {"key": "id", "rows": rows, "dry_run": dry_run, "at_ms": at_ms}


def reset(
    cluster: ClusterClient, group: str, to: str, topics: list[Any], given: list[Any], dry_run: bool
) -> list[Row]:
    """The old and the new offset of each partition, and the lag at the new offset. Unless
    `dry_run`, commits the new offsets."""
    committed = group_admin.committed(cluster, group)
    if given:
        plan = resets_of(cluster, given, committed)
    else:
        named = {str(one) for one in topics}
        places = [place for place in sorted(committed) if not named or place[0] in named]
        if extra := sorted(named - {topic for topic, _ in committed}):
            places += sorted(topic_admin.leaders(cluster, extra))
        if not places:
            raise BadRequest(
                f"group {group!r} has no committed offsets: list the topics to reset in the field"
                " 'topics'")
        plan = planned(cluster, to, places, committed, "the field 'to' is")
    ends = offsets.ends(cluster, plan)
    if not dry_run:
        group_admin.commit(cluster, group, plan)
    return [
        {
            "id": f"{place[0]}-{place[1]}", "topic": place[0], "partition": place[1],
            "old": committed[place][0] if place in committed else None, "new": offset,
            "lag": None if ends[place].error else max(ends[place].offset - offset, 0),
        }
        for place, offset in sorted(plan.items())
    ]


def resets_of(
    cluster: ClusterClient, given: list[Any], committed: Mapping[Place, tuple[int, int]]
) -> dict[Place, int]:
    """The given offsets, each clamped to the range of its partition. Rows with the field `old` come
    from a report. Raises BadRequest if a row is not valid. For a row with `old`, also raises
    BadRequest if `old` is no longer the committed offset, or if the partition no longer has the
    row's offset."""
    wanted: dict[Place, int] = {}
    reported: dict[Place, int | None] = {}
    for row in given:
        fields: dict[str, Any] = row if isinstance(row, dict) else {}
        topic, index, offset = (fields.get(name) for name in ("topic", "partition", "offset"))
        if not isinstance(topic, str) or type(index) is not int or type(offset) is not int:
            raise BadRequest(
                "the field 'offsets': expected objects with 'topic', 'partition' and 'offset'")
        wanted[topic, index] = offset
        if "old" in fields:
            reported[topic, index] = fields["old"]
    plan = clamp(cluster, wanted)
    for (topic, index), old in reported.items():
        place = topic, index
        now = committed[place][0] if place in committed else None
        if now != old:
            raise BadRequest(
                f"no offset was changed: the group's offset in {topic}-{index} was {old} in the"
                f" preview, and is {now} now. Look at the preview again", 409, "CHANGED")
        if plan[place] != wanted[place]:
            raise BadRequest(
                f"no offset was changed: {topic}-{index} no longer has offset {wanted[place]} of"
                f" the preview; the nearest offset is {plan[place]}. Look at the preview again",
                409, "CHANGED")
    return plan


async def delete_group(request: ApiRequest) -> Row:
    """Delete a group without members, with all its offsets."""
    name = request.path("group")
    await request.confirmed(name)
    await request.visitor.connections.run(group_admin.delete, name)
    return DONE


async def delete_group_topic(request: ApiRequest) -> Row:
    """Delete a group's offsets for one topic."""
    name, topic = request.path("group"), request.path("topic")
    await request.confirmed(name)
    count = await request.visitor.connections.run(forget_topic, name, topic)
    return {"partitions": count}


def forget_topic(cluster: ClusterClient, group: str, topic: str) -> int:
    """Delete the offsets; returns how many. Raises ClientError."""
    places = [place for place in group_admin.committed(cluster, group) if place[0] == topic]
    if not places:
        raise BadRequest(f"group {group!r} has no committed offsets for topic {topic!r}", 404)
    code, results = group_admin.delete_offsets(cluster, group, places)
    check(code, what=f"group {group!r}")
    for (_, index), error in results.items():
        check(error, what=f"{topic}-{index}")
    return len(places)


async def elect(request: ApiRequest) -> Row:
    """Elect the preferred leaders of one `topic` or of all topics."""
    topic = await request.field("topic", str, None)
    done = await request.visitor.connections.run(elected, topic)
    return {"rows": [
        {"topic": place[0], "partition": place[1], "error": code, "message": message}
        for place, (code, message) in sorted(done.items())
    ]}


def elected(
    cluster: ClusterClient, topic: str | None
) -> dict[tuple[str, int], tuple[int, str | None]]:
    """Elect preferred leaders; returns an error code and a message for each partition."""
    places = None if topic is None else list(topic_admin.leaders(cluster, [topic]))
    return partitions.elect(cluster, partitions.PREFERRED, places)


async def rule_of(request: ApiRequest) -> tuple[Pattern, Rule]:
    """The ACL that a body describes. Raises BadRequest."""
    words = {}
    for name, known in (
        ("resource", rules.RESOURCES), ("pattern", rules.PATTERNS),
        ("operation", rules.OPERATIONS), ("permission", rules.PERMISSIONS),
    ):
        words[name] = await request.field(name, str, "LITERAL" if name == "pattern" else ...)
        if words[name] not in known or words[name] in ("ANY", "MATCH"):
            usable = ", ".join(one for one in known if one not in ("ANY", "MATCH"))
            raise BadRequest(f"{name}={words[name]}: expected {usable}")
    pattern = Pattern(words["resource"], await request.field("name", str), words["pattern"])
    return pattern, Rule(
        await request.field("principal", str), await request.field("host", str, "*"),
        words["operation"], words["permission"],
    )


async def create_acl(request: ApiRequest) -> Row:
    """Add an ACL."""
    await request.visitor.connections.run(rules.create, [await rule_of(request)])
    return DONE


async def delete_acl(request: ApiRequest) -> Row:
    """Remove an ACL."""
    rule = await rule_of(request)
    await request.confirmed(rule[1].principal or "")
    removed = await request.visitor.connections.run(rules.delete, [rule])
    if not removed:
        raise BadRequest("this ACL does not exist", 404)
    return {"removed": len(removed)}


async def set_user(request: ApiRequest) -> Row:
    """Give a user a SCRAM credential."""
    mechanism = await request.field("mechanism", str, "SCRAM-SHA-512")
    password = await request.field("password", str)
    if mechanism not in configs.MECHANISMS or not password:
        known = " or ".join(configs.MECHANISMS)
        raise BadRequest(f"'password' must not be empty, and 'mechanism' must be {known}")
    await request.visitor.connections.run(
        configs.set_scram, request.path("user"), mechanism, password)
    return DONE


async def delete_user(request: ApiRequest) -> Row:
    """Delete a user's SCRAM credential of one mechanism."""
    await request.confirmed(request.path("user"))
    mechanism = await request.field("mechanism", str)
    if mechanism not in configs.MECHANISMS:
        raise BadRequest(f"mechanism={mechanism}: expected {', '.join(configs.MECHANISMS)}")
    await request.visitor.connections.run(configs.delete_scram, request.path("user"), mechanism)
    return DONE


async def change_quota(request: ApiRequest) -> Row:
    """Set and remove quotas of one `entity`, such as {"user": "alice"}. An entity has a `user`, a
    `client-id` or both, or an `ip`; null instead of a name stands for the default entity."""
    entity = await request.field("entity", dict)
    set_to, reset = await request.field("set", dict, {}), await request.field("reset", list, [])
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool)
                  for one in set_to.values())
    if not entity or not numbers or not all(isinstance(one, str) for one in reset) or not all(
            one is None or isinstance(one, str) for one in entity.values()):
        raise BadRequest(
            "expected the fields 'entity', as in {\"user\": \"alice\"}; 'set', as in"
            " {\"producer_byte_rate\": 1000}; and 'reset', a list of the quotas to remove")
    await request.visitor.connections.run(configs.alter_quotas, entity, set_to, reset)
    return DONE


async def end_transaction(request: ApiRequest) -> Row:
    """Abort the transaction of a transactional id; its producer is fenced."""
    name = request.path("id")
    await request.confirmed(name)
    await request.visitor.connections.run(transaction_admin.describe, name)
    await request.visitor.connections.run(transaction_admin.terminate, name)
    return DONE


async def end_hanging(request: ApiRequest) -> Row:
    """Abort an open transaction that no coordinator knows: a marker in the partition ends it.
    `confirm` repeats the topic."""
    topic = await request.field("topic", str)
    await request.confirmed(topic)
    await request.visitor.connections.run(
        abort_hanging, topic, await request.field("partition", int),
        await request.field("first_offset", int),
        await request.field("minutes", int, HANGING_MINUTES))
    return DONE


async def reassign(request: ApiRequest) -> Row:
    """Move partitions of a topic to other brokers: `replicas` has the brokers of each partition,
    the preferred leader first."""
    topic, wanted = await request.field("topic", str), await request.field("replicas", dict)
    plan: dict[tuple[str, int], list[int] | None] = {}
    for index, brokers in wanted.items():
        known = isinstance(brokers, list) and brokers and all(type(one) is int for one in brokers)
        if not index.isdecimal() or not known:
            raise BadRequest("the field 'replicas': expected a list of brokers for each partition,"
                             ' as in {"0": [1, 2, 3]}')
        plan[topic, int(index)] = brokers
    if not plan:
        raise BadRequest("the field 'replicas' is empty: expected a list of brokers for at least"
                         ' one partition, as in {"0": [1, 2, 3]}')
    refuse(await request.visitor.connections.run(partitions.reassign, plan))
    return {"partitions": len(plan)}


async def cancel_reassignment(request: ApiRequest) -> Row:
    """Stop moving a partition: it stays where it was."""
    place = (await request.field("topic", str), await request.field("partition", int))
    refuse(await request.visitor.connections.run(partitions.reassign, {place: None}))
    return DONE
