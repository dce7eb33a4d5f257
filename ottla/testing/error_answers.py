"""Error answers made from a request, for an API in any version.

Kafka's own code has a method for every request class (`getErrorResponse`). Here, `error_answer`
handles all requests. It sets every `error_code` of the answer. An array of the answer gets an
element for each element of the corresponding array of the request, with the fields that identify
the element.
"""

from __future__ import annotations

from typing import Any

from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.schema_parser import Field
from ottla.wire.structs import Message, Struct

READS_WITH_MORE = {ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER, ApiKey.API_VERSIONS}
"""Requests whose answers need more than an error: the broker answers, the proxy adds the error."""

ERROR = "error_code"
AS_BROKERS_DO = {"records": b"", "high_watermark": -1}
"""The values that brokers send for a partition that a Fetch may not read. After null records,
librdkafka would fetch again without a pause. A high watermark of 0 would mean an empty
partition."""
SAME_PLACE = {
    "partition_index": ("partition_index", "partition", "index"),
    "index": ("index", "partition_index"),
    "partition": ("partition", "partition_index"),
    "group_id": ("group_id",),
    "topic": ("topic", "name"),
    "name": ("name", "topic"),
}


class NoErrorToGive(Exception):
    """This version of an answer has no field for an error."""


def error_answer(key: int, version: int, request: Message, code: ErrorCode) -> Message:
    """The answer that refuses all of `request`. Raises NoErrorToGive."""
    answer = APIS[key].response()
    fill(answer, request, version, code)
    if not mark(answer, version, code):
        raise NoErrorToGive(f"answers of {APIS[key].name} version {version} have no error field")
    return answer


def fill(answer: Struct, request: Struct, version: int, code: ErrorCode) -> None:
    """Fills the arrays of the answer, and copies identifying fields."""
    asked = [f for f in type(request).LAYOUT.fields if version in f.versions]
    for field in type(answer).LAYOUT.fields:
        if version not in field.versions:
            continue
        if field.name in AS_BROKERS_DO:
            setattr(answer, field.name, AS_BROKERS_DO[field.name])
        elif not field.array:
            copy_name(answer, field, request, asked)
        elif field.is_struct:
            made_of = type(answer).LAYOUT.classes[field.name]
            if has_error(made_of, version):
                setattr(answer, field.name, [
                    element(made_of, each, source, version, code)
                    for source in counterparts(field, asked)
                    for each in getattr(request, source.name) or ()
                ])


def has_error(struct_class: type[Struct], version: int) -> bool:
    """Whether the struct, or a struct inside it, has a field for an error."""
    layout = struct_class.LAYOUT
    return any(
        field.name.endswith(ERROR)
        or (field.is_struct and has_error(layout.classes[field.name], version))
        for field in layout.fields if version in field.versions
    )


def counterparts(field: Field, asked: list[Field]) -> list[Field]:
    """The request's arrays that correspond to an array of the answer: those of the same name or, if
    there are none, all of them except Fetch's `forgotten_topics_data`."""
    arrays = [other for other in asked if other.array and not other.name.startswith("forgotten")]
    return [other for other in arrays if other.name == field.name] or arrays


def element(
    made_of: type[Struct], each: Any, source: Field, version: int, code: ErrorCode
) -> Struct:
    """The answer's element for an element of the request, which is a struct, a name or a number."""
    made = made_of()
    if isinstance(each, Struct):
        fill(made, each, version, code)
        return made
    for field in made_of.LAYOUT.fields:
        if version not in field.versions or field.array or field.type != source.type:
            continue
        if not field.name.endswith(ERROR) and field.name != "error_message":
            setattr(made, field.name, each)
            break
    return made


def copy_name(answer: Struct, field: Field, request: Struct, asked: list[Field]) -> None:
    """Sets `field` of the answer to the field of the request that has the same meaning, if there is
    one. Errors and the throttle time are not copied."""
    if field.is_struct or field.name in ("error_code", "error_message", "throttle_time_ms"):
        return
    for name in SAME_PLACE.get(field.name, (field.name,)):
        for other in asked:
            if other.name == name and other.type == field.type and not other.array:
                setattr(answer, field.name, getattr(request, name))
                return


def mark(answer: Struct, version: int, code: ErrorCode) -> bool:
    """Sets every error code in the answer; returns whether the answer has an error code."""
    found = False
    for field in type(answer).LAYOUT.fields:
        if version not in field.versions:
            continue
        value = getattr(answer, field.name)
        if field.name.endswith(ERROR):
            setattr(answer, field.name, int(code))
            found = True
        elif field.is_struct and value is not None:
            for each in value if field.array else (value,):
                found = mark(each, version, code) or found
    return found
