"""A partition's directory or some of its files vanish: by a repair of the file system, or by hand.
The checkpoints show what was there, so no offset is given to another record."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.log.storage.log_directory import CLEAN_MARKER
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import DeleteTopicsRequest
from tests.broker.produce_fetch import batch, fetch, produce, values
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create, metadata

BATCHES = 30
SETTINGS = {"log_segment_bytes": 1 << 20, "log_retention_ms": -1}
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


def running(data: Path) -> RunningBroker:
    return RunningBroker(data, **SETTINGS)


def filled(data: Path, meanwhile: Callable[[Path], None] = lambda path: None) -> Path:
    """Write three segments of topic t and one record of topic u, and stop cleanly; returns the
    directory of t. While the broker runs, `meanwhile` is called with that directory."""
    with running(data) as broker, WireClient(broker.address) as client:
        create(client, "t")
        create(client, "u")
        for number in range(BATCHES):
            assert produce(client, "t", batch(b"%d" % number * 50_000)).error_code == 0
        assert produce(client, "u", batch(b"kept")).error_code == 0
        meanwhile(data / "t-0")
    return data / "t-0"


def segments(at: Path) -> list[Path]:
    return sorted(at.glob("*.log"))


def remove(*paths: Path) -> None:
    for path in paths:
        for each in path.parent.glob(f"{path.stem}.*"):
            each.unlink()


def unclean(data: Path) -> None:
    (data / CLEAN_MARKER).unlink()


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_partition_whose_directory_is_gone_is_offline_until_it_is_back(
    tmp_path: Path, cleanly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    at = filled(tmp_path)
    aside = tmp_path.parent / f"{tmp_path.name}-aside"
    at.rename(aside)
    if not cleanly:
        unclean(tmp_path)
    for _ in range(2):                      # the second start, too, knows that t-0 is missing
        caplog.clear()
        with running(tmp_path) as broker, WireClient(broker.address) as client:
            assert "t-0 is missing; it had the offsets 0 to 29" in caplog.text
            assert metadata(client, "t")[0].leader_id == -1
            assert produce(client, "t", batch(b"x")).error_code != 0
            assert fetch(client, "t").error_code == STORAGE
            assert values(fetch(client, "u")) == [b"kept"]
    aside.rename(at)
    with running(tmp_path) as broker, WireClient(broker.address) as client:
        assert fetch(client, "t", BATCHES - 1).high_watermark == BATCHES
        assert produce(client, "t", batch(b"x")).base_offset == BATCHES


def test_a_topic_whose_directory_is_gone_can_be_deleted_and_created_again(tmp_path: Path) -> None:
    shutil.rmtree(filled(tmp_path))
    with running(tmp_path) as broker, WireClient(broker.address) as client:
        delete(client, "t")
        create(client, "t")
    with running(tmp_path) as broker, WireClient(broker.address) as client:
        assert produce(client, "t", batch(b"new")).base_offset == 0


def delete(client: WireClient, topic: str) -> None:
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000)
    assert client.call(request, 5).responses[0].error_code == 0


def test_what_a_crash_kept_of_a_deleted_topic_is_not_missed_in_the_next_of_that_name(
    tmp_path: Path,
) -> None:
    """Found by the simulation's seed 886: after a crash, the checkpoint of a directory was older
    than the topic's deletion. The next topic of that name had no partition in this directory, so
    nothing replaced the old entries."""
    first, second = tmp_path / "first", tmp_path / "second"
    both = {"log_dirs": f"{first},{second}"}
    with RunningBroker(first, **both) as broker, WireClient(broker.address) as client:
        create(client, "t", 4)
        for partition in range(4):
            assert produce(client, "t", batch(b"old"), partition=partition).error_code == 0
    assert (second / "t-2").is_dir()
    kept = {path: path.read_bytes() for path in second.iterdir() if path.is_file()}
    with RunningBroker(first, **both) as broker, WireClient(broker.address) as client:
        delete(client, "t")
        create(client, "filler")
        create(client, "t")
        assert broker.server.storage.homes["t", 0].path == str(first)
    for path, content in kept.items():
        path.write_bytes(content)
    with RunningBroker(first, **both) as broker, WireClient(broker.address) as client:
        delete(client, "t")
        create(client, "t", 4)
        for partition in range(4):
            assert produce(client, "t", batch(b"new"), partition=partition).base_offset == 0


@pytest.mark.parametrize("cleanly", [True, False])
@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_log_without_its_last_segments_is_read_up_to_them_and_takes_no_writes(
    tmp_path: Path, cleanly: bool, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    at = filled(tmp_path)
    gone = segments(at)[left:]
    end = int(gone[0].stem)
    remove(*gone)
    if not cleanly:
        unclean(tmp_path)
    for _ in range(2):
        with running(tmp_path) as broker, WireClient(broker.address) as client:
            assert produce(client, "t", batch(b"x")).error_code == STORAGE
            assert fetch(client, "t", BATCHES - 1).error_code == STORAGE, "it was there"
            assert f"the records from offset {end} to 29 are gone ({BATCHES - end}" in caplog.text
            if left:
                assert values(fetch(client, "t")) and not fetch(client, "t", end - 1).error_code
            assert values(fetch(client, "u"))[0] == b"kept"
            assert produce(client, "u", batch(b"more")).error_code == 0


def test_a_log_without_its_first_segment_is_not_taken_for_one_that_was_shortened(
    tmp_path: Path,
) -> None:
    at = filled(tmp_path)
    remove(segments(at)[0])
    with running(tmp_path) as broker, WireClient(broker.address) as client:
        assert fetch(client, "t").error_code == STORAGE
        assert produce(client, "t", batch(b"x")).error_code == STORAGE


def test_a_directory_that_vanishes_while_the_broker_runs_costs_the_others_no_clean_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path, shutil.rmtree)
    assert "t-0 disappeared while the broker ran; it had offsets 0 to 29" in caplog.text
    assert (tmp_path / CLEAN_MARKER).exists()
    caplog.clear()
    with running(tmp_path) as broker, WireClient(broker.address) as client:
        assert "t-0 is missing; it had the offsets 0 to 29" in caplog.text
        assert values(fetch(client, "u")) == [b"kept"]


@pytest.mark.parametrize("left", [0, 1])
def test_a_log_that_lacks_segments_costs_the_others_no_clean_stop(
    tmp_path: Path, left: int
) -> None:
    remove(*segments(filled(tmp_path))[left:])
    with running(tmp_path) as broker, WireClient(broker.address) as client:
        assert produce(client, "t", batch(b"x")).error_code == STORAGE
    assert (tmp_path / CLEAN_MARKER).exists()
