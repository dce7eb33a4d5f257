"""The REST API: the table of its paths, and the OpenAPI document generated from it.

The terms are those of the command line: a topic is created, grown, trimmed, deleted; a group is
reset.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ottla import __version__
from ottla.console import changes, reads
from ottla.console.requests import ApiRequest

PREFIX = "/api/v1"
Handler = Callable[[ApiRequest], Awaitable[Any]]
SEARCH = {
    "from": "newest, oldest, offset:N, time:MILLISECONDS (records with earlier timestamps are left"
            " out), or the field `next` of an earlier answer, to continue that search; after a"
            " search that began at newest, `next` is null, because it cannot be continued",
    "until": "milliseconds; only records with earlier timestamps",
    "partition": "partition numbers with commas between them; all partitions if left out",
    "text": "a text in key or value; case does not matter",
    "regex": "a regular expression (RE2) to find in key or value",
    "json": "a JSON path with an optional comparison, such as $.user.id == 42",
    "key": "only records with exactly this key",
    "header": "only records with this header: NAME, or NAME=VALUE",
    "limit": "the maximum number of records in the answer",
    "max_records": "budget: the maximum number of records to read",
    "max_bytes": "budget: the maximum number of bytes to read",
    "max_seconds": "budget: how many seconds the search may take",
    "isolation": "read_committed leaves out records of open and aborted transactions",
}
HANGING = {"minutes": "the minimum age of the transaction's newest record, in minutes"}
HISTORY = {
    "kind": "what the history is about; `total` if left out",
    "name": "the name of the topic or group",
    "measure": "which of the recorded values; `lag` if left out",
    "seconds": "how many seconds to go back",
}


@dataclass(frozen=True)
class Entry:
    """A path of the API."""

    method: str
    path: str
    handler: Handler
    query: dict[str, str]
    body: tuple[str, ...] = ()


def get(path: str, handler: Handler, query: dict[str, str] | None = None) -> Entry:
    """The entry of a GET path, which changes nothing."""
    return Entry("GET", path, handler, query or {})


TABLE = (
    get("/overview", reads.overview),
    get("/brokers", reads.brokers),
    get("/brokers/{broker}/config", reads.broker_config),
    get("/log-directories", reads.log_directories),
    get("/topics", reads.topics),
    get("/topics/{topic}", reads.topic),
    get("/topics/{topic}/config", reads.topic_config),
    get("/topics/{topic}/producers", reads.topic_producers),
    get("/topics/{topic}/clients", reads.topic_clients),
    get("/topics/{topic}/why", reads.topic_why),
    get("/topics/{topic}/records", reads.records, SEARCH),
    get("/groups", reads.groups),
    get("/groups/{group}", reads.group),
    get("/clean-up", reads.clean_up),
    get("/connections", reads.connections),
    get("/transactions", reads.transactions),
    get("/transactions-hanging", reads.hanging, HANGING),
    get("/client-metrics", reads.client_metrics),
    get("/audit", reads.audit),
    get("/reassignments", reads.reassignments),
    get("/acls", reads.acls),
    get("/users", reads.users),
    get("/quotas", reads.quotas),
    get("/tokens", reads.tokens),
    get("/history", reads.history, HISTORY),
    Entry("POST", "/topics", changes.create_topic, {},
          ("topic", "partitions", "replication_factor", "configs", "dry_run")),
    Entry("DELETE", "/topics/{topic}", changes.delete_topic, {}, ("confirm",)),
    Entry("POST", "/topics/{topic}/grow", changes.grow_topic, {}, ("count", "dry_run")),
    Entry("POST", "/topics/{topic}/trim", changes.trim_topic, {}, ("before", "confirm")),
    Entry("PATCH", "/topics/{topic}/config", changes.change_topic_config, {},
          ("set", "reset", "dry_run")),
    Entry("POST", "/topics/{topic}/records", changes.produce, {},
          ("key", "value", "headers", "partition", "encoding")),
    Entry("PATCH", "/brokers/{broker}/config", changes.change_broker_config, {},
          ("set", "reset", "dry_run")),
    Entry("POST", "/groups/{group}/reset", changes.reset_group, {},
          ("to", "topics", "offsets", "dry_run", "confirm")),
    Entry("DELETE", "/groups/{group}", changes.delete_group, {}, ("confirm",)),
    Entry("DELETE", "/groups/{group}/topics/{topic}", changes.delete_group_topic, {}, ("confirm",)),
    Entry("POST", "/elect", changes.elect, {}, ("topic",)),
    Entry("POST", "/acls", changes.create_acl, {},
          ("resource", "name", "pattern", "principal", "host", "operation", "permission")),
    Entry("DELETE", "/acls", changes.delete_acl, {},
          ("resource", "name", "pattern", "principal", "host", "operation", "permission",
           "confirm")),
    Entry("POST", "/users/{user}", changes.set_user, {}, ("mechanism", "password")),
    Entry("DELETE", "/users/{user}", changes.delete_user, {}, ("mechanism", "confirm")),
    Entry("PATCH", "/quotas", changes.change_quota, {}, ("entity", "set", "reset")),
    Entry("DELETE", "/transactions/{id}", changes.end_transaction, {}, ("confirm",)),
    Entry("DELETE", "/transactions-hanging", changes.end_hanging, {},
          ("topic", "partition", "first_offset", "minutes", "confirm")),
    Entry("POST", "/reassignments", changes.reassign, {}, ("topic", "replicas")),
    Entry("DELETE", "/reassignments", changes.cancel_reassignment, {}, ("topic", "partition")),
)
TEXT: dict[str, Any] = {"type": "string"}
CONFIRMED = {"/acls": "principal", "/transactions-hanging": "topic"}
"""The field whose value `confirm` has to repeat, for paths that contain no name."""
NUMBER: dict[str, Any] = {"type": "integer", "minimum": 0}
IN_PATHS = {"broker": NUMBER, "offset": NUMBER, "partition": NUMBER}
IN_QUERIES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        ("limit", "max_records", "max_bytes", "max_seconds", "minutes", "seconds", "until"),
        NUMBER),
    "kind": {"type": "string", "enum": [*reads.KINDS]},
    "measure": {"type": "string", "enum": [*reads.MEASURES]},
    "isolation": {"type": "string", "enum": [*reads.ISOLATIONS]},
    "part": {"type": "string", "enum": ["value", "key"]},
    "path": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 8},
}
IN_BODIES: dict[str, dict[str, Any]] = {
    "partitions": {"type": "integer"}, "replication_factor": {"type": "integer"},
    "first_offset": {"type": "integer"}, "minutes": {"type": "integer"},
    "replicas": {"type": "object", "additionalProperties": {
        "type": "array", "items": {"type": "integer"}}},
    "count": {"type": "integer"}, "partition": {"type": "integer"},
    "configs": {"type": "object", "additionalProperties": {"type": "string"}},
    "set": {"type": "object"}, "entity": {"type": "object"}, "dry_run": {"type": "boolean"},
    "before": {"type": "object", "additionalProperties": {"type": "integer"}},
    "reset": {"type": "array", "items": {"type": "string"}},
    "topics": {"type": "array", "items": {"type": "string"}},
    "headers": {"type": "array", "items": {"type": "object"}},
    "offsets": {"type": "array", "items": {"type": "object"}},
    "key": {"type": ["string", "null"]}, "value": {"type": ["string", "null"]},
}


def openapi() -> dict[str, Any]:
    """The API as OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for entry in TABLE:
        paths.setdefault(PREFIX + entry.path, {})[entry.method.lower()] = operation(entry)
    others: tuple[tuple[str, str, str, dict[str, str], tuple[str, ...]], ...] = (
        ("/session", "get", "Who is logged in, and what the console allows.", {}, ()),
        ("/session", "post", "Log in as a user of the brokers; the answer sets the cookie.", {},
         ("user", "password", "mechanism")),
        ("/session", "delete", "Log out.", {}, ()),
        ("/stream", "get", "Server-sent events: the values of up to 8 paths, and their changes.",
         {"path": "a path of this API without /api/v1; repeat it for each path"}, ()),
        ("/topics/{topic}/live", "get", "Server-sent events: records as they are written.",
         SEARCH, ()),
        ("/topics/{topic}/partitions/{partition}/records/{offset}", "get",
         "The unchanged bytes of a record's value or key, as a download.",
         {"part": "value or key; the value if left out"}, ()),
    )
    for path, method, summary, query, body in others:
        made = described(path, summary, query, body)
        paths.setdefault(PREFIX + path, {})[method] = made
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ottla console", "version": __version__,
            "description": "Everything that the console's pages show and do.",
        },
        "paths": paths,
        "components": {"schemas": {"Error": {
            "type": "object", "required": ["error", "message"],
            "properties": {"error": {"type": "string"}, "message": {"type": "string"}},
        }}},
    }


