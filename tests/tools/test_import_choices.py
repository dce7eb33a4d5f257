"""`ottla log import`: which replica's log it adopts, which producer ids and leader epochs follow,
and which settings it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.groups.transactions.records import TransactionRecord, TransactionValue, encode_record
from ottla.log.files.clock import Clock
from ottla.log.files.disk import Disk
from ottla.log.files.names import partition_metadata
from ottla.log.partition.config import LogConfig
from ottla.log.storage.storage import Storage
from ottla.replication.metadata import MetadataImage
from ottla.replication.standalone import StandaloneStore
from ottla.tools.batch_reader import read_batches
from ottla.tools.command import main
from ottla.wire.messages import ConfigRecord, PartitionRecord, TopicRecord
from ottla.wire.records import Record, build_batch
from ottla.wire.structs import Message
from tests.log.batches import values_of
from tests.tools.kafka_directory import CLUSTER, write_metadata
from tests.tools.logs import NOW_MS, open_log, run, some

Capture = pytest.CaptureFixture[str]
TOPIC = b"t" * 16
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "ottla"


def node(path: Path, node_id: int) -> Path:
    """An empty log directory of a Kafka that was stopped cleanly."""
    path.mkdir()
    (path / "meta.properties").write_text(f"version=1\ncluster.id={CLUSTER}\nnode.id={node_id}\n")
    (path / ".kafka_cleanshutdown").touch()
    return path


def add_log(
    path: Path, batches: Sequence[tuple[bytes, int]], name: str = "t-0", topic_id: bytes = TOPIC
) -> None:
    """A partition with these batches, each with its leader epoch."""
    log = open_log(path, name)
    for batch, epoch in batches:
        log.append_bytes(batch, epoch)
    log.close()
    (path / name).mkdir(exist_ok=True)
    (path / name / "partition.metadata").write_bytes(partition_metadata(topic_id))


def replicated(leader: int, leader_epoch: int, isr: list[int]) -> list[Message]:
    """A topic with a partition on nodes 1 and 2."""
    return [
        TopicRecord(name="t", topic_id=TOPIC),
        PartitionRecord(
            partition_id=0, topic_id=TOPIC, replicas=[1, 2], isr=isr, leader=leader,
            leader_epoch=leader_epoch,
        ),
    ]


def with_setting(name: str, value: str, broker: str | None = None) -> list[Message]:
    """The topic and one setting: of the topic, or of a broker ("" stands for all brokers)."""
    kind, resource = (2, "t") if broker is None else (4, broker)
    return [
        *replicated(1, 0, [1]),
        ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value),
    ]


def adopt(target: Path, *sources: Path) -> int:
    return run("import", *sources, "--data-dir", target, "--node-id", "1")


class Opened:
    """The target as a broker opens it."""

    def __init__(self, target: Path) -> None:
        self.storage = Storage.open(Disk(), Clock(), [str(target)], node_id=1)
        self.image: MetadataImage = StandaloneStore.open(self.storage, Clock()).load()

    def values(self) -> list[bytes | None]:
        return values_of(self.storage.get_or_create("t", 0, TOPIC, LogConfig()))

    def leader_epoch(self) -> int:
        topic = self.image.topics["t"]
        return self.image.leader_epoch(topic, topic.partitions[0])

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.storage.close()


def test_new_producer_ids_are_above_all_that_the_logs_have(tmp_path: Path, target: Path) -> None:
    """The sources have no metadata. The first import creates the target; the second adds to it."""
    first = node(tmp_path / "first", 1)
    add_log(first, [(some(b"a", producer_id=0, epoch=0, sequence=0), 0)])
    assert adopt(target, first) == 0
    with Opened(target) as opened:
        assert opened.image.next_producer_id == 1
    second = node(tmp_path / "second", 1)
    add_log(second, [(some(b"a", producer_id=41, epoch=0, sequence=0), 0)], "u-0", b"u" * 16)
    assert adopt(target, second) == 0
    with Opened(target) as opened:
        assert opened.image.next_producer_id == 42


def test_producers_of_logs_that_are_not_adopted_and_of_snapshots_count(
    tmp_path: Path, target: Path
) -> None:
    first, second = node(tmp_path / "first", 1), node(tmp_path / "second", 2)
    add_log(first, [(some(b"a", producer_id=3, epoch=0, sequence=0), 4)])
    log = open_log(second)
    log.append_bytes(some(b"a", producer_id=9, epoch=0, sequence=0), 3)
    log.roll()
    log.append_bytes(some(b"b"), 3)
    log.close()
    for left in (second / "t-0").glob(f"{0:020d}.*"):
        left.unlink()                               # what retention would have removed
    (second / "t-0" / "partition.metadata").write_bytes(partition_metadata(TOPIC))
    assert adopt(target, first, second) == 0
    with Opened(target) as opened:
        assert opened.image.next_producer_id == 10


def test_the_ids_of_transactional_producers_that_have_not_written_count(
    tmp_path: Path, target: Path
) -> None:
    source = node(tmp_path / "source", 1)
    key, value = encode_record(
        TransactionRecord("mover", TransactionValue(77, 0, 60_000, next_producer_id=80))
    )
    batch = build_batch([Record(timestamp=NOW_MS, key=key, value=value)])
    add_log(source, [(batch, 0)], f"{TRANSACTIONS}-0", b"x" * 16)
    assert adopt(target, source) == 0
    with Opened(target) as opened:
        assert opened.image.next_producer_id == 81


def test_the_first_start_serves_logs_of_any_leader_epoch(tmp_path: Path, target: Path) -> None:
    source = node(tmp_path / "source", 1)
    add_log(source, [(some(b"a"), 0), (some(b"b"), 7)])
    assert adopt(target, source) == 0
    with Opened(target) as opened:
        assert opened.values() == [b"a", b"b"]
        log = opened.storage.get("t", 0)
        assert log is not None
        assert opened.leader_epoch() == 8 > log.epochs.latest


def test_metadata_that_are_older_than_the_logs_do_not_lower_epochs(
    tmp_path: Path, target: Path
) -> None:
    source = node(tmp_path / "source", 1)
    write_metadata(source, replicated(1, 3, [1]))
    add_log(source, [(some(b"a"), 9)])
    assert adopt(target, source) == 0
    with Opened(target) as opened:
        assert opened.leader_epoch() == 10


def test_internal_topics_keep_their_settings_without_metadata(
    tmp_path: Path, target: Path, capsys: Capture
) -> None:
    source = node(tmp_path / "source", 1)
    add_log(source, [(some(b"a"), 0)])
    add_log(source, [], f"{OFFSETS}-0", b"o" * 16)
    add_log(source, [], f"{TRANSACTIONS}-0", b"x" * 16)
    assert adopt(target, source) == 0
    assert "all records are kept" in capsys.readouterr().out
    with Opened(target) as opened:
        for name in (OFFSETS, TRANSACTIONS):
            assert opened.image.config_of("topic", name)["cleanup.policy"] == "compact"
        assert opened.image.config_of("topic", "t") == {
            "cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1",
        }


def test_the_leaders_log_is_adopted_and_what_others_have_is_kept_aside(
    tmp_path: Path, target: Path, capsys: Capture
) -> None:
    """A dead former leader has five records that were never acknowledged."""
    former, leader = node(tmp_path / "former", 1), node(tmp_path / "leader", 2)
    common = (some(b"common"), 0)
    add_log(former, [common, *((some(b"dead %d" % n), 0) for n in range(5))])
    add_log(leader, [common, *((some(b"good %d" % n), 1) for n in range(3))])
    write_metadata(former, replicated(1, 0, [1, 2]))
    write_metadata(leader, [*replicated(1, 0, [1, 2]), *replicated(2, 1, [2])])
    assert adopt(target, former, leader) == 0
    assert f"{former}/t-0 of node 1: offsets 1 to 5 are not in the log" in capsys.readouterr().out
    with Opened(target) as opened:
        assert opened.values() == [b"common", b"good 0", b"good 1", b"good 2"]
    kept = target / "ottla-import-left-out" / "t-0.node-1" / f"{1:020d}.log"
    values = [record.value for _, batch in read_batches(str(kept)) for record in batch.records()]
    assert values == [b"dead %d" % n for n in range(5)]
    assert main(["log", "dump", "--files", str(kept)]) == 0
    assert main(["log", "verify", str(target)]) == 0


@pytest.mark.parametrize("metadata", ["none", "outdated"])
def test_without_the_leaders_name_the_newest_epoch_counts(
    tmp_path: Path, target: Path, metadata: str
) -> None:
    former, leader = node(tmp_path / "former", 1), node(tmp_path / "leader", 2)
    add_log(former, [(some(b"a"), 0), (some(b"x"), 0), (some(b"y"), 0)])
    add_log(leader, [(some(b"a"), 0), (some(b"b"), 2)])
    if metadata == "outdated":
        write_metadata(former, replicated(1, 0, [1, 2]))
    assert adopt(target, former, leader) == 0
    with Opened(target) as opened:
        assert opened.values() == [b"a", b"b"]
        assert opened.leader_epoch() == 3


def test_a_replica_in_sync_counts_where_the_leaders_log_is_missing(
    tmp_path: Path, target: Path
) -> None:
    first, second = node(tmp_path / "first", 1), node(tmp_path / "second", 2)
    add_log(first, [(some(b"a"), 0), (some(b"x"), 0)])
    add_log(second, [(some(b"a"), 0)])
    write_metadata(second, replicated(3, 1, [2, 3]))
    assert adopt(target, first, second) == 0
    with Opened(target) as opened:
        assert opened.values() == [b"a"]


def test_a_replica_that_lags_is_no_loss(tmp_path: Path, target: Path, capsys: Capture) -> None:
    first, second = node(tmp_path / "first", 1), node(tmp_path / "second", 2)
    add_log(first, [(some(b"a"), 0)])
    add_log(second, [(some(b"a"), 0), (some(b"b"), 1)])
    write_metadata(second, replicated(2, 1, [2]))
    assert adopt(target, first, second) == 0
    assert "left out" not in capsys.readouterr().out
    assert not (target / "ottla-import-left-out").exists()


def test_a_policy_with_a_repeated_entry_is_carried_over(tmp_path: Path, target: Path) -> None:
    source = node(tmp_path / "source", 1)
    add_log(source, [(some(b"a"), 0)])
    write_metadata(source, with_setting("cleanup.policy", "compact,compact"))
    assert adopt(target, source) == 0
    with Opened(target) as opened:
        assert opened.image.config_of("topic", "t") == {"cleanup.policy": "compact,compact"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("cleanup.policy", "shred"), ("retention.ms", "for ever"), ("remote.storage.enable", "true")],
)
def test_what_decides_how_long_records_are_kept_is_carried_over_or_refused(
    tmp_path: Path, target: Path, capsys: Capture, name: str, value: str
) -> None:
    source = node(tmp_path / "source", 1)
    add_log(source, [(some(b"a"), 0)])
    write_metadata(source, with_setting(name, value))
    assert adopt(target, source) == 1
    assert f"topic t: {name}={value} cannot be carried over" in capsys.readouterr().err
    assert not target.exists()


@pytest.mark.parametrize("broker", ["", "1"])
def test_what_brokers_were_set_to_keep_is_kept(
    tmp_path: Path, target: Path, capsys: Capture, broker: str
) -> None:
    source = node(tmp_path / "source", 1)
    add_log(source, [(some(b"a"), 0)])
    write_metadata(source, with_setting("log.retention.ms", "-1", broker))
    assert adopt(target, source) == 0
    assert "topic t gets retention.ms=-1" in capsys.readouterr().out
    with Opened(target) as opened:
        assert opened.image.config_of("topic", "t") == {"retention.ms": "-1"}
