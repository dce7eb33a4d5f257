"""Retention as the broker runs it, DeleteRecords, and DescribeLogDirs."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from ottla.log.files.disk import Disk
from ottla.log.partition.config import LogConfig
from ottla.log.partition.loading import LogCheckpoint
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.storage.storage import Storage
from ottla.replication.partition import Partition
from ottla.replication.roles.assignment import lead_alone
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    DescribeLogDirsRequest,
    IncrementalAlterConfigsRequest,
)
from tests.broker.produce_fetch import batch, fetch, fetch_request, produce, values
from tests.broker.retention import one_round
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create, delete_below, earliest
from tests.documents import ROOT
from tests.fakes import FakeClock

DAY_MS = 24 * 3_600_000
DEADLINE_SECONDS = 20


class OnePartition:
    """A partition in a storage of its own, with a fake clock."""

    def __init__(self, path: Path, flush_before_ack: bool = False, **config: Any) -> None:
        self.clock = FakeClock()
        self.storage = Storage.open(Disk(), self.clock, [str(path)])
        log = self.storage.get_or_create("t", 0, b"\x01" * 16, LogConfig(**config))
        self.partition = Partition("t", 0, b"\x01" * 16, log, flush_before_ack)
        lead_alone(self.partition, 0, 0, True)
        self.directory = path / "t-0"

    def append(self, count: int) -> None:
        for _ in range(count):
            stamped = batch(b"x" * 100, max_timestamp=self.clock.now_ms())
            self.partition.append_bytes(stamped, False)

    def retain(self) -> int:
        """Run one round; returns the log's start after it."""
        asyncio.run(one_round([self.partition], self.storage))
        return self.partition.log.log_start_offset

    def files(self, suffix: str) -> list[str]:
        return sorted(path.name for path in self.directory.glob("*" + suffix))

    def unlink_what_is_due(self) -> None:
        for path in self.storage.deletions.due_files():
            Disk().unlink(path)


def test_segments_go_by_size_and_their_files_after_the_delay(tmp_path: Path) -> None:
    one = OnePartition(
        tmp_path, segment_bytes=400, retention_bytes=1000, file_delete_delay_ms=60_000
    )
    one.append(20)
    segments = len(one.partition.log.segments)
    start = one.retain()
    assert start > 0 and 1000 <= one.partition.log.size_bytes < 1400
    gone = segments - len(one.partition.log.segments)
    assert len(one.files(".log.deleted")) == gone
    one.clock.advance(59_999)
    one.unlink_what_is_due()
    assert len(one.files(".log.deleted")) == gone
    one.clock.advance(1)
    one.unlink_what_is_due()
    assert one.files(".deleted") == []
    assert len(one.files(".log")) == len(one.partition.log.segments)
    assert one.retain() == start, "nothing more is due"