def operation(entry: Entry) -> dict[str, Any]:
    """The OpenAPI operation of an entry."""
    summary = " ".join((inspect.getdoc(entry.handler) or "").split())
    return {
        "operationId": entry.handler.__name__,
        **described(entry.path, summary, entry.query, entry.body),
    }


def described(
    path: str, summary: str, query: dict[str, str], body: tuple[str, ...]
) -> dict[str, Any]:
    """The OpenAPI description of a path."""
    names = [part.partition("}")[0] for part in path.split("{")[1:]]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": IN_PATHS.get(name, TEXT)}
        for name in names
    ]
    parameters += [
        {"name": name, "in": "query", "description": text,
         "schema": IN_QUERIES.get(name, TEXT)}
        for name, text in query.items()
    ]
    found: dict[str, Any] = {
        "summary": summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "done"},
            "default": {"description": "an error", "content": {"application/json": {
                "schema": {"$ref": "#/components/schemas/Error"}}}},
        },
    }
    if body:
        fields = {name: IN_BODIES.get(name, TEXT) for name in body}
        if "confirm" in body:
            what = f"the path's {names[0]}" if names else f"the field {CONFIRMED[path]}"
            unless = "; not needed if dry_run is true" if "dry_run" in body else ""
            fields["confirm"] = {
                **TEXT, "description": f"must repeat {what}, so that nothing is deleted or changed"
                                       f" by mistake{unless}"}
        schema: dict[str, Any] = {
            "type": "object", "properties": fields, "additionalProperties": False,
        }
        if "confirm" in body and "dry_run" not in body:
            schema["required"] = ["confirm"]
        found["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return found
