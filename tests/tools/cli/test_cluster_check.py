"""`ottla cluster check`: every reason not to stop a broker is named, and no other."""

from __future__ import annotations

import errno
import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.client.cluster import ClusterClient
from ottla.client.errors import NotConnected, NotSupported
from ottla.testing import Broker
from ottla.tools.admin.topics import Partition
from ottla.tools.cli.cluster_check import (
    Departure,
    directory_faults,
    gathered,
    moment,
    problems,
    summary,
)
from ottla.tools.zookeeper.local import free_port
from tests.broker.running import RunningBroker
from tests.tools.cli.ottla_command import Ottla

ALIVE = {1, 2, 3}


def partition(leader: int, replicas: list[int], isr: list[int]) -> Partition:
    return Partition(0, leader, 0, replicas, isr)


@pytest.mark.parametrize(("part", "leaving", "minimum", "said"), [
    (partition(1, [1, 2, 3], [3, 2, 1]), None, 2, []),
    (partition(1, [1, 2, 3], [3, 2, 1]), 1, 2, []),
    (partition(1, [1, 2, 3], [3, 2, 1]), 1, 3, ["would refuse acks=all: min.insync.replicas=3"]),
    (partition(1, [1, 2], [1, 2]), 3, 2, []),
    (partition(1, [1, 2, 4], [1, 2]), None, 2, ["not in sync: 4"]),
    (partition(1, [1, 2, 4], [1, 2]), 4, 2, ["not in sync: 4"]),
    (partition(-1, [4], [4]), None, 1, ["no leader"]),
    (partition(4, [4], [4]), None, 1, ["no leader"]),
    (partition(2, [2], [2]), 2, 1, ["only broker 2 is in sync"]),
    (partition(2, [2, 4], [2]), 2, 1, ["not in sync: 4", "only broker 2 is in sync"]),
    (partition(2, [2, 4], [2]), None, 2, ["not in sync: 4",
                                          "refuses acks=all: min.insync.replicas=2"]),
    (partition(2, [2], [2]), None, 2, []),      # brokers require at most all replicas: 1
    (partition(2, [2], [2]), 2, 2, ["only broker 2 is in sync"]),
    (partition(2, [2, 3], [2, 3]), None, 3, []),
    (partition(2, [2, 3], [2, 3]), 3, 2, ["would refuse acks=all: min.insync.replicas=2"]),
])
def test_what_is_not_in_order_is_named(
    part: Partition, leaving: int | None, minimum: int, said: list[str]
) -> None:
    assert problems(part, ALIVE, leaving, minimum) == said


def described(log_dir: str, error_code: int = 0, usable: int = 1) -> SimpleNamespace:
    return SimpleNamespace(log_dir=log_dir, error_code=error_code, usable_bytes=usable)


def test_directories_without_space_and_brokers_without_an_answer_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def log_dirs(cluster: object, node: int, places: object) -> list[SimpleNamespace]:
        if node == 3:
            raise NotConnected("broker 3 is not reachable at x:1")
        if node == 4:
            raise NotSupported("no DescribeLogDirs")
        return {
            1: [described("/a"), described("/b", usable=0), described("/c", usable=-1)],
            2: [described("/a", error_code=56)],
        }[node]

    monkeypatch.setattr("ottla.tools.admin.partitions.log_dirs", log_dirs)
    faults = directory_faults(cast("ClusterClient", None), {1, 2, 3, 4})
    assert [(each.broker, each.directory) for each in faults] == [(1, "/b"), (2, "/a"), (3, None)]
    assert [each.text for each in faults] == [
        "broker 1: log directory /b is full: writes to it are refused until it has space",
        "broker 2: log directory /a is offline: partitions are not served from it, and the broker's"
        " log says why",
        "broker 3 is not reachable at x:1",
    ]


