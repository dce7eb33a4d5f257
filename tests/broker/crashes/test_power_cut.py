"""A power cut while all clients write: what was acknowledged with acks=all is there afterwards.

The tests use a real ext4, whose shutdown ioctl is the power cut. Without ext4 they are skipped.
`OTTLA_POWER_CUTS=30` sets the number of power cuts.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ottla.wire.errors import ErrorCode
from tests.broker.crashes.cycles import BrokerProcess, Cycles
from tests.broker.crashes.loop_disk import LoopDisk
from tests.broker.produce_fetch import batch, fetch, produce, values
from tests.broker.running import WireClient
from tests.broker.topics import create, metadata

PARTITIONS = 4

POWER_CUTS = int(os.environ.get("OTTLA_POWER_CUTS", "3"))
DISK_BYTES = 1 << 30


@pytest.mark.timeout(120 + 15 * POWER_CUTS)
def test_power_cuts_take_back_nothing_that_was_promised_with_acks_all(tmp_path: Path) -> None:
    began = time.monotonic()
    with LoopDisk(tmp_path, DISK_BYTES) as disk:
        broker = BrokerProcess(disk.mount_point / "data", log_segment_bytes=1 << 20)

        def cut() -> None:
            disk.cut_power()
            broker.kill()
            disk.unmount()
            disk.mount()

        # Records with acks=1 may be lost in a power cut, but must not affect the other records.
        with Cycles(broker, seed=POWER_CUTS, checks_plain=False) as cycles:
            for _ in range(POWER_CUTS):
                cycles.cycle(cut)
            promises = cycles.finish()
    print(f"{POWER_CUTS} cuts, {promises} promises kept in {time.monotonic() - began:.0f} s")


def test_a_disk_that_dies_beside_another_takes_only_its_own_partitions(tmp_path: Path) -> None:
    with LoopDisk(tmp_path, 64 << 20) as disk:
        away = disk.mount_point / "b"
        broker = BrokerProcess(tmp_path / "a", log_dirs=f"{tmp_path / 'a'},{away}")
        try:
            with WireClient(broker.start()) as client:
                create(client, "t", PARTITIONS)
                for index in range(PARTITIONS):
                    assert produce(client, "t", batch(b"a"), partition=index).error_code == 0
                lost = {int(path.name[2:]) for path in away.glob("t-*")}
                assert len(lost) == PARTITIONS // 2
                disk.cut_power()
                for index in range(PARTITIONS):
                    code = produce(client, "t", batch(b"b"), partition=index).error_code
                    assert code == (ErrorCode.KAFKA_STORAGE_ERROR if index in lost else 0)
                    leader = metadata(client, "t")[index].leader_id
                    assert leader == (-1 if index in lost else 0)
            broker.kill()
            disk.unmount()
            disk.mount()
            with WireClient(broker.start()) as client:
                for index in range(PARTITIONS):
                    found = values(fetch(client, "t", partition=index))
                    assert found == [b"a"] + [b"b"] * (index not in lost)
        finally:
            broker.kill()


def test_a_broker_whose_only_disk_dies_ends_and_says_why(tmp_path: Path) -> None:
    with LoopDisk(tmp_path, 64 << 20) as disk:
        broker = BrokerProcess(disk.mount_point / "data")
        try:
            with WireClient(broker.start()) as client:
                create(client, "t", PARTITIONS)
                disk.cut_power()
                produce(client, "t", batch(b"b"))
            assert broker.ended() == 1
        finally:
            broker.kill()
        assert any("ottla: the last log directory has failed" in line for line in broker.said)


def test_what_was_not_promised_a_cut_does_take(tmp_path: Path) -> None:
    """The cut is real. Otherwise the tests above would show nothing."""
    with LoopDisk(tmp_path, 64 << 20) as disk:
        synced, written = disk.mount_point / "synced", disk.mount_point / "written"
        for path in (synced, written):
            with path.open("wb") as file:
                file.write(b"x" * 5000)
                if path is synced:
                    file.flush()
                    os.fsync(file.fileno())
        disk.cut_power()
        with pytest.raises(OSError):
            written.write_bytes(b"y")
        disk.unmount()
        disk.mount()
        assert synced.read_bytes() == b"x" * 5000
        assert not written.exists() or written.stat().st_size == 0
