"""Handles Protobuf values with the official Python library, without generated classes.

protoc compiles a .proto text to a descriptor set. From this set, the library creates the class of
a message. protoc and the library are imported only when they are needed.
"""

from __future__ import annotations

import base64
from functools import lru_cache
from pathlib import Path
from typing import Any

from ottla.client.errors import ClientError
from ottla.wire.environment import pip_install

NESTING_MAX = 16
CLASSES_MAX = 1000
TIMESTAMP = "google.protobuf.Timestamp"


class BadProto(ClientError):
    """A .proto text does not compile, or does not define the requested message."""


def compile_proto(text: str, name: str = "schema.proto") -> bytes:
    """Compiles a .proto text, with its imports of google/protobuf, to the bytes of a
    FileDescriptorSet.

    Raises BadProto if grpcio-tools is missing, or if protoc refuses the text, for example because
    it imports other files; protoc itself writes the reason to standard error.
    """
    import tempfile

    try:
        import grpc_tools
        from grpc_tools import protoc
    except ImportError:
        raise BadProto(f"Protobuf needs grpcio-tools: {pip_install('grpcio-tools')}") from None

    standard = str(Path(grpc_tools.__file__).parent / "_proto")
    with tempfile.TemporaryDirectory(prefix="ottla-proto-") as directory:
        source, made = Path(directory) / name, Path(directory) / "made"
        source.write_text(text)
        arguments = ["protoc", f"-I{directory}", f"-I{standard}", "--include_imports"]
        if protoc.main([*arguments, f"--descriptor_set_out={made}", str(source)]) != 0:
            raise BadProto(f"{name} does not compile; protoc has printed the reason")
        return made.read_bytes()


@lru_cache(CLASSES_MAX)
def message_class(compiled: bytes, name: str | None, path: tuple[int, ...] = (0,)) -> Any:
    """Returns the class of a message. The message is given by its full name or, if `name` is None,
    by its message indexes `path` in the set's last file. Raises BadProto."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    files = descriptor_pb2.FileDescriptorSet.FromString(compiled)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    if name is None:
        name = _name_at(files.file[-1], path)
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError as error:
        raise BadProto(f"the schema has no message type {name}") from error


def _name_at(file: Any, path: tuple[int, ...]) -> str:
    names, inside = [file.package] if file.package else [], file.message_type
    for index in path:
        if not 0 <= index < len(inside):
            raise BadProto(f"the schema has no message type at the message indexes {list(path)}")
        names.append(inside[index].name)
        inside = inside[index].nested_type
    return ".".join(names)


def kind_of(item: Any) -> str:
    """A field's type: double, float, bool, string, enum, bytes, (u)int32 or (u)int64."""
    kinds = {1: "int32", 2: "int64", 3: "uint32", 4: "uint64", 5: "double", 6: "float",
             7: "bool", 8: "enum", 9: "string"}  # fmt: skip
    return "bytes" if item.type == item.TYPE_BYTES else kinds[item.cpp_type]


def is_map(item: Any) -> bool:
    """Whether a field is a map<…>."""
    return item.message_type is not None and item.message_type.GetOptions().map_entry


def plain(message: Any, *, defaults: bool = True) -> dict[str, Any]:
    """A message as a dict for json.dumps and Spark's from_json: 64-bit numbers stay numbers.
    Without `defaults`, the dict has only the fields that are set, so that it stays small."""
    if defaults:
        return {item.name: _field(message, item) for item in message.DESCRIPTOR.fields}
    return {item.name: _field(message, item, False) for item, _ in message.ListFields()}


def _field(message: Any, item: Any, defaults: bool = True) -> Any:
    value = getattr(message, item.name)
    if is_map(item):
        inner = item.message_type.fields_by_name["value"]
        return {str(key): _single(one, inner, defaults) for key, one in value.items()}
    if item.is_repeated:
        return [_single(one, item, defaults) for one in value]
    if item.has_presence and not message.HasField(item.name):
        return None
    return _single(value, item, defaults)


def _single(value: Any, item: Any, defaults: bool) -> Any:
    if item.message_type is not None:
        if item.message_type.full_name == TIMESTAMP:
            return value.ToJsonString()
        return plain(value, defaults=defaults)
    kind = kind_of(item)
    if kind == "bytes":
        return base64.b64encode(value).decode()
    if kind == "enum":
        known = item.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    return value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 35:
            raise ValueError("a number in the list of message indexes is too long")


def message_path(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Reads the message indexes that precede a payload in Confluent's wire format: the path to a
    message type in the schema. Returns the path and the position of the payload."""
    count, at = _varint(data, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= NESTING_MAX:
        raise ValueError(
            f"the list of message indexes has {count} entries, expected 1 to {NESTING_MAX}")
    path = []
    for _ in range(count):
        index, at = _varint(data, at)
        path.append(index)
    return tuple(path), at
