"""A fetch of data outside the page cache waits for the disk; no other client waits with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.network.cold_reads import ColdReads, resident
from ottla.log.files.disk import Disk, File
from tests.broker.produce_fetch import batch, fetch_request, produce, values
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create
from tests.waiting import until

VALUES = [b"%03d" % n * 40_000 for n in range(40)]


def forget(path: Path) -> None:
    """Have the system drop a file from the page cache, or skip the test."""
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
    if resident(Disk().open(str(path)), 0, path.stat().st_size):
        pytest.skip("this file system keeps its files in memory, or the kernel does not say")


def test_what_was_just_written_is_resident_and_what_was_forgotten_is_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(3 << 20))
    assert resident(Disk().open(str(path)), 0, 3 << 20)
    assert resident(Disk().open(str(path)), 4097, 1)
    forget(path)
    file = Disk().open(str(path))
    file.pread(1, 2 << 20)
    assert resident(file, 2 << 20, 1)
    assert not resident(file, 0, 3 << 20)


class HeldReads:
    """Reads from the disk that wait until `release`; `wanted` has the sizes of all of them."""

    def __init__(self, reads: ColdReads) -> None:
        self.reads = reads
        self.wanted: list[int] = []
        self.held: list[Callable[[], None]] | None = []

    def begin(self, file: File, position: int, size: int, done: Any) -> None:
        self.wanted.append(size)
        if self.held is None:
            self.reads.begin(file, position, size, done)
        else:
            self.held.append(lambda: self.reads.begin(file, position, size, done))

    def release(self) -> None:
        held, self.held = self.held, None
        for go in held or ():
            go()


@contextmanager
def reads_that_wait(broker: RunningBroker) -> Iterator[list[int]]:
    """Blocks reads from the disk for connections made inside; yields the sizes of those reads."""
    reads = HeldReads(broker.server.cold_reads)
    broker.server.broker.cold_reads = reads  # type: ignore[assignment]
    try:
        yield reads.wanted
    finally:
        broker.server.broker.cold_reads = broker.server.cold_reads
        broker.call(reads.release)


def fill(client: WireClient, topic: str) -> None:
    create(client, topic)
    for value in VALUES:
        assert produce(client, topic, batch(value)).error_code == 0


def test_a_cold_fetch_holds_up_its_own_connection_only(data: Path) -> None:
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        fill(client, "t")
        forget(data / "t-0" / "00000000000000000000.log")
        with ExitStack() as stack:
            with reads_that_wait(broker) as wanted:
                reader = stack.enter_context(WireClient(broker.address))
                sent = [
                    reader.send(fetch_request("t", offset, partition_max_bytes=1 << 19), 11)
                    for offset in (0, 3)
                ]
                until(lambda: wanted, "a range is read")
                assert wanted == [1 << 19]
                for value in (b"a", b"b"):
                    assert produce(client, "t", batch(value)).error_code == 0
                assert len(wanted) == 1, "one range of a connection at a time"
            for each, offset in zip(sent, (0, 3), strict=True):
                found = reader.answer(each).responses[0].partitions[0]
                assert values(found)[:4] == VALUES[offset : offset + 4]


def test_everything_arrives_however_often_it_was_cold(data: Path) -> None:
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        fill(client, "t")
        path = data / "t-0" / "00000000000000000000.log"
        found: list[bytes | None] = []
        while len(found) < len(VALUES):
            forget(path)
            request = fetch_request(
                "t", len(found), partition_max_bytes=3 << 20, max_bytes=3 << 20
            )
            answer = client.call(request, 11).responses[0].partitions[0]
            found += values(answer)
        assert found == VALUES
        assert broker.server.cold_reads.begun > 1


def test_a_client_that_goes_while_its_range_is_read_is_forgotten(data: Path) -> None:
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        fill(client, "t")
        forget(data / "t-0" / "00000000000000000000.log")
        with reads_that_wait(broker) as wanted:
            with WireClient(broker.address) as reader:
                reader.send(fetch_request("t"), 11)
                until(lambda: wanted, "a range is read")
        assert produce(client, "t", batch(b"still here")).error_code == 0
