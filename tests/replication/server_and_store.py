"""The cluster's metadata log over a ZooKeeper in memory."""

from __future__ import annotations

from dataclasses import replace

from ottla.replication.cluster_store import ClusterStore
from ottla.replication.election import Election, Term
from ottla.replication.entries import EntryHeader, encode_entry
from ottla.replication.metadata import ConfigSet, MetadataImage, MetadataRecord
from ottla.replication.records import encode_record
from tests.simulation.zookeeper import MemoryCoordination, ZooKeeperServer


class ServerAndStore:
    """A server, and a store whose session is the controller."""

    def __init__(self) -> None:
        self.server = ZooKeeperServer()
        self.coordination = MemoryCoordination(self.server)
        self.store = ClusterStore(self.coordination)
        self.image = MetadataImage.empty("c")

    async def begin(self) -> None:
        """Elect the controller."""
        await self.coordination.start()
        await self.store.prepare()
        term = await Election(self.coordination, 1, "i").contest()
        assert term is not None
        self.term: Term = term

    async def write(self, *records: MetadataRecord) -> None:
        """Write the next entry."""
        header = EntryHeader(1, 1, self.term.epoch, "b", self.image.offset, len(records))
        number = self.image.entry + 1
        data = encode_entry(header, map(encode_record, records))
        await self.store.append(number, data, self.term.version)
        self.image = replace(self.image.apply(records), entry=number)


def setting(value: str) -> ConfigSet:
    """A record that sets the setting `s` of topic `t`."""
    return ConfigSet("topic", "t", "s", value)
