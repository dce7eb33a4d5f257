"""One class for each message of the protocol, made from `schema/*.txt` when it is first used.

    from ottla.wire.messages import MetadataRequest, MetadataResponse

This import reads only `schema/metadata.txt`. An API has a class for its request and one for its
response. A record of an internal topic has one for its key and one for its value
(`OffsetCommitKey`, `OffsetCommitValue`). A file with a single struct (`data`) gives one class
(`ConsumerProtocolSubscription`). The classes of nested structs are attributes of the class around
them, named in the singular: `MetadataResponse.Topic.Partition`. If several fields share a struct,
its class is an attribute of the message's class. Editors and mypy read the generated
`messages.pyi`.
"""

from ottla.wire.plan import Layout
from ottla.wire.schema_parser import (
    SCHEMA_FOLDER,
    Field,
    Section,
    load_schema,
    snake_case,
)
from ottla.wire.structs import Message, Struct

__all__ = ["Message", "Struct"]

ENDINGS = ("Request", "Response", "Key", "Value", "")


def __getattr__(name: str) -> type[Message]:
    for ending in ENDINGS:
        if name[:1].isupper() and name.endswith(ending):
            file_name = snake_case(name.removesuffix(ending))
            for folder in ("", "records/", "kraft/"):
                if (SCHEMA_FOLDER / f"{folder}{file_name}.txt").is_file():
                    make_classes(f"{folder}{file_name}")
                    if name in globals():
                        return globals()[name]
    raise AttributeError(f"the protocol has no message {name}")


def __dir__() -> list[str]:
    for path in SCHEMA_FOLDER.rglob("*.txt"):
        make_classes(path.relative_to(SCHEMA_FOLDER).with_suffix("").as_posix())
    return sorted(globals())


def make_classes(schema_name: str) -> None:
    """Read one schema file and add the classes of its messages to this module."""
    schema = load_schema(schema_name)
    for section in schema.sections.values():
        if section.class_name not in globals():
            globals()[section.class_name] = message_class(schema.key, section)


def message_class(key: int | None, section: Section) -> type[Message]:
    """The class of one message with the classes of all structs in it."""
    shared: dict[str, type[Struct]] = {}
    for name, fields in section.shared.items():
        shared[name] = struct_class(f"{section.class_name}.{name}", Struct, fields, section, shared)
    made = struct_class(section.class_name, Message, section.fields, section, shared)
    for name, made_shared in shared.items():
        setattr(made, name, made_shared)
    made.API_KEY = -1 if key is None else key
    made.KIND = section.kind
    made.VERSIONS = section.versions
    made.FLEXIBLE_FROM = section.flexible_from
    return made


def struct_class(
    qualified_name: str,
    base: type[Struct],
    fields: list[Field],
    section: Section,
    shared: dict[str, type[Struct]],
) -> type[Struct]:
    """A class with a slot for each field and, as attributes, the classes of nested structs."""
    classes: dict[str, type[Struct]] = {}
    nested: dict[str, type[Struct]] = {}
    for field in fields:
        if field.type == "struct":
            inner_name = f"{qualified_name}.{field.class_name}"
            inner = struct_class(inner_name, Struct, field.fields, section, shared)
            classes[field.name] = nested[field.class_name] = inner
        elif field.is_struct:
            classes[field.name] = shared[field.type]
    names = [field.name for field in fields]
    assert nested.keys().isdisjoint(names), "a nested class has a field's name"
    made = type(
        qualified_name.rpartition(".")[2],
        (base,),
        {
            **nested,
            "__slots__": tuple(field.name for field in fields),
            "__module__": __name__,
            "__qualname__": qualified_name,
        },
    )
    made.LAYOUT = Layout(made, section, fields, classes)
    return made
