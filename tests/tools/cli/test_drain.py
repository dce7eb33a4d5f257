"""`ottla cluster drain` and `cordoned.log.dirs` (KIP-1066)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.errors import ClientError
from ottla.tools.admin.evacuation import moved_out
from ottla.tools.cli import drain
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from tests.broker.produce_fetch import batch, fetch, produce, values
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create
from tests.tools.cli.ottla_command import Ottla

PARTITIONS = 6
SETTINGS = {"log_segment_bytes": 1 << 20, "log_retention_ms": -1}


@pytest.fixture
def directories(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in ("first", "old", "new")]


@pytest.fixture
def broker(tmp_path: Path, directories: list[str]) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path / "x", log_dirs=",".join(directories), **SETTINGS) as running:
        yield running


@pytest.fixture
def ottla(broker: RunningBroker) -> Ottla:
    return Ottla("{}:{}".format(*broker.address))


def described(broker: RunningBroker) -> dict[str, tuple[bool, set[tuple[str, int]]]]:
    """Returns, for each log directory, whether it is cordoned, and its partitions."""
    with WireClient(broker.address) as client:
        found = client.call(DescribeLogDirsRequest(topics=None), 5).results
    return {
        each.log_dir: (
            each.is_cordoned,
            {(topic.name, part.partition_index) for topic in each.topics
             for part in topic.partitions},
        )
        for each in found
    }


def cordon(ottla: Ottla, value: str) -> None:
    ottla.ok(["config", "set", "broker/4", f"cordoned.log.dirs={value}"])


def test_a_cordoned_directory_gets_no_new_partition(
    broker: RunningBroker, ottla: Ottla, directories: list[str]
) -> None:
    cordon(ottla, ",".join(directories[:2]))
    with WireClient(broker.address) as client:
        create(client, "t", PARTITIONS)
    found = described(broker)
    assert [found[path][0] for path in directories] == [True, True, False]
    assert not found[directories[0]][1] and not found[directories[1]][1]
    assert len(found[directories[2]][1]) == PARTITIONS
    ottla.ok("config reset broker/4 cordoned.log.dirs")
    assert not any(cordoned for cordoned, _ in described(broker).values())


def test_nothing_is_created_on_a_broker_that_is_cordoned_as_a_whole(
    broker: RunningBroker, ottla: Ottla
) -> None:
    cordon(ottla, "*")
    done = ottla("topic create t")
    assert done.status and "have all their log directories cordoned" in done.err


@pytest.mark.parametrize(("value", "said"), [
    ("/nowhere", "must be present in log.dirs or log.dir; missing: /nowhere"),
    ("*,/nowhere", "must not contain other values"),
])
def test_only_log_directories_can_be_cordoned(ottla: Ottla, value: str, said: str) -> None:
    done = ottla(["config", "set", "broker/4", f"cordoned.log.dirs={value}"])
    assert done.status and said in done.err


def test_nothing_moves_into_a_cordoned_directory(
    broker: RunningBroker, ottla: Ottla, directories: list[str]
) -> None:
    with WireClient(broker.address) as client:
        create(client, "t")
        made = AlterReplicaLogDirsRequest.Dir
        [home] = [path for path, (_, found) in described(broker).items() if found]
        cordon(ottla, "*")
        for path in directories:
            ask = AlterReplicaLogDirsRequest(
                dirs=[made(path=path, topics=[made.Topic(name="t", partitions=[0])])]
            )
            code = client.call(ask, 2).results[0].partitions[0].error_code
            assert code == (0 if path == home else ErrorCode.INVALID_REPLICA_ASSIGNMENT)


def test_a_directory_is_emptied_by_one_command_under_load(
    broker: RunningBroker, ottla: Ottla, directories: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "LOOK_SECONDS", 0.02)
    written = dict.fromkeys(range(PARTITIONS), 0)
    stop = threading.Event()
    with WireClient(broker.address) as client:
        create(client, "t", PARTITIONS)
        for index in written:
            for _ in range(20):
                assert produce(client, "t", batch(b"x" * 50_000), partition=index).error_code == 0
                written[index] += 1
    _, leaving = described(broker)[directories[1]]
    assert leaving

    def load() -> None:
        with WireClient(broker.address) as client:
            while not stop.is_set():
                for index in written:
                    answer = produce(client, "t", batch(b"%d" % written[index]), partition=index)
                    assert (answer.error_code, answer.base_offset) == (0, written[index])
                    written[index] += 1

    thread = threading.Thread(target=load)
    thread.start()
    try:
        done = ottla(["cluster", "drain", directories[1]])
    finally:
        stop.set()
        thread.join()
    assert done.status == 0, done.err
    assert f"moved {len(leaving)} partitions out of {directories[1]} of broker 4" in done.err
    assert described(broker)[directories[1]] == (True, set())
    assert described(broker)[directories[0]][0] is False
    with WireClient(broker.address) as client:
        for index, count in written.items():
            last = fetch(client, "t", count - 1, partition=index)
            assert last.high_watermark == count
            assert values(last)[-1] == b"%d" % (count - 1), "every acknowledged record is there"
    listed = json.loads(ottla.ok("cluster dirs -o json"))
    assert [each["cordoned"] for each in listed] == [False, True, False]
    for typed in (directories[1], f"{directories[1]}/"):       # a shell's completion adds a slash
        assert ottla(["cluster", "drain", typed]).status == 0, "it is done already"


def test_a_rehearsal_changes_nothing(
    broker: RunningBroker, ottla: Ottla, directories: list[str]
) -> None:
    with WireClient(broker.address) as client:
        create(client, "t", PARTITIONS)
    before = described(broker)
    done = ottla(["cluster", "drain", directories[1], "--dry-run", "--broker", "4"])
    assert done.status == 0 and done.err.startswith("would have moved 2 partitions")
    assert described(broker) == before


def test_mistakes_are_told(ottla: Ottla, directories: list[str]) -> None:
    done = ottla("cluster drain /nowhere")
    assert done.status and f"no log directory '/nowhere'; it has {directories[0]}" in done.err
    done = ottla(["cluster", "drain", directories[0], "--broker", "7"])
    assert done.status and "broker 7 is not running; running brokers: 4" in done.err
    cordon(ottla, ",".join(directories[1:]))
    done = ottla(["cluster", "drain", directories[0]])
    assert done.status and "no other log directory that is online" in done.err


def test_the_largest_go_first_to_where_most_is_free() -> None:
    sizes = {("t", 0): 5, ("t", 1): 50, ("t", 2): 30}
    assert moved_out(sizes, {"/a": 60, "/b": 55}) == {
        ("t", 1): "/a", ("t", 2): "/b", ("t", 0): "/b",
    }
    assert set(moved_out(sizes, {"/a": None}).values()) == {"/a"}


def test_what_does_not_fit_does_not_move() -> None:
    with pytest.raises(ClientError, match=r"t:1 \(30 bytes\) .* 80 bytes in total have"):
        moved_out({("t", 0): 50, ("t", 1): 30}, {"/a": 60, "/b": 20})


def test_a_partition_that_is_larger_than_each_free_space_is_named() -> None:
    """Together, the other directories have more free space than all partitions take."""
    with pytest.raises(ClientError, match=r"^no other directory would have room for t:0 \(70 "):
        moved_out({("t", 0): 70, ("t", 1): 5}, {"/a": 60, "/b": 60})
