"""For how long does one large request hold the event loop of a running broker?

A probe in a process of its own asks for the API versions every 2 ms on its own connection.
Meanwhile another client sends one large request after another, for example for all offsets of a
large group, for all groups, or for a timestamp that no index helps to find. The figures are the
times from the probe's requests to their answers. The loop does the work of these requests in
slices of 2 ms (`ottla/broker/threads/slices`). The first row shows the probe's wait while nothing
else runs. If the probe waits for more than this plus 2 ms, some work of the loop was not divided
into slices. Data are on tmpfs, so that the loop is measured and not the disk.
`tests/simulation/test_holds.py` checks the same without a clock: it estimates the time from counted
work.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.fairness import ask_until_told, create_topics, percentile, prefer, probe, produce
from benchmarks.load import MEMORY
from benchmarks.raw_client import RawClient
from compat_tests.brokers import OttlaBroker
from ottla.tools.zookeeper.local import free_port
from ottla.wire import messages as m
from ottla.wire.records import Record, build_batch

SIZE = 20_000
SETTINGS = (
    "offsets.topic.num.partitions=3", "transaction.state.log.num.partitions=3",
    "max.request.partition.size.limit=20000",
)
NOW_MS = int(time.time() * 1000)
Work = Callable[[], Any]


def run_probe(port: int) -> None:
    """The work of the probe's process, until a line arrives on standard input."""
    client = RawClient(port)
    request = m.ApiVersionsRequest(client_software_name="probe", client_software_version="1")
    client.ask(request, 3)
    ask_until_told(lambda: client.ask(request, 3), 0.002)


