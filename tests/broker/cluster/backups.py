"""Restores a backup of ZooKeeper, also while brokers of the cluster run."""

from __future__ import annotations

from pathlib import Path

from ottla.replication.metadata import PartitionState
from ottla.tools.command import main
from ottla.wire.messages import InitProducerIdRequest
from tests.broker.cluster.running_cluster import RunningCluster


class Backup:
    """What ZooKeeper held at some time, without the ephemeral nodes."""

    def __init__(self, cluster: RunningCluster) -> None:
        self.nodes, self.zxid = cluster.zookeeper.backup()

    def restore(self, cluster: RunningCluster, nodes: list[int]) -> None:
        """Restart ZooKeeper with this backup. The brokers `nodes` notice only a broken connection.
        """

        async def restored() -> None:
            for node in nodes:
                cluster.sessions[node].cut()
            cluster.zookeeper.restore((self.nodes, self.zxid))

        cluster.run(restored())


def accept_backup(directories: list[Path]) -> None:
    """Run the command that the message of a refused start tells the operator to run."""
    assert main(["cluster", "accept-backup", *map(str, directories), "--yes"]) == 0


def new_producer_id(cluster: RunningCluster) -> int:
    with cluster.client(1) as client:
        answer = client.call(InitProducerIdRequest(transactional_id=None), 4)
    assert answer.error_code == 0
    return int(answer.producer_id)


def states(cluster: RunningCluster) -> tuple[PartitionState, ...]:
    image = next(iter(cluster.servers.values())).metadata_log.image
    return image.topics["t"].partitions


def in_sync(cluster: RunningCluster) -> None:
    for server in cluster.servers.values():
        cluster.until(
            lambda s=server: all(
                len(state.isr) == 3 and state.leader > 0
                for state in s.metadata_log.image.topics["t"].partitions
            ), "all are in sync",
        )
