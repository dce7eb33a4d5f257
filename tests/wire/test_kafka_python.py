"""Our codec and kafka-python's agree both ways, in every API and version that both define.

kafka-python accepts versions from 0 on, even below the lowest version of its own definition, so the
tests use only versions of the definition. They compare fields by position, because kafka-python has
other field names, which change between its releases.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
import uuid
from typing import Any

import kafka.protocol
import pytest
from kafka.protocol.api_message import ApiMessage

from ottla.wire.apis import APIS
from ottla.wire.messages import Message, Struct
from tests.wire.samples import sample

SAMPLES = 6
UNKNOWN_OPERATIONS = -(2**31)           # kafka-python reads these authorized operations as None
# kafka-python reads every failed response of this API as version 0; Apache Kafka does so only for
# error 35 (UNSUPPORTED_VERSION).
ERROR_CODE_FIRST = {"ApiVersionsResponse"}


def oracle_classes() -> dict[tuple[int, str], Any]:
    """kafka-python's message classes by API key and direction."""
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name and "generate" not in module.name:
            importlib.import_module(module.name)
    found, todo = {}, [ApiMessage]
    while todo:
        for message in todo.pop().__subclasses__():
            todo.append(message)
            json = getattr(message, "_json", None)
            if getattr(message, "_class_version", None) is None and json:
                found[json["apiKey"], json["type"]] = message
    return found


ORACLE = oracle_classes()
PAIRS = [
    pytest.param(getattr(APIS[key], kind), ORACLE[key, kind], id=f"{APIS[key].name}-{kind}")
    for key, kind in sorted(ORACLE)
    if key in APIS
]


def versions_of(message: type[Message], oracle: Any) -> list[int]:
    """The versions that both define."""
    first, last = oracle._valid_versions
    return [v for v in range(first, last + 1) if v in message.VERSIONS]


def test_the_oracle_covers_most_apis() -> None:
    assert len(PAIRS) > 90


@pytest.mark.parametrize(("message_class", "oracle"), PAIRS)
def test_both_codecs_make_the_same_bytes_and_values(
    message_class: type[Message], oracle: Any
) -> None:
    rng = random.Random(message_class.__name__)
    for version in versions_of(message_class, oracle):
        for _ in range(SAMPLES):
            message = sample(message_class, version, rng)
            if message_class.__name__ in ERROR_CODE_FIRST:
                message.error_code = 0
            data = message.encode(version)
            theirs = oracle.decode(data, version=version)
            compare(message, theirs, version)
            theirs._header = None       # not set by decoding without a header
            again = bytes(theirs.encode(version=version))
            assert again == data
            assert message_class.decode(again, version) == message


def compare(ours: Struct, theirs: Any, version: int) -> None:
    """Assert that both have the same values in the same places."""
    our_fields = [f for f in ours.LAYOUT.fields if version in f.versions]
    their_fields = [f for f in theirs._struct._fields if f.for_version_q(version)]
    our_plain = [f.name for f in our_fields if f.tag is None]
    their_plain = [f.name for f in their_fields if not f.tagged_field_q(version)]
    assert len(our_plain) == len(their_plain)
    pairs = list(zip(our_plain, their_plain, strict=True))
    their_tags = {f._tag: f.name for f in their_fields if f.tagged_field_q(version)}
    defaults = type(ours)()
    for field in our_fields:
        # A tagged field with the default is not sent; kafka-python may have another default.
        if field.tag is not None and getattr(ours, field.name) != getattr(defaults, field.name):
            pairs.append((field.name, their_tags[field.tag]))
    for our_name, their_name in pairs:
        compare_values(getattr(ours, our_name), getattr(theirs, their_name), version)


def compare_values(ours: Any, theirs: Any, version: int) -> None:
    if isinstance(ours, Struct):
        compare(ours, theirs, version)
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for our_item, their_item in zip(ours, theirs, strict=True):
            compare_values(our_item, their_item, version)
    elif isinstance(theirs, set):       # authorized operations, as bit numbers
        assert {bit for bit in range(32) if ours >> bit & 1} == theirs
    elif isinstance(theirs, uuid.UUID):
        assert ours == theirs.bytes
    elif isinstance(ours, bytes) and theirs is not None:
        assert ours == bytes(theirs)
    elif ours == UNKNOWN_OPERATIONS:
        assert theirs in (None, ours)
    else:
        assert ours == theirs
