"""A damaged log is served up to the damage. It takes no more records if the damage is below the
recovery point. Other logs are not affected."""

from __future__ import annotations

from pathlib import Path

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import CreateTopicsRequest, DescribeLogDirsRequest
from tests.broker.produce_fetch import batch, fetch, produce, values
from tests.broker.running import RunningBroker, WireClient


def test_what_lies_before_damage_is_served_and_the_rest_is_put_aside(data: Path) -> None:
    topic = CreateTopicsRequest.Topic(name="t", num_partitions=2, replication_factor=1)
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        for value in (b"first" * 50, b"second" * 50, b"third" * 50):
            assert produce(client, "t", batch(value)).error_code == 0
    segment = data / "t-0" / "00000000000000000000.log"
    damaged = bytearray(segment.read_bytes())
    damaged[len(damaged) // 2] ^= 1         # in the second of three batches
    segment.write_bytes(damaged)
    (data / ".kafka_cleanshutdown").unlink()
    for index in (data / "t-0").glob("*.index"):
        index.unlink()
    (data / "recovery-point-offset-checkpoint").write_bytes(b"0\n0\n")
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        assert values(fetch(client, "t")) == [b"first" * 50]
        for index in (0, 1):
            assert produce(client, "t", batch(b"more"), partition=index).error_code == 0
        # The start has cut off the damage, so the partition is a normal one: it has no offset lag,
        # and goes offline if its directory fails.
        (directory,) = client.call(DescribeLogDirsRequest(topics=None), 4).results
        assert not any(each.offset_lag for of in directory.topics for each in of.partitions)
        storage = broker.server.storage
        broker.call(lambda: storage.fail(storage.directories[0], "the disk has gone"))
        refused = (produce(client, "t", batch(b"x")), fetch(client, "t"))
        assert [each.error_code for each in refused] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert list((data / "t-0").glob("*.quarantine")), "the damaged bytes are kept aside"


def test_damage_below_the_recovery_point_takes_no_more_records(data: Path) -> None:
    topic = CreateTopicsRequest.Topic(name="t", num_partitions=1, replication_factor=1)
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        for value in (b"first" * 50, b"second" * 50, b"third" * 50):
            assert produce(client, "t", batch(value)).error_code == 0
        server = broker.server
        broker.call(server.storage.checkpoint)
    segment = data / "t-0" / "00000000000000000000.log"
    segment.write_bytes(segment.read_bytes()[: segment.stat().st_size // 2])
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        assert values(fetch(client, "t")) == [b"first" * 50]
        refused = produce(client, "t", batch(b"more"))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