def test_a_changed_setting_counts_from_the_next_round_on(tmp_path: Path) -> None:
    one = OnePartition(tmp_path, segment_bytes=400, retention_ms=-1)
    one.append(10)
    one.clock.advance(DAY_MS)
    one.append(1)
    assert one.retain() == 0
    one.partition.log.configure(LogConfig(segment_bytes=400, retention_ms=DAY_MS // 2))
    start = one.retain()
    assert 0 < start < 11
    one.clock.advance(DAY_MS)
    assert one.retain() == 11, "the active segment rolls, then goes"
    assert one.partition.log.log_end_offset == 11


def test_a_shorter_time_empties_the_active_segment_and_a_smaller_size_does_not(
    tmp_path: Path,
) -> None:
    """docs/operations.md tells this to operators who need disk space."""
    one = OnePartition(tmp_path, retention_ms=-1)
    one.append(10)
    one.partition.log.configure(LogConfig(retention_ms=-1, retention_bytes=1))
    assert one.retain() == 0
    one.clock.advance(DAY_MS)
    one.partition.log.configure(LogConfig(retention_ms=DAY_MS // 2))
    assert one.retain() == 10
    one.append(10)
    one.partition.log.configure(LogConfig(retention_ms=-1, retention_bytes=0))
    assert one.retain() == 20, "a size of 0 leaves nothing"


def test_the_log_says_what_retention_removed_where_the_page_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = OnePartition(tmp_path, segment_bytes=400, retention_bytes=1000)
    one.append(20)
    with caplog.at_level(logging.INFO):
        start = one.retain()
    [said] = [line for line in caplog.records if f"begins at offset {start}" in line.getMessage()]
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    lines = f"the log lines of `{said.name}`"
    assert f"{lines} say up to which offset retention removed records" in page


def test_after_a_crash_the_log_begins_where_its_first_segment_does(tmp_path: Path) -> None:
    one = OnePartition(tmp_path, segment_bytes=400, retention_bytes=1000)
    one.append(20)
    start = one.retain()
    again = PartitionLog.open(
        Disk(), one.clock, str(one.directory),
        checkpoint=LogCheckpoint(log_start_offset=0),
    )
    assert (again.log_start_offset, again.log_end_offset) == (start, 20)
    assert one.files(".deleted") == []


def test_nothing_goes_that_is_not_acknowledged_yet(tmp_path: Path) -> None:
    one = OnePartition(tmp_path, True, segment_bytes=400, retention_bytes=0)
    one.append(4)
    one.partition.append_bytes(batch(b"y" * 300), True)
    one.partition.append_bytes(batch(b"y" * 300), True)
    assert one.retain() <= one.partition.high_watermark == 4


def test_a_log_that_fails_does_not_keep_the_next_from_its_turn(tmp_path: Path) -> None:
    bad, good = (
        OnePartition(tmp_path / name, segment_bytes=400, retention_bytes=0) for name in "ab"
    )
    for one in (bad, good):
        one.append(10)
    (bad.directory / "00000000000000000000.log").unlink()
    (bad.directory / "00000000000000000000.log").mkdir()
    (bad.directory / "00000000000000000000.log.deleted").write_bytes(b"in the way")
    asyncio.run(one_round([bad.partition, good.partition], good.storage))
    assert good.partition.log.log_start_offset == 10


# --- over the wire ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_deleted_records_are_out_of_range_for_everybody(
    client: WireClient, topic: str, version: int
) -> None:
    for value in (b"a", b"b", b"c", b"d"):
        produce(client, topic, batch(value))
    answer = delete_below(client, topic, 2, version)
    assert (answer.error_code, answer.low_watermark) == (0, 2)
    assert fetch(client, topic, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    found = fetch(client, topic, 2)
    assert (found.log_start_offset, values(found)) == (2, [b"c", b"d"])
    assert earliest(client, topic) == 2
    answer = delete_below(client, topic, 1, version)
    assert (answer.error_code, answer.low_watermark) == (0, 2), "it is so already"
    answer = delete_below(client, topic, -1, version)
    assert (answer.error_code, answer.low_watermark) == (0, 4)
    assert values(fetch(client, topic, 4)) == []
    assert produce(client, topic, batch(b"e")).base_offset == 4


@pytest.mark.parametrize("offset", [2, 99, -2, 2**63 - 1, -(2**63)])
def test_an_offset_that_cannot_be_the_start_changes_nothing(
    client: WireClient, topic: str, offset: int
) -> None:
    produce(client, topic, batch(b"a"))
    answer = delete_below(client, topic, offset)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert values(fetch(client, topic)) == [b"a"]


def test_a_fetch_that_waits_below_a_new_log_start_is_told_so(
    client: WireClient, topic: str, broker: RunningBroker
) -> None:
    produce(client, topic, batch(b"a"))
    sent = client.send(fetch_request(topic, max_wait_ms=20_000, min_bytes=10_000), 11)
    with WireClient(broker.address) as admin:
        assert delete_below(admin, topic, 1).error_code == 0
    answer = client.answer(sent).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_what_may_not_be_deleted(client: WireClient) -> None:
    create(client, "compacted", cleanup_policy="compact")
    assert delete_below(client, "compacted", 0).error_code == ErrorCode.POLICY_VIOLATION
    assert delete_below(client, "nowhere", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    internal = delete_below(client, "__consumer_offsets", 0)
    assert internal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_log_start_is_kept_over_a_restart(data: Path) -> None:
    with RunningBroker(data) as first, WireClient(first.address) as client:
        create(client, "kept")
        for value in (b"a", b"b", b"c"):
            produce(client, "kept", batch(value))
        delete_below(client, "kept", 2)
    with RunningBroker(data) as second, WireClient(second.address) as client:
        assert earliest(client, "kept") == 2
        assert values(fetch(client, "kept", 2)) == [b"c"]


def test_a_topic_whose_retention_is_shortened_empties_itself(data: Path) -> None:
    with (
        RunningBroker(data, log_retention_check_interval_ms=20) as broker,
        WireClient(broker.address) as client,
    ):
        shorten_retention(client)


def shorten_retention(client: WireClient) -> None:
    create(client, "short", retention_ms="-1")
    produce(client, "short", batch(b"old"))
    config = IncrementalAlterConfigsRequest.Resource.Config(
        name="retention.ms", config_operation=0, value="1000"
    )
    resource = IncrementalAlterConfigsRequest.Resource(
        resource_type=2, resource_name="short", configs=[config]
    )
    changed = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert changed.responses[0].error_code == 0
    deadline = time.monotonic() + DEADLINE_SECONDS
    while earliest(client, "short") != 1:
        assert time.monotonic() < deadline
    answer = fetch(client, "short", 1)
    assert (answer.error_code, answer.log_start_offset, answer.high_watermark) == (0, 1, 1)


@pytest.mark.parametrize("version", range(6))
def test_log_directories_tell_their_partitions_and_their_room(
    client: WireClient, topic: str, broker: RunningBroker, version: int
) -> None:
    produce(client, topic, batch(b"x" * 1000))
    everything = client.call(DescribeLogDirsRequest(topics=None), version)
    found = everything.results[0]
    assert (everything.error_code, found.error_code) == (0, 0)
    assert found.log_dir == str(broker.config.log_directories()[0])
    named = {each.name: each.partitions for each in found.topics}
    assert [(p.partition_index, p.partition_size > 1000) for p in named[topic]] == [
        (0, True),
        (1, False),
    ]
    assert (found.total_bytes >= found.usable_bytes > 0) == (version >= 4)
    wanted = DescribeLogDirsRequest.Topic(topic=topic, partitions=[1, 7])
    some = client.call(DescribeLogDirsRequest(topics=[wanted]), version).results[0]
    assert [(each.name, len(each.partitions)) for each in some.topics] == [(topic, 1)]
    assert client.call(DescribeLogDirsRequest(topics=[]), version).results[0].topics == []
