"""Where each key was written last, in a bounded table."""


class KeyOffsets:
    """The newest offset of each key, 24 bytes an entry, never more than `memory_max` bytes.

    `keys_max` says how many keys there can be at most: less memory is taken then. `secret` are 16
    bytes that clients must not know.
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