def test_a_full_directory_is_a_finding_and_has_no_usable_bytes(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data") as running:
        ottla = Ottla(f"127.0.0.1:{running.port}")
        ottla.ok("topic create orders")
        assert json.loads(ottla.ok("cluster dirs -o json"))[0]["status"] == "online"
        assert ottla("cluster check").status == 0
        [directory] = running.server.storage.directories
        running.server.storage.refuse(directory, OSError(errno.ENOSPC, "no space left on device"))
        [row] = json.loads(ottla.ok("cluster dirs -o json"))
        assert (row["status"], row["usable"]) == ("full", 0)
        assert " full " in ottla.ok("cluster dirs")
        done = ottla("cluster check")
        assert done.status == 1 and not done.out, done
        assert f": log directory {row['directory']} is full: writes to it" in done.err
        [found] = json.loads(ottla("cluster check -o json").out)
        assert found["directory"] == row["directory"] and found["topic"] is None
        assert ottla("cluster check -o name") == (1, "", done.err)


def test_a_topic_with_fewer_replicas_than_min_insync_replicas_takes_acks_all(ottla: Ottla) -> None:
    ottla.ok("topic create strict -c min.insync.replicas=2")
    ottla.ok("produce strict", b"a record with acks=all\n")
    assert ottla("cluster check").status == 0
    ottla.ok("topic delete strict --yes")


def test_a_broker_that_is_down_is_said_to_be_not_reachable() -> None:
    with Broker() as broker, ClusterClient(broker.bootstrap_servers) as cluster:
        cluster.metadata()
        cluster.brokers[9] = "127.0.0.1", free_port()
        port = cluster.brokers[9][1]
        with pytest.raises(NotConnected) as failed:
            cluster.node(9)
    assert str(failed.value) == (
        f"broker 9 is not reachable at 127.0.0.1:{port}: connection refused; the broker may be"
        " down, or advertise a wrong address")


def test_a_summary_says_who_is_away_and_how_many_partitions_lack_replicas() -> None:
    parts = [partition(1, [1, 2, 4], [1, 2])] * 56 + [partition(1, [1, 2, 3], [1, 2, 3])] * 5
    parts.append(partition(-1, [4], [4]))
    now = datetime.now().astimezone()
    lacking = [
        "56 of 62 partitions lack 1 replica in sync", "1 of 62 partitions has no leader"]
    at_ms = int(now.timestamp() * 1000)
    assert summary(parts, ALIVE, {4: Departure(at_ms)}) == [
        f"broker 4 has been away since {now:%H:%M %Z}", *lacking]
    assert summary(parts, ALIVE, {4: Departure(at_ms, at_the_latest=True)}) == [
        f"broker 4 has been away since before {now:%H:%M %Z}", *lacking]
    assert summary(parts, ALIVE, {}) == [
        "broker 4 is away; it is not known when it left", *lacking]


def test_a_departure_on_another_day_has_a_date() -> None:
    now = datetime(2026, 3, 1, 8, tzinfo=timezone(timedelta(hours=1), "CET"))
    at_ms = int(datetime(2026, 2, 28, 23, 30, tzinfo=UTC).timestamp() * 1000)
    assert moment(at_ms, now) == "00:30 CET"
    assert moment(at_ms - 3_600_000, now) == "2026-02-28 23:30 CET"


def test_the_only_broker_can_never_be_spared(ottla: Ottla) -> None:
    done = ottla("cluster check")
    assert (done.status, done.err) == (0, "there are no partitions yet\n")
    ottla.ok("topic create orders --partitions 2")
    done = ottla("cluster check")
    assert done.status == 0 and not done.out, done
    assert done.err == "2 partitions have a leader and all replicas in sync\n"
    assert ottla.ok("cluster check -o json") == "[]\n"
    [broker] = json.loads(ottla.ok("cluster info -o json"))
    node = broker["broker"]
    done = ottla(f"cluster check --without {node}")
    [row] = done.out.splitlines()[1:]
    assert done.status == 1 and row.startswith("orders  0-1 "), done
    assert f"only broker {node} is in sync" in row
    assert len(json.loads(ottla(f"cluster check --without {node} -o json").out)) == 2


def test_partitions_that_differ_in_their_number_alone_are_one_row() -> None:
    same = {"topic": "t", "problem": "no leader", "leader": -1, "replicas": [4], "isr": [4]}
    other = same | {"replicas": [5], "isr": [5]}
    rows = [{**(other if index == 3 else same), "partition": index} for index in (0, 1, 2, 3, 5)]
    assert gathered(rows) == [{**same, "partition": "0-2,5"}, {**other, "partition": 3}]


def test_a_broker_that_does_not_run_is_named(ottla: Ottla) -> None:
    done = ottla("cluster check --without 99")
    assert done.status == 1 and "broker 99 is not running" in done.err, done
