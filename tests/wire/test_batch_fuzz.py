"""The C validator and a slow validator in Python agree on batches with random faults."""

import random

import pytest

from ottla.wire.batch import BatchLimits, check
from ottla.wire.checksum import crc32c_of
from ottla.wire.compression import Codec, compress, decompress
from ottla.wire.errors import ErrorCode, ProtocolError

NOW = 1_700_000_000_000
EARLIEST, LATEST = NOW - 10_000, NOW + 5_000
SIZE_MAX, PLAIN_SIZE_MAX = 900, 2_000
OK = ErrorCode.NONE
ODD = [0, 1, -1, -2, 2, 5, 63, 64, -64, -65, 127, 128, 2**31 - 1, -(2**31), 2**62, -(2**63)]
FIELDS = {
    "base_offset": (0, 8),
    "length": (8, 4),
    "leader_epoch": (12, 4),
    "magic": (16, 1),
    "attributes": (21, 2),
    "last_offset_delta": (23, 4),
    "base_timestamp": (27, 8),
    "max_timestamp": (35, 8),
    "producer_id": (43, 8),
    "producer_epoch": (51, 2),
    "base_sequence": (53, 4),
    "record_count": (57, 4),
}


# --- the slow validator: the rules in the order in which they are tried ---------------------------


class InvalidBatch(Exception):
    def __init__(self, code):
        self.code = code


def demand(condition, code=ErrorCode.INVALID_RECORD):
    if not condition:
        raise InvalidBatch(code)


def field(batch, name):
    at, size = FIELDS[name]
    return int.from_bytes(batch[at : at + size], "big", signed=True)


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, bits):
        value = shift = 0
        while True:
            demand(self.at < len(self.data) and shift < bits)
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        demand(value < 1 << bits)
        return value // 2 if value % 2 == 0 else -(value // 2) - 1

    def take(self, size):
        demand(0 <= size <= len(self.data) - self.at)
        self.at += size
        return self.data[self.at - size : self.at]

    def nullable(self):
        size = self.number(32)
        demand(size >= -1)
        return None if size == -1 else self.take(size)