class Works:
    """Fills a broker, and sends requests that are large because the broker holds so much.

    The docstrings of the methods in WORKS are the titles of the table's rows.
    """

    def __init__(self, client: RawClient) -> None:
        self.client = client
        create_topics(client, ["wide"], 10_000)
        create_topics(client, ["narrow"], 1)
        for kind in (0, 1):
            self.find_coordinator(kind)
        self.commit("large", 10_000)
        self.names = [f"g{number}" for number in range(SIZE // 2)]
        for name in self.names:
            self.commit(name, 1, "narrow")
        self.ids = [f"t{number}" for number in range(SIZE // 4)]
        for each in self.ids:
            self.initialise(each)
        for number in range(SIZE // 4):
            batch = build_batch(
                [Record(timestamp=NOW_MS - number, value=bytes(200))], producer_id=10_000 + number,
                producer_epoch=0, base_sequence=0,
            )
            produce(client, "narrow", batch)
        self.cut()

    def find_coordinator(self, kind: int) -> None:
        """Wait until the internal topic of groups (kind 0) or transactions (1) is loaded."""
        while True:
            request = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=["large"])
            if self.client.ask(request, 4).coordinators[0].error_code == 0:
                time.sleep(1)
                return
            time.sleep(0.1)

    def cut(self) -> None:
        """Delete the first record, which has the highest timestamp, so that a look-up of the
        highest timestamp has to scan the other records."""
        made = m.DeleteRecordsRequest.Topic
        self.client.ask(m.DeleteRecordsRequest(topics=[made(
            name="narrow", partitions=[made.Partition(partition_index=0, offset=1)]
        )], timeout_ms=10_000), 1)

    def commit(self, group: str, count: int, topic: str = "wide") -> None:
        """Commit offset 0 of the first `count` partitions of a topic."""
        made = m.OffsetCommitRequest.Topic
        partitions = [
            made.Partition(partition_index=index, committed_offset=0, committed_metadata="")
            for index in range(count)
        ]
        self.client.ask(m.OffsetCommitRequest(
            group_id=group, topics=[made(name=topic, partitions=partitions)]), 8)

    def initialise(self, transactional_id: str) -> Any:
        """Get a producer id for a transactional id; returns the answer."""
        return self.client.ask(m.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=-1,
            producer_epoch=-1), 4)

    def nothing(self) -> None:
        """No large request, for one second."""
        time.sleep(1)

    def commit_large(self) -> None:
        """An OffsetCommit of 10,000 partitions."""
        self.commit("large", 10_000)

    def fetch_large(self) -> None:
        """OffsetFetch of all 10,000 offsets of a group."""
        group = m.OffsetFetchRequest.Group(group_id="large", topics=None)
        self.client.ask(m.OffsetFetchRequest(groups=[group]), 9)

    def delete_offsets(self) -> None:
        """OffsetDelete of 10,000 offsets."""
        made = m.OffsetDeleteRequest.Topic
        partitions = [made.Partition(partition_index=index) for index in range(10_000)]
        self.client.ask(m.OffsetDeleteRequest(
            group_id="large", topics=[made(name="wide", partitions=partitions)]), 0)
        self.commit("large", 10_000)

    def delete_large(self) -> None:
        """DeleteGroups of a group with 10,000 offsets."""
        self.client.ask(m.DeleteGroupsRequest(groups_names=["large"]), 2)
        self.commit("large", 10_000)

    def list_groups(self) -> None:
        """ListGroups of 10,000 groups."""
        self.client.ask(m.ListGroupsRequest(states_filter=[]), 4)

    def describe_groups(self) -> None:
        """DescribeGroups of 10,000 groups."""
        self.client.ask(m.DescribeGroupsRequest(groups=self.names), 5)

    def fetch_groups(self) -> None:
        """OffsetFetch of 10,000 groups."""
        made = m.OffsetFetchRequest.Group
        self.client.ask(m.OffsetFetchRequest(
            groups=[made(group_id=name, topics=None) for name in self.names]), 9)

    def list_transactions(self) -> None:
        """ListTransactions of 5,000 ids."""
        self.client.ask(m.ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0)

    def describe_producers(self) -> None:
        """DescribeProducers of 5,000 producers of a partition."""
        self.client.ask(m.DescribeProducersRequest(topics=[
            m.DescribeProducersRequest.Topic(name="narrow", partition_indexes=[0])]), 0)

    def end_transaction(self) -> None:
        """A transaction of 10,000 partitions begun and committed."""
        producer = self.initialise("wide")
        made = m.AddPartitionsToTxnRequest
        who = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        self.client.ask(made(
            v3_and_below_transactional_id="wide",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[made.Topic(name="wide", partitions=list(range(10_000)))]), 3)
        self.client.ask(m.EndTxnRequest(transactional_id="wide", committed=True, **who), 3)

    def newest(self) -> None:
        """ListOffsets of the record with the highest timestamp, in a log whose timestamps fall."""
        made = m.ListOffsetsRequest.Topic
        self.client.ask(m.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[made(
            name="narrow", partitions=[made.Partition(
                partition_index=0, current_leader_epoch=-1, timestamp=-3)])]), 7)

    def list_offsets(self) -> None:
        """ListOffsets of 10,000 partitions by time."""
        made = m.ListOffsetsRequest.Topic
        self.client.ask(m.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[made(
            name="wide", partitions=[
                made.Partition(partition_index=index, current_leader_epoch=-1, timestamp=NOW_MS)
                for index in range(10_000)])]), 7)

    def describe_configs(self) -> None:
        """DescribeConfigs of one topic 1,000 times."""
        made = m.DescribeConfigsRequest.Resource
        self.client.ask(m.DescribeConfigsRequest(
            resources=[made(resource_type=2, resource_name="wide", configuration_keys=None)] * 1000,
            include_synonyms=True, include_documentation=True), 4)

    def metadata(self) -> None:
        """Metadata of a topic of 10,000 partitions."""
        self.client.ask(m.MetadataRequest(topics=[m.MetadataRequest.Topic(name="wide")]), 9)

    def log_dirs(self) -> None:
        """DescribeLogDirs of 10,000 partitions."""
        self.client.ask(m.DescribeLogDirsRequest(topics=None), 2)

    def quotas(self) -> None:
        """AlterClientQuotas of 5,000 users."""
        entry = m.AlterClientQuotasRequest.Entry
        limit = entry.Op(key="producer_byte_rate", value=float(time.time_ns() >> 10), remove=False)
        self.client.ask(m.AlterClientQuotasRequest(entries=[
            entry(entity=[entry.Entity(entity_type="user", entity_name=name)], ops=[limit])
            for name in self.names[:5000]], validate_only=False), 1)


WORKS = [
    "nothing", "commit_large", "fetch_large", "delete_offsets", "delete_large", "list_groups",
    "describe_groups", "fetch_groups", "list_transactions", "describe_producers",
    "end_transaction", "newest", "list_offsets", "describe_configs", "metadata", "log_dirs",
    "quotas",
]


def measure(rounds: int, chosen: list[str]) -> dict[str, dict[str, float]]:
    """The milliseconds of the requests and of the probe's waits, by work."""
    found = {}
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        broker = OttlaBroker(Path(directory), SETTINGS, port=free_port())
        broker.start()
        prefer(broker.pid)
        try:
            works = Works(RawClient(broker.port))
            for name in chosen:
                took = []
                with probe(broker.port, "benchmarks.loop_holds") as waits:
                    for _ in range(rounds):
                        began = time.perf_counter()
                        getattr(works, name)()
                        took.append((time.perf_counter() - began) * 1000)
                found[name] = {
                    "took": statistics.median(took), "waits": len(waits),
                    "p50": percentile(waits, 0.5), "p99": percentile(waits, 0.99),
                    "longest": max(waits),
                }
                print(name, found[name], flush=True)
        finally:
            broker.stop()
    return found


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=10)
    arguments.add_argument("--only", nargs="*", default=WORKS)
    arguments.add_argument("--probe", type=int)
    given = arguments.parse_args()
    if given.probe:
        run_probe(given.probe)
        return
    found = measure(given.rounds, given.only)
    rows = [
        [
            (getattr(Works, name).__doc__ or name).rstrip("."),
            *(f"{values[key]:.1f}" for key in ("took", "p50", "p99", "longest")),
        ]
        for name, values in found.items()
    ]
    text = report.table(
        ["request", "the request takes, ms", "another client waits, p50 in ms",
         "p99 in ms", "longest, ms"], rows
    )
    report.write(
        "How long does one large request hold the loop?", "loop-holds", text, found
    )


if __name__ == "__main__":
    main()
