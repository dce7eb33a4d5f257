"""Compares our schemas with the message definitions inside Apache Kafka's client jars.

Fields are compared by position, type, nullability, default, tag and ignorability in each version,
not by name, because names change between releases. 4.4.0 has the newest protocol, 3.9.2 has the
versions that 4.0 dropped.
"""

from __future__ import annotations

import json
import re
import zipfile
from functools import cache
from typing import Any

import pytest

from compat_tests.requirements import built
from ottla.wire import messages
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.schema_parser import EMPTY, Field

NEWEST, OLDEST = "4.4.0", "3.9.2"
LAST = 1 << 15

# Messages with fields that are ignorable only in 4.x or only in 3.9; our schemas follow 4.x.
IGNORABLE_DIFFERS = {
    "OffsetCommitRequest", "OffsetCommitResponse", "OffsetFetchRequest", "OffsetFetchResponse",
    "ProduceRequest", "ProduceResponse", "TxnOffsetCommitRequest", "TxnOffsetCommitResponse",
    "UpdateFeaturesResponse", "AlterPartitionRequest", "AlterPartitionResponse",
}


@cache
def definitions(version: str) -> dict[str, Any]:
    """The message definitions of one release, by name."""
    found = {}
    with zipfile.ZipFile(built(f"jars/kafka-clients-{version}.jar")) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = archive.read(name).decode()
                definition = json.loads(re.sub(r"(?m)(^|\s)//.*$", "", text))
                found[definition["name"]] = definition
    return found


def versions_in(text: str | None, last: int = LAST) -> range:
    """The versions that a definition gives as `3`, `3-5`, `3+` or `none`."""
    if not text or text == "none":
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), last + 1)
    first, _, end = text.partition("-")
    return range(int(first), int(end or first) + 1)


def stable(definition: dict[str, Any]) -> range:
    """The versions of a message that are not marked unstable."""
    versions = versions_in(definition["validVersions"])
    return versions[:-1] if definition.get("latestVersionUnstable") else versions


def their_default(field: dict[str, Any], nullable: bool) -> Any:
    """The default of Kafka's field, in the form of our schemas."""
    kind, default = field["type"], str(field.get("default", ""))
    if default == "null":
        return None
    if kind.startswith("[]"):
        return []
    if kind[0].isupper():
        return EMPTY
    if kind == "bool":
        return default.lower() == "true"
    if kind == "string":
        return default
    if kind == "records":
        return None if nullable else b""
    if kind in ("bytes", "uuid"):
        return bytes(16) if kind == "uuid" else b""
    return float(default or 0) if kind == "float64" else int(default or "0", 0)


def their_row(field: dict[str, Any], version: int) -> tuple[Any, ...]:
    """The wire format of one version of a definition's field."""
    kind = field["type"].removeprefix("[]")
    nullable = version in versions_in(field.get("nullableVersions"))
    tagged = version in versions_in(field.get("taggedVersions"))
    return (
        "struct" if kind[0].isupper() else kind,
        field["type"].startswith("[]"),
        nullable,
        their_default(field, nullable),
        int(field["tag"]) if tagged else None,
        bool(field.get("ignorable", False)),
    )


def our_row(field: Field, version: int) -> tuple[Any, ...]:
    """The wire format of one version of our field."""
    return (
        "struct" if field.is_struct else field.type,
        field.array,
        version in field.nullable,
        field.default,
        field.tag,
        field.ignorable,
    )


def compare(
    message: type[messages.Struct],
    their_fields: list[dict[str, Any]],
    common: dict[str, list[dict[str, Any]]],
    version: int,
    ignorable_too: bool,
) -> int:
    """Compare all fields of a struct and its nested structs in one version; return their number."""
    layout = message.LAYOUT
    ours = [f for f in layout.fields if version in f.versions]
    theirs = [f for f in their_fields if version in versions_in(f["versions"])]
    # The position of a tagged field among the others is irrelevant: its tag identifies it.
    ours.sort(key=lambda f: -1 if f.tag is None else f.tag)
    theirs.sort(key=lambda f: int(f.get("tag", -1)))
    assert len(ours) == len(theirs), f"{message.__qualname__} version {version}"
    compared = len(ours)
    for our_field, their_field in zip(ours, theirs, strict=True):
        where = f"{message.__qualname__}.{our_field.name} version {version}"
        row, their = our_row(our_field, version), their_row(their_field, version)
        length = 6 if ignorable_too else 5
        assert row[:length] == their[:length], where
        if our_field.is_struct:
            inner = their_field.get("fields") or common[their_field["type"].removeprefix("[]")]
            struct = layout.classes[our_field.name]
            compared += compare(struct, inner, common, version, ignorable_too)
    return compared


def compare_message(definition: dict[str, Any], versions: range, release: str) -> int:
    """Compare one request or response in the given versions; return the number of its fields."""
    message = getattr(messages, definition["name"])
    common = {c["name"]: c["fields"] for c in definition.get("commonStructs", [])}
    flexible = versions_in(definition["flexibleVersions"])
    ignorable_too = release == NEWEST or definition["name"] not in IGNORABLE_DIFFERS
    compared = 0
    for version in versions:
        first = message.FLEXIBLE_FROM
        assert (first is not None and version >= first) == (version in flexible)
        compared += compare(message, definition["fields"], common, version, ignorable_too)
    return compared


def test_every_api_of_the_client_listeners_is_here() -> None:
    for definition in definitions(NEWEST).values():
        if definition["type"] == "request" and "broker" in definition.get("listeners", []):
            api = APIS[definition["apiKey"]]
            assert f"{api.name}Request" == definition["name"]
            assert api.listeners == set(definition["listeners"])


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: APIS[key].name)
def test_ranges_are_the_stable_ones_of_both_releases(key: ApiKey) -> None:
    api = APIS[key]
    newest = stable(definitions(NEWEST)[f"{api.name}Request"])
    old = definitions(OLDEST).get(f"{api.name}Request")
    oldest = stable(old) if old else range(0)
    assert api.versions.stop == newest.stop
    assert api.versions.start == min([newest.start, *oldest[:1]])


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: APIS[key].name)
@pytest.mark.parametrize("release", [NEWEST, OLDEST])
def test_every_field_is_as_kafka_declares_it(key: ApiKey, release: str) -> None:
    api = APIS[key]
    request = definitions(release).get(f"{api.name}Request")
    if request is None:
        assert release == OLDEST
        return
    versions = stable(request)          # the mark `latestVersionUnstable` is only on requests
    assert set(versions) <= set(api.versions)
    compared = compare_message(request, versions, release)
    response = definitions(release)[f"{api.name}Response"]
    compared += compare_message(response, versions, release)
    assert compared or not versions
