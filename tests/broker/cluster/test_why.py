"""Why a topic's replicas are out of sync, told by running brokers and by `ottla topic why`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.tools.command import main
from tests.broker.cluster.running_cluster import RunningCluster, create, leaders


def test_a_stopped_broker_is_why_replicas_are_out_of_sync(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunningCluster(
        tmp_path, 3, ottla_http_listener="127.0.0.1:0", auto_leader_rebalance_enable="false",
    ) as cluster:
        assert create(cluster, 1, "t", 1, 3) == 0
        image = cluster.servers[1].metadata_log.image
        cluster.until(
            lambda: len(image.topics["t"].partitions[0].isr) == 3, "all are in sync")
        (leader,) = leaders(cluster.servers[1], "t")
        cluster.stop(leader)
        one, other = cluster.servers
        cluster.until(lambda: all(
            server.metadata_log.image.topics["t"].partitions[0].leader in (one, other)
            and leader not in server.metadata_log.image.topics["t"].partitions[0].isr
            and leader not in server.metadata_log.image.brokers
            for server in cluster.servers.values()
        ), "another one leads")
        (now,) = leaders(cluster.servers[one], "t")
        http = cluster.servers[now].http
        assert http is not None
        told = ["topic", "why", "t", "--bootstrap-server", f"127.0.0.1:{cluster.ports[now]}",
                "--url", f"http://127.0.0.1:{http.port}"]
        assert main(told) == 0
        printed = capsys.readouterr().out
        assert f"partition 0: broker {leader} has been out of sync for " in printed
        again = f"; the replica is in sync again once broker {leader} is back and has caught up"
        assert again in printed
        assert f"broker {now} leads instead of broker {leader}" in printed
        moves = f"an election of preferred leaders makes broker {leader} the leader"
        assert f"{moves} once it is in sync" in printed
        assert main([*told, "--output", "json"]) == 0
        (document,) = json.loads(capsys.readouterr().out)
        (partition,) = document["partitions"]
        assert partition["led_here"] and partition["now"][0]["broker"] == leader
        kinds = [each["kind"] for each in document["events"]]
        assert "left_isr" in kinds and "leader_changed" in kinds
        assert main(["topic", "why", "t", "--bootstrap-server",
                     f"127.0.0.1:{cluster.ports[now]}"]) == 1
        assert "127.0.0.1:0" in capsys.readouterr().err
        cluster.start(leader)
        cluster.until(lambda: all(
            leader in server.metadata_log.image.topics["t"].partitions[0].isr
            for server in cluster.servers.values()
        ), "the former leader is in sync again")
        assert main(told) == 0
        assert f"{moves}\n" in capsys.readouterr().out
