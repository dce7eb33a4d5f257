"""A cluster of three brokers with one partition, and what happens to them."""

from __future__ import annotations

from ottla.replication.controller.brokers import broker_registered, brokers_gone, distrust
from ottla.replication.controller.elections import LogEnd
from ottla.replication.controller.partitions import elect_longest
from ottla.replication.metadata import (
    BrokerImage,
    BrokerRegistered,
    ConfigSet,
    MetadataImage,
    PartitionExtra,
    PartitionState,
    RecentlyGone,
    TopicCreated,
)

THREE = PartitionState(1, 5, (1, 2, 3), (1, 2, 3), 7)


class World:
    """An image of three brokers and one partition, and what happens to it."""

    def __init__(self, state: PartitionState = THREE, min_isr: int = 2) -> None:
        self.epoch = 1
        self.image = MetadataImage.empty("c").apply([
            *(BrokerRegistered(BrokerImage(n, 1, (), None, f"{n}-1")) for n in (1, 2, 3)),
            ConfigSet("broker", "", "min.insync.replicas", str(min_isr)),
            TopicCreated("t", b"t" * 16, (state,)),
        ])

    @property
    def state(self) -> PartitionState:
        return self.image.topics["t"].partitions[0]

    @property
    def extra(self) -> PartitionExtra:
        return self.state.extra or PartitionExtra()

    def gone(self, *nodes: int, company: tuple[int, ...] = ()) -> None:
        """Let the brokers `nodes` go, one after the other. Each time, the image has exactly the
        brokers `company` as recently gone."""
        for node in nodes:
            epoch = self.image.brokers[node].epoch
            self.image = self.image.apply([RecentlyGone(company)])
            self.image = self.image.apply(brokers_gone(self.image, {node: epoch}).records)

    def back(
        self, node: int, stop: str, lost: tuple[str, ...] = (), adopts: bool = False
    ) -> None:
        if node in self.image.brokers:
            self.gone(node)
        self.epoch += 1
        broker = BrokerImage(node, self.epoch, (), None, f"{node}-{self.epoch}")
        self.image = self.image.apply(distrust(self.image, broker, stop, lost, adopts).records)
        decision = broker_registered(self.image, broker, stop, lost, adopts)
        self.image = self.image.apply(decision.records)

    def elect(self, ends: dict[int, tuple[int, int]], unclean: bool = False) -> int:
        known = {n: LogEnd(self.image.brokers[n].epoch, *end) for n, end in ends.items()}
        decision = elect_longest(self.image, [("t", 0, known, unclean)])
        self.image = self.image.apply(decision.records)
        return decision.result