def reference(batch, *, log_append_time, compacted):
    """The stored form of a valid batch. Raises InvalidBatch if the batch is not valid."""
    demand(len(batch) >= 12)
    demand(field(batch, "length") >= 14, ErrorCode.CORRUPT_MESSAGE)
    demand(len(batch) >= field(batch, "length") + 12)
    demand(field(batch, "magic") in (0, 1, 2), ErrorCode.CORRUPT_MESSAGE)
    demand(field(batch, "magic") == 2)
    demand(len(batch) == field(batch, "length") + 12)
    demand(len(batch) >= 61, ErrorCode.CORRUPT_MESSAGE)
    demand(field(batch, "base_offset") == 0)
    demand(len(batch) <= SIZE_MAX, ErrorCode.MESSAGE_TOO_LARGE)
    crc = int.from_bytes(batch[17:21], "big")
    demand(crc32c_of(batch[21:]) == crc, ErrorCode.CORRUPT_MESSAGE)
    count, attributes = field(batch, "record_count"), field(batch, "attributes")
    demand(count > 0 and field(batch, "last_offset_delta") == count - 1)
    demand(not attributes & 0x60)
    if field(batch, "producer_id") >= 0:
        demand(field(batch, "base_sequence") >= 0)
    else:
        demand(not attributes & 0x10)
    claimed = attributes & 8
    demand(not (claimed and log_append_time), ErrorCode.INVALID_TIMESTAMP)
    try:
        plain = (
            decompress(attributes & 7, batch[61:], PLAIN_SIZE_MAX) if attributes & 7 else batch[61:]
        )
    except ProtocolError as error:
        raise InvalidBatch(error.code) from error
    reader, stamps = Reader(plain), []
    for index in range(count):
        record = Reader(reader.take(reader.number(32)))
        record.take(1)
        stamp = field(batch, "base_timestamp") + record.number(64)
        stamp = (stamp + 2**63) % 2**64 - 2**63
        demand(record.number(32) == index)
        stamps.append(stamp)
        if stamp != -1 and not log_append_time:
            demand(EARLIEST <= stamp <= LATEST, ErrorCode.INVALID_TIMESTAMP)
        key = record.nullable()
        record.nullable()
        headers = record.number(32)
        demand(0 <= headers <= (len(record.data) - record.at) // 2)
        for _ in range(headers):
            demand(record.nullable() is not None)
            record.nullable()
        demand(record.at == len(record.data))
        demand(not (compacted and key is None))
    demand(reader.at == len(plain))
    demand(not (claimed and -1 in stamps), ErrorCode.INVALID_TIMESTAMP)
    latest = NOW if log_append_time else max(-1, *stamps)
    wanted = attributes & ~8 | (8 if log_append_time else 0)
    if (wanted, latest) == (attributes, field(batch, "max_timestamp")):
        return bytes(batch)
    return bytes(sealed(patched(patched(batch, "attributes", wanted), "max_timestamp", latest)))


# --- damage ---------------------------------------------------------------------------------------


def patched(batch, name, value):
    at, size = FIELDS[name]
    value = (value + (1 << 8 * size - 1)) % (1 << 8 * size) - (1 << 8 * size - 1)
    return batch[:at] + value.to_bytes(size, "big", signed=True) + batch[at + size :]


def sealed(batch):
    return batch[:17] + crc32c_of(batch[21:]).to_bytes(4, "big") + batch[21:]


def varint(value, bits=64, padding=0):
    """A zigzag varint with `padding` more bytes than it needs."""
    value = (value << 1 ^ value >> bits - 1) % (1 << bits)
    out = bytearray()
    while value > 127 or padding > 0:
        padding -= value <= 127
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def odd(chance, number, true, bits=32):
    """The varint of `true`, or with the probability `chance`, of a neighbour of `true` or of a
    value from ODD. With the probability `chance / 3`, it has more bytes than it needs."""
    if number.random() < chance:
        true = number.choice([true + 1, true - 1, *ODD])
    padding = number.choice([1, 3, 4, 5, 9]) if number.random() < chance / 3 else 0
    return varint(true, bits, padding)


def sized(chance, number, data):
    return odd(chance, number, -1 if data is None else len(data)) + (data or b"")


def record(number, index, chance):
    stamp = number.choice([0, 1, -1, number.randrange(-100, 100)])
    body = number.choice([b"\0", b"\0", b"\xff"]) + odd(chance, number, stamp, 64)
    body += odd(chance, number, index)
    body += sized(chance, number, number.choice([None, b"", b"key", b"k" * 70]))
    body += sized(chance, number, number.choice([None, b"", b"value", b"v" * 70]))
    headers = number.choice([0, 0, 0, 1, 3])
    body += odd(chance, number, headers)
    for _ in range(headers):
        body += sized(chance, number, None if number.random() < chance else b"h")
        body += sized(chance, number, number.choice([None, b"", b"x"]))
    if number.random() < chance:
        body += b"\0" * number.randrange(1, 3)
    return sized(chance, number, body)


def batch_of(number):
    """A batch with few faults, or none, or many."""
    chance = number.choice([0, 0, 0.01, 0.03, 0.1])
    count = number.choice([1, 1, 2, 5, 12])
    records = b"".join(record(number, index, chance) for index in range(count))
    if number.random() < chance:
        records = records[: number.randrange(len(records) + 1)]
    if number.random() < chance:
        records += bytes(number.choice([1, 2, 3000]))
    codec = number.choice(list(Codec))
    packed = compress(codec, records)
    if number.random() < chance and packed:
        packed = bytearray(packed)
        packed[number.randrange(len(packed))] ^= 1 << number.randrange(8)
    fields = {
        "magic": 2,
        "attributes": codec,
        "base_timestamp": number.choice([NOW, NOW, NOW, NOW, EARLIEST, LATEST, -1]),
        "max_timestamp": number.choice([NOW, -1, 2**62]),
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": count,
        "last_offset_delta": count - 1,
        "length": 49 + len(packed),
    }
    if number.random() < 0.3:
        fields |= {"producer_id": 7, "producer_epoch": 0, "base_sequence": 3}
        fields["attributes"] |= number.choice([0, 0x10])
    batch = bytes(61) + bytes(packed)
    for name, value in fields.items():
        batch = patched(batch, name, value)
    for name in FIELDS:
        if number.random() < chance / 2:
            batch = patched(
                batch, name, number.choice([field(batch, name) ^ 1 << number.randrange(8), *ODD])
            )
    if number.random() < 0.97:
        batch = sealed(batch)
    if number.random() < chance:
        batch = number.choice([batch[: number.randrange(len(batch) + 1)], batch + b"\0", batch * 2])
    return batch


@pytest.mark.parametrize("seed", range(8))
def test_both_validators_give_the_same_verdict_and_the_same_bytes(seed):
    number = random.Random(seed)
    seen = set()
    for round in range(400):
        batch = batch_of(number)
        topic = {
            "log_append_time": number.random() < 0.3,
            "compacted": number.random() < 0.3,
        }
        limits = BatchLimits(
            batch_size_max=SIZE_MAX,
            decompressed_size_max=PLAIN_SIZE_MAX,
            now_ms=NOW,
            timestamp_before_ms_max=NOW - EARLIEST,
            timestamp_after_ms_max=LATEST - NOW,
            **topic,
        )
        try:
            wanted, stored = OK, reference(batch, **topic)
        except InvalidBatch as refused:
            wanted, stored = refused.code, batch
        found = bytearray(batch)
        try:
            check(found, limits)
            verdict = OK
        except ProtocolError as error:
            verdict = error.code
        assert (verdict, bytes(found)) == (wanted, stored), (seed, round, batch.hex())
        seen.add(verdict)
    assert {OK, ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE} <= seen
