"""A running broker compacts its topics while it serves them."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest

from ottla.broker.threads import flusher
from ottla.broker.upkeep.compactor import SLICE_SECONDS, LogCleaner
from ottla.broker.upkeep.housekeeping import Housekeeping
from ottla.log.compaction.choice import cleanable
from ottla.replication.partition import Partition
from ottla.wire.batch import batches
from ottla.wire.messages import CreateTopicsRequest, DeleteTopicsRequest
from ottla.wire.records import Record, build_batch
from tests.broker.produce_fetch import fetch, produce
from tests.broker.running import RunningBroker, WireClient
from tests.log.faulty_disk import FaultyDisk
from tests.waiting import until

DEADLINE_SECONDS = 20
SETTINGS = {
    "log_cleaner_backoff_ms": 100,
    "log_cleaner_min_cleanable_ratio": 0.01,
    "log_segment_bytes": 1 << 20,
    "log_flush_offset_checkpoint_interval_ms": 100,
}


def create_compacted(client: WireClient, name: str) -> None:
    configs = [
        CreateTopicsRequest.Topic.Config(name=key, value=value)
        for key, value in (("cleanup.policy", "compact"), ("segment.bytes", str(1 << 20)))
    ]
    made = client.call(
        CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.Topic(
                    name=name, num_partitions=1, replication_factor=1, configs=configs
                )
            ],
            timeout_ms=10_000,
        ),
        version=5,
    )
    assert made.topics[0].error_code == 0, made


def commits(round_number: int) -> bytes:
    """A batch like the batches of __consumer_offsets: few keys, again and again."""
    return build_batch([
        Record(timestamp=1, key=b"group-%d" % key, value=b"%05d" % round_number * 40)
        for key in range(50)
    ])


def read_all(client: WireClient, topic: str) -> dict[int, tuple[bytes | None, bytes | None]]:
    found, offset = {}, 0
    while True:
        answer = fetch(client, topic, offset)
        assert answer.error_code == 0
        views = list(batches(answer.records or b""))
        if not views:
            return found
        for view in views:
            for record in view.records():
                found[record.offset] = record.key, record.value
        offset = views[-1].next_offset


def test_a_topic_that_is_written_again_and_again_stays_small(tmp_path: Path) -> None:
    with RunningBroker(tmp_path, **SETTINGS) as broker, WireClient(broker.address) as client:
        create_compacted(client, "table")
        number = 0
        for number in range(250):
            assert produce(client, "table", commits(number)).error_code == 0
        partition = broker.server.replicas.partition("table", 0)
        assert partition is not None
        deadline = time.monotonic() + DEADLINE_SECONDS
        while partition.log.size_bytes > 1_500_000 and time.monotonic() < deadline:
            number += 1
            assert produce(client, "table", commits(number)).error_code == 0
        found = read_all(client, "table")
        end = partition.log.log_end_offset
        assert partition.log.size_bytes <= 1_500_000, partition.log.segments
    newest = {key: value for _, (key, value) in sorted(found.items())}
    assert newest == {b"group-%d" % key: b"%05d" % number * 40 for key in range(50)}
    assert max(found) == end - 1
    checkpoint = (tmp_path / "cleaner-offset-checkpoint").read_text().split("\n")
    assert checkpoint[0] == "0"
    assert any(line.startswith("table 0 ") for line in checkpoint[2:])
    # After the next start, the records are the same, and the broker knows which part is clean.
    with RunningBroker(tmp_path, log_cleaner_enable="false") as broker:
        with WireClient(broker.address) as client:
            again = read_all(client, "table")
            assert {key: value for _, (key, value) in sorted(again.items())} == newest
        partition = broker.server.replicas.partition("table", 0)
        assert partition is not None
        assert partition.log.first_dirty_offset > 0


def test_what_was_sealed_with_acks_1_reaches_the_disk_and_is_compacted(tmp_path: Path) -> None:
    settings = {**SETTINGS, "log_cleaner_enable": "false"}
    with RunningBroker(tmp_path, **settings) as broker, WireClient(broker.address) as client:
        create_compacted(client, "table")
        partition = broker.server.replicas.partition("table", 0)
        assert partition is not None
        while len(partition.log.segments) < 3:
            assert produce(client, "table", commits(0), acks=1).error_code == 0
        assert broker.server.housekeeping is not None
        broker.run(broker.server.housekeeping.work.flushes.flush_sealed())
        sealed_end = partition.log.segments[-2].end_offset
        assert partition.log.recovery_point >= sealed_end
        found = broker.call(cleanable, partition.log, partition.high_watermark, 2**40)
        assert found is not None and found.end_offset == sealed_end


def sealed(broker: RunningBroker, client: WireClient) -> tuple[Partition, Housekeeping]:
    """A partition with a sealed segment, and the broker's housekeeping, whose tasks are cancelled
    so that nothing flushes the segment by itself."""
    create_compacted(client, "table")
    partition = broker.server.replicas.partition("table", 0)
    housekeeping = broker.server.housekeeping
    assert partition is not None and housekeeping is not None
    broker.call(lambda: [task.cancel() for task in housekeeping.tasks])
    while len(partition.log.segments) < 2:
        assert produce(client, "table", commits(0), acks=1).error_code == 0
    return partition, housekeeping


def test_a_sealed_segment_of_a_topic_that_was_deleted_meanwhile_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with RunningBroker(Path("/data"), FaultyDisk(), **SETTINGS) as broker:
        with WireClient(broker.address) as client:
            partition, housekeeping = sealed(broker, client)
            made = DeleteTopicsRequest
            answer = client.call(made(topics=[made.Topic(name="table")], timeout_ms=9000), 6)
            assert answer.responses[0].error_code == 0
        assert partition in broker.server.replicas.with_sealed
        broker.run(housekeeping.work.flushes.flush_sealed())
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_a_sealed_segment_that_finds_no_descriptors_is_flushed_once_there_are_some(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "AGAIN_SECONDS", 0.01)
    disk = FaultyDisk()
    settings = {**SETTINGS, "log_cleaner_enable": "false"}
    with RunningBroker(Path("/data"), disk, **settings) as broker:
        with WireClient(broker.address) as client:
            partition, housekeeping = sealed(broker, client)
        disk.errors["open"] = errno.EMFILE
        broker.run(housekeeping.work.flushes.flush_sealed())
        assert "table-0" in caplog.text and "could not be flushed" in caplog.text
        assert partition.log.recovery_point == 0 and partition.log.offline is None
        disk.errors.clear()
        sealed_end = partition.log.segments[0].end_offset
        until(
            lambda: broker.call(lambda: partition.log.recovery_point) >= sealed_end,
            "the segment is flushed",
        )


@pytest.mark.parametrize(
    ("rates", "pauses"),
    [
        ([10_000], [0.5]),
        ([2000], [1.0, 1.0, 0.5]),
        ([1, 1, 1e9], [1.0, 1.0, SLICE_SECONDS]),
        ([0, 0, 10_000], [1.0, 1.0, 0.5]),
        ([1.7976931348623157e308], [SLICE_SECONDS]),
        ([-1], [SLICE_SECONDS]),
    ],
    ids=["half a second", "seconds", "a new rate", "0", "no limit", "below 0"],
)
def test_a_throttled_cleaner_waits_for_what_it_moved_and_a_new_rate_counts_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rates: list[float], pauses: list[float]
) -> None:
    class Moved:
        def take_moved(self) -> int:
            return 5000

    taken: list[float] = []

    async def pause(seconds: float) -> None:
        taken.append(seconds)
        config.log_cleaner_io_max_bytes_per_second = rates[min(len(taken), len(rates) - 1)]

    monkeypatch.setattr(LogCleaner, "pause", staticmethod(pause))
    with RunningBroker(tmp_path, log_cleaner_enable="false") as broker:
        config = broker.config
        config.log_cleaner_io_max_bytes_per_second = rates[0]
        broker.run(broker.server.housekeeping.work.cleaner.rest(Moved()))
    assert taken == pytest.approx(pauses, rel=0.01)


@pytest.mark.parametrize("fails", ["before the start", "after the start", "whenever it is opened"])
def test_a_log_that_cannot_be_opened_keeps_no_other_log_from_compaction(
    tmp_path: Path, fails: str
) -> None:
    settings = {
        **SETTINGS, "log_cleaner_enable": "false", "log_dirs": f"{tmp_path}/a,{tmp_path}/b"}
    with RunningBroker(tmp_path, **settings) as broker, WireClient(broker.address) as client:
        for topic in ("lost", "table"):
            create_compacted(client, topic)
            assert produce(client, topic, commits(0)).error_code == 0
    [home] = [path.parent for path in tmp_path.glob("?/lost-0")]
    assert not list(home.glob("table-0")) and not list(home.glob("__ottla_metadata-0"))
    if fails == "before the start":
        home.rename(tmp_path / "away")
    with RunningBroker(tmp_path, **settings) as broker, WireClient(broker.address) as client:
        lost, table = (broker.server.replicas.partition(each, 0) for each in ("lost", "table"))
        assert lost is not None and table is not None and broker.server.housekeeping is not None
        if fails == "after the start":
            broker.call(broker.server.storage.fail, broker.server.storage.homes["lost", 0], "dead")
        elif fails == "whenever it is opened":
            (home / "lost-0" / f"{0:020d}.log").unlink()
            (home / "lost-0" / f"{0:020d}.log").mkdir()
        while len(table.log.segments) < 3:
            assert produce(client, "table", commits(0), acks=1).error_code == 0
        work = broker.server.housekeeping.work
        broker.run(work.flushes.flush_sealed())
        broker.run(work.cleaner.clean_due())
        assert table.log.first_dirty_offset == table.log.segments[-1].base_offset
