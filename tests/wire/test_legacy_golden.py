"""Message sets that old stock clients sent, and what Apache Kafka 3.9.2 converted down for them."""

import base64
import gzip
import json
import struct
from pathlib import Path

import pytest

from ottla.wire.batch import BatchLimits, BatchView, check
from ottla.wire.compression import Codec, decompress
from ottla.wire.legacy import down_convert, read_message_set, up_convert
from ottla.wire.legacy_lz4 import with_right_checksum
from ottla.wire.records import build_batch, read_records

GOLDEN = Path(__file__).parent.parent / "golden"


def frames(name, direction, versions):
    with gzip.open(GOLDEN / name, "rt") as lines:
        for line in lines:
            frame = json.loads(line)
            if frame["direction"] == direction and frame["version"] in versions:
                yield frame, base64.b64decode(frame["frame_base64"])


def message_sets(data, position, partition_header):
    """Yields the records of each partition; the array of topics begins at `position`."""
    (topics,) = struct.unpack_from(">i", data, position)
    position += 4
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", data, position)
        (partitions,) = struct.unpack_from(">i", data, position + 2 + size)
        position += 6 + size
        for _ in range(partitions):
            size = struct.unpack_from(partition_header, data, position)[-1]
            position += struct.calcsize(partition_header)
            if size > 0:
                yield data[position : position + size]
            position += max(size, 0)
    assert position == len(data)


def produced():
    """The sets in Produce requests 0 to 2: header | acks int16 | timeout int32 | topics."""
    for frame, data in frames("00-produce.jsonl.gz", "request", (0, 1, 2)):
        (size,) = struct.unpack_from(">h", data, 8)
        for found in message_sets(data, 10 + max(size, 0) + 6, ">ii"):
            yield pytest.param(found, id=f"{frame['client']}-v{frame['version']}-{len(found)}")


def fetched():
    """The sets in Fetch responses 0 to 3: correlation id | throttle time (1+) | topics."""
    for frame, data in frames("01-fetch.jsonl.gz", "response", (0, 1, 2, 3)):
        position = 8 if frame["version"] else 4
        for found in message_sets(data, position, ">ihqi"):
            yield pytest.param(found, id=f"{frame['client']}-v{frame['version']}-{len(found)}")


def shallow(data):
    """Yields each whole message of a set, and its offset, attributes, timestamp, LZ4 header (or
    None) and decompressed content."""
    position = 0
    while position + 12 <= len(data):
        offset, size = struct.unpack_from(">qi", data, position)
        message = data[position + 12 : position + 12 + size]
        if len(message) < size:
            return
        magic, attributes = message[4], message[5]
        timestamp = struct.unpack_from(">q", message, 6)[0] if magic else None
        header = None
        if attributes & 7:
            value = message[14 + 8 * magic :]
            header = value[:7] if attributes & 7 == Codec.LZ4 else None
            if header and not magic:
                value = with_right_checksum(value)
            message = decompress(attributes & 7, value, 1 << 20)
        yield (
            data[position : position + 12 + size],
            (offset, attributes, timestamp, header, message),
        )
        position += 12 + size


def stored(data):
    """The batches from which the broker made this set; each compressed message was one batch."""
    batches, plain = [], []
    for message, (_, attributes, _, _, _) in shallow(data):
        records = read_message_set(message)
        if not attributes & 7:
            plain += records
            continue
        if plain:
            batches.append(build_batch(plain, base_offset=plain[0].offset))
        batches.append(build_batch(records, base_offset=records[0].offset, codec=attributes & 7))
        plain = []
    if plain:
        batches.append(build_batch(plain, base_offset=plain[0].offset))
    return b"".join(batches)


@pytest.mark.parametrize("data", list(produced()))
def test_what_old_clients_sent_becomes_a_batch_that_passes(data):
    batch = bytearray(up_convert(data))
    check(batch, BatchLimits(now_ms=2**62))
    assert BatchView(batch).codec == data[17] & 7
    found, sent = read_records(batch), read_message_set(data)
    assert found
    assert [(record.timestamp, record.key, record.value) for record in found] == [
        (record.timestamp, record.key, record.value) for record in sent
    ]


@pytest.mark.parametrize("data", list(fetched()))
def test_conversion_down_gives_what_kafka_gave(data):
    """Plain messages are equal; compressed ones have equal offsets, attributes, timestamps, LZ4
    headers and contents."""
    converted = down_convert(stored(data), data[16])
    theirs, ours = list(shallow(data)), list(shallow(converted))
    assert [content for _, content in ours] == [content for _, content in theirs]
    assert theirs
