"""Logs each administrative request: who sent it, from where, what it changed, the values before and
after, and the outcome. Requests that the authorizer refused are logged too. Requests that brokers
send in their own name are logged only if they are refused. The logger is `ottla.audit`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator
from enum import IntEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.broker.security.decisions import asks_as_a_broker, client_id_of
from ottla.broker.settings.broker import BrokerSettings
from ottla.broker.settings.kafka_settings import kafka_settings
from ottla.broker.settings.listener_settings import bare_name
from ottla.broker.threads.slices import in_slices
from ottla.replication.controller.access import Operation, Pattern, Permission, Resource
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import DeleteAclsRequest
from ottla.wire.parts import EncodedInParts
from ottla.wire.structs import Message, Struct

if TYPE_CHECKING:
    from ottla.broker.request_context import RequestContext
    from ottla.wire.plan import Layout

Item = TypeVar("Item")

log = logging.getLogger("ottla.audit")

ITEMS_MAX = 1000
"""At most this many items of a request are logged, one line each. If there are more, one further
line says how many are left out."""
LINES_AT_ONCE_MAX = 20
"""How many lines are written before the response is sent. The rest follow in slices, since writing
1,000 lines at once would block the event loop for 30 ms."""
ITEMS_A_STEP = 20
"""How many items `_collect` collects in one step."""
VALUE_SIZE_MAX = 200
LISTED_MAX = VALUE_SIZE_MAX // 2
"""How many elements of a list are shown. The text of more elements would exceed VALUE_SIZE_MAX."""
NOT_LISTED = "not listed"
SECRET = ("password", "salt", "hmac", "secret", "jaas", "keystore.key", "certificate")
ERROR = "error_code"
NAMES = (
    "name", "topic_name", "topic", "group_id", "resource_name", "transactional_id", "user",
    "principal", "feature",
)
"""The fields that may name the subject of an item in a response."""
NOT_ASKED = {"timeout_ms", "validate_only", "hmac"}
"""Fields of requests that are left out of the line: they are secret, or do not describe a
change."""
VALUES_BEFORE = {ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS}
OF_TOKENS = {ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN}
BROKER = 4
KINDS = {2: "topic", 4: "broker", 8: "broker-logger", 16: "client-metrics", 32: "group"}
"""Kafka's types of config resources, with the names used by the metadata."""
OF_ACLS = {ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS}
NUMBERS = {
    "resource_type": {number: name.upper() for number, name in KINDS.items()},
    "mechanism": {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"},
    "election_type": {0: "PREFERRED", 1: "UNCLEAN"},
    "upgrade_type": {1: "UPGRADE", 2: "SAFE_DOWNGRADE", 3: "UNSAFE_DOWNGRADE"},
}
"""For each numeric field, the names of its values. The fields of ACLs are missing here: `_acl`
takes the names of their values from enumerations."""


class Shape:
    """What the audit needs to know about the fields of a type of message or struct; made once per
    type."""

    def __init__(self, layout: Layout) -> None:
        fields = layout.fields
        every = [field.name for field in fields]
        self.arrays = [field.name for field in fields if field.array]
        self.structs = [field.name for field in fields if field.array and field.is_struct]
        self.names = [name for name in NAMES if name in every]
        self.indexes = [name for name in ("partition_index", "partition") if name in every]
        self.has_error, self.has_configs = ERROR in every, "configs" in every
        self.shown = [
            (field.name, field.default) for field in fields
            if not any(word in field.name for word in SECRET)
        ]
        self.of_items = NOT_ASKED.union(self.arrays)


SHAPES: dict[type[Struct], Shape] = {}


def _shape(item: Struct) -> Shape:
    kind = type(item)
    shape = SHAPES.get(kind)
    if shape is None:
        shape = SHAPES[kind] = Shape(kind.LAYOUT)
    return shape


class Act:
    """One administrative request, from its arrival to its response."""

    def __init__(self, request: Message, context: RequestContext) -> None:
        self.request, self.context = request, context
        self.before = dict(_values_before(request, context))
        self.token = _token_of(request, context)
        self.is_routine = _asks_for_itself(context)
        """Whether a broker sent the request on its own behalf, for example to write transaction
        markers. Such a request is not an administrative act."""

    def ended(self, response: object) -> None:
        """Log the outcome; `response` is a message or an exception. If the logger's level is
        WARNING, only refusals and failures are logged."""
        if not log.isEnabledFor(logging.WARNING):
            return
        if isinstance(response, EncodedInParts):
            response = response.message
        lines = self._lines(response)
        steps = sum(1 for _ in islice(lines, LINES_AT_ONCE_MAX))
        if steps == LINES_AT_ONCE_MAX and isinstance(response, Message):
            asyncio.get_running_loop().create_task(_the_rest(lines))

    def noticed(self, what: str) -> None:
        """Log an effect of a request whose API is otherwise not audited, such as InitProducerId."""
        self._line(self._who(), what, "done")

    def _who(self) -> dict[str, Any]:
        client = self.context.client
        return {
            "principal": client.principal, "address": client.host, "client_id": client.client_id,
            "api": APIS[self.context.api_key].name,
        }

    def _lines(self, response: object) -> Iterator[None]:
        """Write one line at each step of the iterator. With many items, the first steps write no
        line; they only collect the items."""
        fields = self._who()
        if not isinstance(response, Message):
            self._line(fields, "", f"failed: {response}")
            yield
            return
        outcomes: list[tuple[str, int, str | None]] = []
        yield from _collect(_outcomes(response), outcomes)
        if not outcomes:
            name = self.token or getattr(response, "token_id", "")
            outcomes = [(name, getattr(response, ERROR, 0), None)]
        items: list[tuple[str, str]] = []
        yield from _collect(_asked(self.request, self.before), items)
        if len(items) == len(outcomes[:ITEMS_MAX]) and not any(name for name, _, _ in outcomes):
            # The response does not name its items, but has them in the order of the request.
            outcomes[: len(items)] = [
                (" ".join(filter(None, item)), code, message)
                for item, (_, code, message) in zip(items, outcomes, strict=False)
            ]
            items = []
        asked = {name: text for name, text in items if name}
        asked[""] = "; ".join(text for name, text in items if not name)
        rest = _of_request(self.request)
        if len(outcomes) > ITEMS_MAX:
            outcomes.sort(key=lambda outcome: not outcome[1])       # refusals first
        for name, code, message in outcomes[:ITEMS_MAX]:
            topic = name.rpartition("-")[0]         # if the item is a partition
            wanted = asked.get(name, asked.get(topic)) or asked.get("")
            what = " ".join(filter(None, (name, wanted, rest)))
            if code == ErrorCode.NONE:
                done = "tried" if getattr(self.request, "validate_only", False) else "done"
            else:
                named = ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
                done = f"refused, {named}" + (f": {message}" if message else "")
            self._line(fields, what, done)
            yield
        if len(outcomes) > ITEMS_MAX:
            more = outcomes[ITEMS_MAX:]
            refused = sum(1 for _, code, _ in more if code)
            outcome = f"not listed, {refused} of them were refused" if refused else NOT_LISTED
            self._line(fields, f"{len(more)} more", outcome)
            yield

    def _line(self, fields: dict[str, Any], what: str, outcome: str) -> None:
        level = logging.INFO if outcome in ("done", "tried", NOT_LISTED) else logging.WARNING
        if not log.isEnabledFor(level) or (self.is_routine and level == logging.INFO):
            return
        text = (
            f"{fields['principal']} from {fields['address']}, client {fields['client_id']!r}: "
            f"{fields['api']}{what and ' '}{what}: {outcome}"
        )
        # Not `log.log`, which would spend time on finding the source line of its caller.
        log.handle(log.makeRecord(
            log.name, level, __file__, 0, text, (), None,
            extra={"fields": fields | {"what": what, "outcome": outcome}},
        ))


def _asks_for_itself(context: RequestContext) -> bool:
    """Whether a registered broker sent the request on its own behalf. Tools may have a broker's
    rights and use the inter-broker listener, but their client ids differ from those of brokers."""
    brokers = context.broker.image.brokers
    return context.client.client_id in {client_id_of(node_id) for node_id in brokers} and (
        asks_as_a_broker(context))


async def _the_rest(lines: Iterator[None]) -> None:
    """Write the remaining lines in slices, or all at once if the broker stops meanwhile."""
    try:
        await in_slices(lines)
    finally:
        for _ in lines:
            pass


def _collect(items: Iterator[Item], into: list[Item]) -> Iterator[None]:
    """Collect items, in steps."""
    for each in items:
        into.append(each)
        if len(into) > ITEMS_A_STEP and not len(into) % ITEMS_A_STEP:
            yield


def _outcomes(response: Struct) -> Iterator[tuple[str, int, str | None]]:
    """Yield the name, error code and message of each item in a response."""
    for field in _shape(response).structs:
        for item in getattr(response, field) or ():
            name = _name_of(item)
            if _shape(item).has_error:
                yield name, getattr(item, ERROR), getattr(item, "error_message", None)
                continue
            for below, code, message in _outcomes(item):
                yield f"{name}-{below}" if below else name, code, message


def _name_of(item: Struct) -> str:
    field = _name_field(item)
    if field:
        return str(getattr(item, field))
    for name in _shape(item).indexes:
        return str(getattr(item, name))
    return ""


def _name_field(item: Struct) -> str:
    """The field that names an item; "" if there is none."""
    for name in _shape(item).names:
        if isinstance(getattr(item, name), str):
            return name
    return ""


def _of_request(request: Message) -> str:
    """The text of the fields that belong to the whole request and not to one of its items."""
    return _fields(request, _shape(request).of_items)


def _token_of(request: Any, context: RequestContext) -> str:
    """The id of the delegation token that a request names by its HMAC; "" if there is none."""
    known = context.broker.token_secrets
    if context.api_key not in OF_TOKENS or known is None:
        return ""
    return known.find(context.broker.image.tokens, bytes(request.hmac)) or ""


def _asked(request: Message, before: dict[tuple[str, str], str]) -> Iterator[tuple[str, str]]:
    """Yield the name of each item ("" if it has none) and its requested change as text."""
    of_acls, partitions_left = request.API_KEY in OF_ACLS, ITEMS_MAX
    for field in _shape(request).arrays:
        for item in (getattr(request, field) or ())[:ITEMS_MAX]:
            if isinstance(item, Struct):
                yield ("", _acl(item)) if of_acls else (_name_of(item), _text(item, before))
                for part in islice(_parts(item), partitions_left):
                    partitions_left -= 1
                    yield (
                        f"{_name_of(item)}-{_name_of(part)}",
                        _fields(part, _shape(part).indexes, defaults=True))


def _parts(item: Any) -> Iterator[Struct]:
    """The partitions of a topic, if a request names them."""
    for part in getattr(item, "partitions", None) or ():
        if isinstance(part, Struct):
            yield part


def _acl(item: Any) -> str:
    """An ACL, or a filter of ACLs: `GROUP x WRITE ALLOW User:alice from *`."""
    if isinstance(item, DeleteAclsRequest.Filter):
        kind, pattern = item.resource_type_filter, item.pattern_type_filter
        who = item.resource_name_filter, item.principal_filter, item.host_filter
    else:
        kind, pattern = item.resource_type, item.resource_pattern_type
        who = item.resource_name, item.principal, item.host
    name, principal, host = ("(any)" if each is None else each[:VALUE_SIZE_MAX] for each in who)
    return " ".join(filter(None, (
        _named(Resource, kind), "" if pattern == Pattern.LITERAL else _named(Pattern, pattern),
        name, _named(Operation, item.operation), _named(Permission, item.permission_type),
        principal, "from", host,
    )))  # fmt: skip


def _named(kind: type[IntEnum], number: int) -> str:
    return kind(number).name if number in tuple(kind) else str(number)


def _text(item: Any, before: dict[tuple[str, str], str]) -> str:
    """The fields of an item that were set, without secrets; settings are shown as old → new."""
    if _shape(item).has_configs:
        of_broker = getattr(item, "resource_type", 0) == BROKER
        settings = [
            _setting(_name_of(item), each, before, of_broker) for each in item.configs or ()
        ]
        rest = _fields(item, ("configs", _name_field(item)))
        return " ".join(filter(None, [rest, *settings]))
    return _fields(item, (_name_field(item),))


def _setting(
    resource: str, config: Any, before: dict[tuple[str, str], str], of_broker: bool
) -> str:
    name, value = config.name, config.value
    # Hide unknown settings of a broker, as DescribeConfigs does: they may be passwords of a plugin.
    bare = bare_name(name)
    known = bare in BrokerSettings.declared or bare in kafka_settings("broker")
    if (of_broker and not known) or any(word in name.lower() for word in SECRET):
        return f"{name}=(hidden)"
    operation = getattr(config, "config_operation", 0)
    new = "(default)" if operation == 1 or value is None else {2: "+", 3: "-"}.get(
        operation, "") + str(value)
    old = before.get((resource, name))
    return f"{name}={new[:VALUE_SIZE_MAX]}" if old is None else (
        f"{name}: {old[:VALUE_SIZE_MAX]} → {new[:VALUE_SIZE_MAX]}")


def _fields(item: Struct, without: Collection[str], *, defaults: bool = False) -> str:
    """The fields of an item as text, except those in `without`. Fields with their default value are
    shown only if `defaults` is true."""
    parts = []
    for name, default in _shape(item).shown:
        value = getattr(item, name)
        hidden = value == default and not defaults
        if hidden or name in without or isinstance(value, bytes):
            continue
        if isinstance(value, list):
            value = [
                _fields(e, ()) or _name_of(e) if isinstance(e, Struct) else e
                for e in value[:LISTED_MAX]
            ]
            if not value:
                continue
        elif isinstance(value, Struct):
            value = _fields(value, ())
        elif name in NUMBERS:
            value = NUMBERS[name].get(value, value)
        parts.append(f"{name}={value!s:.{VALUE_SIZE_MAX}}")
    return " ".join(parts)


def _values_before(
    request: Any, context: RequestContext
) -> Iterator[tuple[tuple[str, str], str]]:
    """The previous values of the settings that a request changes."""
    if context.api_key not in VALUES_BEFORE:
        return
    for resource in request.resources[:ITEMS_MAX]:
        kind = KINDS.get(resource.resource_type, "")
        known = context.broker.image.configs.get((kind, resource.resource_name), {})
        for config in resource.configs:
            yield (resource.resource_name, config.name), known.get(config.name, "(default)")
