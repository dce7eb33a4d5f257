from typing import Any, ClassVar, Self, dataclass_transform

from ottla.wire.codec import Cursor
from ottla.wire.plan import Layout

@dataclass_transform(kw_only_default=True)
class Struct:
    LAYOUT: ClassVar[Layout]
    def __init__(self, **values: Any) -> None: ...
    def __eq__(self, other: object) -> bool: ...

class Message(Struct):
    API_KEY: ClassVar[int]
    KIND: ClassVar[str]
    VERSIONS: ClassVar[range]
    FLEXIBLE_FROM: ClassVar[int | None]
    def encode(self, version: int) -> bytes: ...
    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview | Cursor, version: int) -> Self: ...

class EncodedMessage(Message):
    def __init__(self, data: bytes) -> None: ...
    @property
    def data(self) -> bytes: ...

def rebuilt(struct_class: type[Struct], values: dict[str, Any]) -> Struct: ...
