"""The newest offset of each key, in a table of bounded size."""


class KeyOffsets:
    """The newest offset of each key, 24 bytes an entry.

    The table has room for `keys_max` keys, or for fewer if they need more than `memory_max` bytes;
    only `grow` may exceed these limits. `secret` is a key of 16 bytes that clients must not know.
    """

    used: int
    limit: int
    def __init__(self, memory_max: int, keys_max: int, secret: bytes) -> None: ...
    @property
    def memory(self) -> int: ...
    def grow(self, keys: int) -> None: ...
    def set(self, key: bytes, offset: int) -> None: ...
    def offset_of(self, key: bytes) -> int: ...

def digest_of(key: bytes, secret: bytes) -> bytes: ...
