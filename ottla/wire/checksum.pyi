def crc32c_of(data: bytes | bytearray | memoryview) -> int:
    """CRC-32C of a contiguous bytes-like object."""

def crc32c_by_table(data: bytes | bytearray | memoryview) -> int:
    """CRC-32C by a table, for processors without a CRC instruction."""

def crc32_of(data: bytes | bytearray | memoryview) -> int:
    """CRC-32 (as zlib's) of a contiguous bytes-like object."""
