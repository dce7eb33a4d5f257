"""Producer snapshots survive power cuts, so that no ended transaction becomes open again.

Compaction drops a marker when nothing of its transaction is left. If a power cut removed the newest
snapshot, recovery would begin with an older one, in which the transaction is open, and would not
find the marker that ended it.
"""

from __future__ import annotations

from ottla.log.files.snapshots import decode
from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.partition.retention import remove_below_start
from tests.fakes import FakeClock
from tests.log.batches import batch
from tests.log.faulty_disk import FaultyDisk


def snapshots(disk: FaultyDisk) -> dict[str, bytes]:
    return {
        name: disk.read_bytes(name) for name in disk.names if name.endswith(".snapshot")
    }


def test_the_snapshot_of_a_flushed_segment_survives_a_power_cut() -> None:
    for seed in range(20):
        disk = FaultyDisk(seed)
        log = PartitionLog.open(disk, FakeClock(), "/data/events-0", LogConfig())
        for sequence in range(3):
            log.append_bytes(batch(b"v", producer_id=7, epoch=0, sequence=sequence), 0)
            log.roll()
        log.flush()
        written = snapshots(disk)
        assert len(written) == 3
        disk.cut_power()
        assert snapshots(disk) == written
        assert all(len(decode(data)) == 1 for data in written.values())


def test_a_flush_goes_on_where_retention_took_the_snapshot() -> None:
    disk = FaultyDisk(1)
    log = PartitionLog.open(disk, FakeClock(), "/data/events-0", LogConfig())
    for sequence in range(3):
        log.append_bytes(batch(b"v", producer_id=7, epoch=0, sequence=sequence), 0)
        log.roll()
    log.delete_before(3)
    for path in remove_below_start(log):
        disk.unlink(path)
    log.flush()
    assert log.recovery_point == log.log_end_offset
