"""The power goes while everybody writes: what was acknowledged with acks=all is there again.

On a real ext4, whose shutdown ioctl is the power cut; where there is none the test is skipped.
`OTTLA_POWER_CUTS=30` makes it the long form.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.broker.crash_cycles import BrokerProcess, Cycles
from tests.broker.loop_disk import LoopDisk

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

        # acks=1 may lose what a power cut takes; what acks=1 writes beside must disturb nobody.
        with Cycles(broker, seed=POWER_CUTS, checks_plain=False) as cycles:
            for _ in range(POWER_CUTS):
                cycles.cycle(cut)
            promises = cycles.finish()
    print(f"{POWER_CUTS} cuts, {promises} promises kept in {time.monotonic() - began:.0f} s")


def test_what_was_not_promised_a_cut_does_take(tmp_path: Path) -> None:
    """The cut is a real one: without it the test above would show nothing."""
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
