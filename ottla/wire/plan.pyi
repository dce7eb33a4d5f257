from ottla.wire.schema_parser import Field, Section
from ottla.wire.structs import Struct

class Layout:
    struct_class: type[Struct]
    section: Section
    fields: list[Field]
    classes: dict[str, type[Struct]]
    def __init__(
        self,
        struct_class: type[Struct],
        section: Section,
        fields: list[Field],
        classes: dict[str, type[Struct]],
    ) -> None: ...
