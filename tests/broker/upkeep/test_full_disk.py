"""If the disk is full, reads continue and writes are refused. Once there is room again, writes
succeed."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from pathlib import Path

import pytest

from ottla.broker.upkeep import housekeeping
from ottla.log.storage.reserve import RESERVE, RESERVE_SIZE
from ottla.wire.errors import RETRIABLE, ErrorCode
from ottla.wire.messages import CreateTopicsRequest, DeleteTopicsRequest
from tests.broker.crashes.cycles import BrokerProcess, Cycles
from tests.broker.crashes.load import TOPIC
from tests.broker.crashes.loop_disk import MemoryDisk
from tests.broker.produce_fetch import batch, fetch, produce
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create
from tests.waiting import exhaust, pause, until

DISK_BYTES = 48 << 20
SMALL_DISK_BYTES = 4 << 20
FULL_SECONDS = 0.5
LONG = "t" * 249
LARGE = b"x" * 50_000
HOUR_MS = 3_600_000


def test_retention_runs_early_on_a_full_disk_and_its_files_go_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(housekeeping, "SPACE_SECONDS", 0.05)
    with MemoryDisk(tmp_path / "mounted", 8 << 20) as disk:
        data = disk.mount_point / "data"
        settings = {
            "log_segment_bytes": 1 << 20, "log_retention_check_interval_ms": HOUR_MS,
            "ottla_http_listener": "127.0.0.1:0",
        }
        with RunningBroker(data, **settings) as broker, WireClient(broker.address) as client:
            create(client, "t", retention_bytes=2 << 20, retention_ms=-1)
            assert answer(broker, "/readyz") == (200, "ok\n")
            exhaust(lambda: produce(client, "t", batch(LARGE)).error_code == 0)
            until(lambda: "has space again" in caplog.text, "it takes writes again")
            assert produce(client, "t", batch(LARGE)).error_code == 0
            assert caplog.text.count("is full, writes are refused") == 1
            assert answer(broker, "/readyz") == (200, "ok\n")


def test_a_full_disk_shows_in_readiness_status_and_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "SPACE_SECONDS", 0.05)
    with MemoryDisk(tmp_path / "mounted", SMALL_DISK_BYTES) as disk:
        data = disk.mount_point / "data"
        settings = {"ottla_http_listener": "127.0.0.1:0"}
        with RunningBroker(data, **settings) as broker, WireClient(broker.address) as client:
            create(client, "t", retention_ms=-1)
            fill(disk.mount_point / "ballast")
            exhaust(lambda: produce(client, "t", batch(LARGE)).error_code == 0)
            [directory] = broker.server.storage.directories
            assert answer(broker, "/readyz") == (503, f"full: {directory.path}\n")
            told = json.loads(answer(broker, "/api/v1/status")[1])
            assert told["log_directories"] == {directory.path: "full"}
            free = f'ottla_log_directory_free_bytes{{directory="{directory.path}"}} '
            until(lambda: f"{free}0\n" in answer(broker, "/metrics")[1], "free bytes are measured")
            full = f'ottla_log_directory_full{{directory="{directory.path}"}} '
            assert f"{full}1\n" in answer(broker, "/metrics")[1]
            (disk.mount_point / "ballast").unlink()
            until(lambda: answer(broker, "/readyz") == (200, "ok\n"), "there is space again")
            assert f"{full}0\n" in answer(broker, "/metrics")[1]


def answer(broker: RunningBroker, path: str) -> tuple[int, str]:
    """Status and body of an HTTP answer."""
    assert broker.server.http is not None
    connection = HTTPConnection("127.0.0.1", broker.server.http.port, timeout=20)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def fill(path: Path) -> None:
    """Fill the disk."""
    with path.open("wb", buffering=0) as ballast:
        for size in (1 << 16, 512):
            try:
                exhaust(lambda size=size: ballast.write(bytes(size)) == size)
            except OSError:
                continue


@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
def test_every_service_resumes_by_itself_when_a_full_disk_has_room_again(
    tmp_path: Path, restarts: bool
) -> None:
    with MemoryDisk(tmp_path / "mounted", DISK_BYTES) as disk:
        ballast = disk.mount_point / "ballast"
        # The test's records have timestamps of 1970. Retention runs early on a full disk, and must
        # not delete them.
        settings = {"log_segment_bytes": 1 << 20, "log_retention_ms": -1}
        broker = BrokerProcess(disk.mount_point / "data", **settings)
        with Cycles(broker, seed=1) as cycles:
            cycles.let_them_work()
            fill(ballast)
            assert cycles.target.address is not None
            with WireClient(cycles.target.address) as client:
                exhaust(
                    lambda: produce(client, TOPIC, batch(b"x" * 5000), partition=3).error_code == 0
                )
                refused = produce(client, TOPIC, batch(b"x" * 5000), partition=3, acks=1)
                assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                assert len(fetch(client, TOPIC).records) > 0
                topic = CreateTopicsRequest.Topic(
                    name="full" * 50, num_partitions=50, replication_factor=1
                )
                pause(FULL_SECONDS)
            if restarts:
                # Start on the same port, because a new port would have to be recorded on the full
                # disk.
                broker.overrides["listeners"] = "PLAINTEXT://{}:{}".format(
                    *cycles.target.address
                )
                cycles.target.is_down()
                broker.kill()
                cycles.target.is_up(broker.start())
            ballast.unlink()
            with WireClient(cycles.target.address) as client:
                assert produce(client, TOPIC, batch(b"y"), partition=3).error_code == 0
                made = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
                assert made.topics[0].error_code == 0
            cycles.finish()
        assert not set(cycles.target.errors)
        assert ErrorCode.KAFKA_STORAGE_ERROR in RETRIABLE, "clients try again by themselves"


def test_a_topic_can_be_deleted_with_no_byte_free_and_its_room_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "DELETIONS_SECONDS", 1000.0)     # only when the test calls it
    with MemoryDisk(tmp_path / "mounted", SMALL_DISK_BYTES) as disk:
        data = disk.mount_point / "data"
        settings = {"log_segment_delete_delay_ms": 0}
        with RunningBroker(data, **settings) as broker, WireClient(broker.address) as client:
            made = CreateTopicsRequest.Topic(name=LONG, num_partitions=1, replication_factor=1)
            ask = CreateTopicsRequest(topics=[made], timeout_ms=10_000)
            assert client.call(ask, 5).topics[0].error_code == 0
            exhaust(lambda: produce(client, LONG, batch(LARGE)).error_code == 0)
            fill(disk.mount_point / "ballast")
            assert broker.server.disk.free_bytes(str(data))[0] == 0
            made.name, code = "u", 0
            while code == 0:                        # a file's last page still has some room
                made.name += "u"
                code = client.call(ask, 5).topics[0].error_code
            assert code == ErrorCode.KAFKA_STORAGE_ERROR
            delete = DeleteTopicsRequest(topic_names=[LONG], timeout_ms=10_000)
            assert client.call(delete, 5).responses[0].error_code == 0
            assert (data / RESERVE).stat().st_size < RESERVE_SIZE
            broker.run(broker.server.housekeeping.work.removal.remove_deleted())
            assert (data / RESERVE).stat().st_size >= RESERVE_SIZE, "it is full again"
            made.name = "v"
            assert client.call(ask, 5).topics[0].error_code == 0
            assert produce(client, "v", batch(LARGE)).error_code == 0
        with RunningBroker(data) as broker, WireClient(broker.address) as client:
            topics = broker.server.metadata_log.image.topics
            assert LONG not in topics and "v" in topics
