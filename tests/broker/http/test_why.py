"""/api/v1/groups/NAME/why and /lag on a running broker."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from ottla.client.cluster import ClusterClient
from ottla.tools.admin import groups, topics
from ottla.tools.stream.batches import SingleSender
from ottla.wire.records import Record
from tests.broker.running import RunningBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path, ottla_http_listener="127.0.0.1:0") as running:
        yield running


def get(broker: RunningBroker, path: str) -> tuple[int, Any]:
    assert broker.server.http is not None
    try:
        with urlopen(f"http://127.0.0.1:{broker.server.http.port}{path}") as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def test_a_group_without_members_says_so_and_how_much_waits(broker: RunningBroker) -> None:
    with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:
        topics.create(cluster, "t", partitions=2)
        now_ms = broker.server.clock.now_ms()
        for _ in range(3):
            SingleSender(cluster).send("t", Record(-1, now_ms - 5000, None, bytes(1000), ()), 0)
        groups.commit(cluster, "a/b c", {("t", 0): 1})
    code, found = get(broker, "/api/v1/groups/a%2Fb%20c/why")
    assert (code, found["group"], found["state"], found["members"]) == (200, "a/b c", "Empty", 0)
    nobody, lag = found["now"]
    assert nobody["kind"] == "no_members" and nobody["text"].endswith(": nobody reads")
    assert lag["text"].startswith("2 records (2.1 KiB) wait in 1 partition, the oldest is")
    assert lag["text"].endswith("old, not counting 1 partition without a committed offset")
    assert (lag["lag"], lag["lag_bytes"], lag["uncommitted"]) == (2, 2140, 1)
    code, [row, never_committed] = get(broker, "/api/v1/groups/a%2Fb%20c/lag")
    assert code == 200
    assert (row["topic"], row["partition"], row["committed"], row["end"]) == ("t", 0, 1, 3)
    assert (row["lag"], row["lag_bytes"], row["member"]) == (2, 2140, None)
    assert (never_committed["partition"], never_committed["lag"], never_committed["end"]) == (
        1, None, 0)
    code, rows = get(broker, "/api/v1/groups")
    assert [(each["group"], each["lag_bytes"]) for each in rows] == [("a/b c", 2140)]


def test_a_group_whose_log_takes_no_writes_says_why_and_where_to_look(
    broker: RunningBroker
) -> None:
    with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:
        topics.create(cluster, "t", partitions=1)
        groups.commit(cluster, "g", {("t", 0): 0})
    _, found = get(broker, "/api/v1/groups/g/why")
    assert "log_takes_no_writes" not in [each["kind"] for each in found["now"]]
    [directory] = broker.server.storage.directories
    directory.space.refused(OSError(errno.ENOSPC, "no space left"))
    _, found = get(broker, "/api/v1/groups/g/why")
    now = found["now"][0]
    assert (now["kind"], now["reason_kind"]) == ("log_takes_no_writes", "directory_full")
    log = f"__consumer_offsets-{now['partition']}"
    assert now["text"].startswith(
        f"the group's log, {log}, takes no writes, so the group can neither rebalance nor commit: "
        f"log directory {directory.path} on broker {broker.server.config.node_id} is full")
    assert now["text"].endswith("; ottla topic why __consumer_offsets shows more")


def test_an_unknown_group_is_refused_with_a_document(broker: RunningBroker) -> None:
    with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:
        topics.create(cluster, "t", partitions=1)
        groups.commit(cluster, "other", {("t", 0): 0})
    for word in ("why", "lag"):
        code, document = get(broker, f"/api/v1/groups/none/{word}")
        assert (code, document["error"]) == (404, "GROUP_ID_NOT_FOUND")
        assert "'none'" in document["message"]
