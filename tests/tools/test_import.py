"""`ottla log import` adopts a Kafka directory whole or not at all; only --move changes it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.log.files.clock import Clock
from ottla.log.files.disk import Disk
from ottla.log.partition.config import LogConfig
from ottla.log.storage.storage import Storage
from ottla.replication.metadata import MetadataImage
from ottla.replication.standalone import StandaloneStore
from ottla.tools import adopted_files
from ottla.wire.legacy import down_convert
from ottla.wire.messages import TopicRecord
from tests.log.batches import values_of
from tests.tools.kafka_directory import (
    CLUSTER,
    NODE,
    TOPICS,
    content,
    partition,
    usual_records,
    write_kafka,
    write_metadata,
)
from tests.tools.logs import run, some

Capture = pytest.CaptureFixture[str]
FIRST, SECOND = f"{0:020d}", f"{2:020d}"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_kafka(tmp_path / "kafka")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "ottla"


class Opened:
    """The target as a broker opens it."""

    def __init__(self, target: Path, node_id: int = NODE) -> None:
        self.storage = Storage.open(Disk(), Clock(), [str(target)], node_id=node_id)
        self.clean = self.storage.directories[0].clean
        self.image: MetadataImage = StandaloneStore.open(self.storage, Clock()).load()

    def values(self, topic: str, index: int) -> list[bytes | None]:
        topic_id = self.image.topics[topic].topic_id
        return values_of(self.storage.get_or_create(topic, index, topic_id, LogConfig()))

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.storage.close()


def imported(source: Path, target: Path, *flags: str) -> int:
    return run("import", source, "--data-dir", target, *flags)


@pytest.mark.parametrize("way", [[], ["--link"]])
def test_everything_that_is_known_is_adopted_and_the_source_stays(
    source: Path, target: Path, capsys: Capture, way: list[str]
) -> None:
    before = content(source)
    assert imported(source, target, *way) == 0
    printed = capsys.readouterr().out
    assert "adopted 2 topics, 3 partitions" in printed and "node.id=3" in printed
    assert "topic t: of.no.use=x is not carried over" in printed
    assert "gone-0 belongs to no existing topic" in printed
    assert content(source) == before
    with Opened(target) as opened:
        assert opened.clean
        image = opened.image
        assert image.cluster_id == CLUSTER
        assert {name: topic.topic_id for name, topic in image.topics.items()} == TOPICS
        epochs = [state.leader_epoch for state in image.topics["t"].partitions]
        assert epochs == [5, 6], "a new epoch each"
        assert image.topics["t"].partitions[0].replicas == (NODE,)
        assert image.config_of("topic", "t") == {"retention.ms": "-1"}
        assert image.config_of("topic", "table") == {
            "cleanup.policy": "compact", "retention.ms": "5",
        }, "the second is from the brokers' dynamic log.retention.ms"
        assert image.next_producer_id == 5000
        assert opened.values("t", 0) == [b"two", b"three"], "the first offset was deleted"
        assert opened.values("t", 1) == [b"one", b"two", b"three"]
        log = opened.storage.get("t", 1)
        assert log is not None and log.epochs.entries == [(3, 0), (4, 1)]
        (state,) = log.active_producers()
        assert (state.producer_id, state.last_sequence) == (7, 2)
        again = some(b"three", producer_id=7, epoch=0, sequence=2)
        assert log.append_bytes(again, 6) == 2 and log.duplicate, "idempotence goes on"
        assert log.append_bytes(some(b"four", producer_id=7, epoch=0, sequence=3), 6) == 3
        table = opened.storage.get_or_create("table", 0, TOPICS["table"], LogConfig())
        assert table.first_dirty_offset == 2
    assert content(source) == before, "writes go to the target alone"


def test_links_are_made_of_sealed_segments_alone(source: Path, target: Path) -> None:
    assert imported(source, target, "--link") == 0

    def same(name: str) -> bool:
        return os.path.samefile(source / "t-1" / name, target / "t-1" / name)

    assert same(f"{FIRST}.log")
    assert not same(f"{SECOND}.log")
    assert not same(f"{FIRST}.timeindex")


def test_a_move_takes_the_partitions_away(source: Path, target: Path) -> None:
    assert imported(source, target, "--move") == 0
    assert not (source / "t-0").exists() and not (source / "table-0").exists()
    assert (source / "gone-0").exists() and (source / "__cluster_metadata-0").exists()
    with Opened(target) as opened:
        assert opened.values("t", 1) == [b"one", b"two", b"three"]


@pytest.mark.parametrize("gone", [
    ["t-0"], ["t-0", "t-1"], ["t-0", "t-1", "table-0"],
    ["t-0", "gone-0", "__cluster_metadata-0"],
])
def test_a_move_that_was_interrupted_or_is_repeated_has_nothing_to_adopt(
    source: Path, target: Path, capsys: Capture, gone: list[str]
) -> None:
    assert imported(source, target, "--link") == 0
    for name in gone:                   # as after a crash while --move removes the partitions
        shutil.rmtree(source / name)
    capsys.readouterr()
    for flags in (["--move"], ["--dry-run"]):
        assert imported(source, target, *flags) == 0
        printed = capsys.readouterr().out
        assert "adopted 0 topics" in printed or "would adopt 0 topics" in printed
        assert "2 of the topics existed already" in printed
    with Opened(target) as opened:
        assert opened.clean
        assert opened.values("t", 1) == [b"one", b"two", b"three"]


def test_a_target_of_a_broker_with_another_id_is_refused_with_the_flag_that_helps(
    source: Path, target: Path, capsys: Capture
) -> None:
    """`make run` makes a directory of node 0; Kafka's nodes usually begin with 1."""
    with Opened(target, node_id=0):
        pass
    for flags in ([], ["--dry-run"]):
        assert imported(source, target, *flags) == 1
        said = capsys.readouterr().err
        assert f"belongs to the broker with node.id=0, but node.id={NODE} is to be" in said
        assert "use --node-id 0" in said
    assert imported(source, target, "--node-id", "0") == 0
    with Opened(target, node_id=0) as opened:
        assert opened.values("t", 1) == [b"one", b"two", b"three"]


def test_the_next_step_says_how_to_keep_the_retention_of_kafkas_file(
    source: Path, tmp_path: Path, capsys: Capture
) -> None:
    target = tmp_path / "new data"
    assert imported(source, target) == 0
    *_, start, hint = capsys.readouterr().out.splitlines()
    where = f"--override node.id={NODE} --override log.dirs='{target}'"
    assert start.startswith(f"start the broker with: ottla server start {where} ")
    assert hint.startswith("if Kafka's server.properties has log.retention.… or log.cleanup.policy")
    assert f": ottla server start server.properties {where}." in hint
    assert imported(source, target) == 0
    assert "server.properties" not in capsys.readouterr().out, "nothing was adopted"
    shutil.rmtree(source / "__cluster_metadata-0")
    assert imported(source, tmp_path / "other") == 0
    assert "server.properties" not in capsys.readouterr().out, "everything is kept"


def test_a_second_run_changes_nothing(source: Path, target: Path, capsys: Capture) -> None:
    assert imported(source, target) == 0
    with Opened(target) as opened:
        opened.values("t", 1)
        log = opened.storage.get("t", 1)
        assert log is not None
        log.append_bytes(some(b"since"), 6)
    assert imported(source, target, "--move") == 0
    printed = capsys.readouterr().out
    assert "adopted 0 topics, 0 partitions, 0 B, of cluster" in printed
    assert "2 of the topics existed already" in printed
    assert (source / "t-1").exists(), "it may have been written to since"
    with Opened(target) as opened:
        assert opened.clean
        assert opened.values("t", 1)[-1] == b"since"


class Stop(Exception):
    """Raised where the process is to end."""


STEPS: dict[str, tuple[object, str, int]] = {
    "before the first copy": (adopted_files, "copy", 0),
    "between copies": (adopted_files, "copy", 5),
    "before the first rename": (adopted_files, "put_in_place", 0),
    "between renames": (adopted_files, "put_in_place", 2),
    "before the metadata": (StandaloneStore, "append", 0),
}


@pytest.mark.parametrize("way", [[], ["--move"]])
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_leaves_nothing_half_visible_and_can_be_repeated(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch, step: str, way: list[str]
) -> None:
    before = content(source)
    owner, name, allowed = STEPS[step]
    real: Callable[..., object] = getattr(owner, name)
    calls = 0

    def stops(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls > allowed:
            raise Stop
        return real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, stops)
        with pytest.raises(Stop):
            imported(source, target, *way)
    assert content(source) == before
    crashed = target.parent / "crashed"
    shutil.copytree(target, crashed)
    with Opened(crashed) as opened:
        assert not opened.image.topics
    assert imported(source, target, *way) == 0
    with Opened(target) as opened:
        assert set(opened.image.topics) == set(TOPICS)
        assert opened.values("t", 0) == [b"two", b"three"]
    assert not (target / ".ottla-import").exists()


def test_after_an_unclean_stop_the_first_start_recovers(tmp_path: Path, capsys: Capture) -> None:
    source, target = write_kafka(tmp_path / "kafka", clean=False), tmp_path / "ottla"
    last = source / "t-1" / f"{SECOND}.log"
    whole = last.stat().st_size
    last.write_bytes(last.read_bytes() + b"torn")
    index = source / "t-1" / f"{SECOND}.index"
    index.write_bytes(bytes(10_485_760))            # room that Kafka preallocates
    assert imported(source, target) == 0
    assert "not stopped cleanly" in capsys.readouterr().out
    assert not (target / "t-1" / index.name).exists()
    with Opened(target) as opened:
        assert not opened.clean
        assert opened.values("t", 1) == [b"one", b"two", b"three"]
    assert (target / "t-1" / last.name).stat().st_size == whole


def test_caches_that_are_wrong_are_left_behind(source: Path, target: Path) -> None:
    (source / "t-1" / f"{FIRST}.index").write_bytes(b"nonsense")
    (source / "t-1" / "leader-epoch-checkpoint").write_text("nonsense")
    assert imported(source, target) == 0
    with Opened(target) as opened:
        assert not opened.clean
        assert opened.values("t", 1) == [b"one", b"two", b"three"]
        log = opened.storage.get("t", 1)
        assert log is not None and log.epochs.entries == [(3, 0), (4, 1)]


@pytest.mark.parametrize("known", [True, False], ids=["checkpointed", "no checkpoint"])
def test_gaps_that_kafkas_compaction_left_between_segments_are_no_loss(
    source: Path, target: Path, known: bool
) -> None:
    """No start takes the gap for damage: neither the first one, nor later ones after a checkpoint
    and a kill, although the log is then opened with cleanup.policy=delete."""
    first = source / "table-0" / f"{FIRST}.log"
    data = first.read_bytes()
    first.write_bytes(data[: 12 + int.from_bytes(data[8:12], "big")])     # "two" was compacted away
    if not known:
        (source / "cleaner-offset-checkpoint").unlink()
    assert imported(source, target) == 0

    def check(path: Path) -> None:
        with Opened(path) as opened:
            assert opened.values("table", 0) == [b"one", b"three"]
            log = opened.storage.get("table", 0)
            assert log is not None and log.damage is None and log.log_end_offset == 3
            assert log.first_dirty_offset == 2
            assert values_of(log, 1) == [b"three"], "a reader in the gap goes on after it"

    killed = target
    for round in range(3):
        path = target.with_name(f"killed{round}")
        with Opened(killed) as opened:
            opened.values("table", 0)
            opened.storage.checkpoint()
            shutil.copytree(killed, path)
        (path / "recovery-point-offset-checkpoint").unlink()
        assert not (path / ".kafka_cleanshutdown").exists()
        killed = path
    check(killed)
    check(killed)
    check(target)


def test_a_gap_in_a_topic_that_is_not_compacted_is_a_loss(
    source: Path, target: Path, capsys: Capture
) -> None:
    first = source / "t-1" / f"{FIRST}.log"
    data = first.read_bytes()
    first.write_bytes(data[: 12 + int.from_bytes(data[8:12], "big")])
    assert imported(source, target) == 1
    assert "the next segment begins at 2" in capsys.readouterr().out


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[65] ^= 1
    path.write_bytes(data)


def old_format(source: Path) -> None:
    path = source / "t-1" / f"{FIRST}.log"
    path.write_bytes(down_convert(path.read_bytes(), 1))


def with_node_id(source: Path, text: str) -> None:
    meta = source / "meta.properties"
    meta.write_text(meta.read_text().replace(f"node.id={NODE}", f"node.id={text}"))


REFUSALS: dict[str, tuple[Callable[[Path], object], str]] = {
    "damage": (lambda source: flip(source / "t-1" / f"{FIRST}.log"), "t-1 is damaged, as the"),
    "an old format": (old_format, "t-1 is damaged, as the lines"),
    "damaged metadata": (
        lambda source: flip(source / "__cluster_metadata-0" / f"{FIRST}.log"),
        "the checksum does not match",
    ),
    "a partition that is missing": (
        lambda source: shutil.rmtree(source / "t-1"), "its replicas are on brokers [3]",
    ),
    "no directory of Kafka's": (
        lambda source: (source / "meta.properties").unlink(), "no cluster.id was found in",
    ),
    "a node id that is no number": (
        lambda source: with_node_id(source, "abc"),
        "/meta.properties is damaged: node.id=abc is not a whole number from 0 to 2147483647. ",
    ),
    "a node id that is too large": (
        lambda source: with_node_id(source, "9" * 5000), "/meta.properties is damaged: node.id=9",
    ),
    "a directory of data directories": (
        lambda source: [shutil.copytree(source, source / "broker-1"),
                        (source / "meta.properties").unlink(),
                        *(shutil.rmtree(path) for path in source.iterdir()
                          if path.is_dir() and path.name != "broker-1")],
        "it holds data directories, so give ",
    ),
    "a directory of data directories and of an empty one": (
        lambda source: [shutil.copytree(source, source / "broker-1"),
                        (source / "meta.properties").unlink(), (source / "orders-0").mkdir()],
        "has no meta.properties; it holds data directories, so give ",
    ),
    "an unfinished list": (
        lambda source: write_metadata(
            source,
            [TopicRecord(name="u", topic_id=b"u" * 16), partition(b"u" * 16, 1)],
        ),
        "the given directories have partitions [1], but lack partitions [0]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_adopted_whole_is_refused(
    source: Path, target: Path, capsys: Capture, name: str
) -> None:
    damage, expected = REFUSALS[name]
    damage(source)
    before = content(source)
    assert imported(source, target) == 1
    seen = capsys.readouterr()
    assert expected in seen.err
    if name == "an old format":
        assert "a message format from before Kafka 0.11" in seen.out
    assert content(source) == before
    assert not target.exists()


def test_a_source_in_use_is_refused(source: Path, target: Path, capsys: Capture) -> None:
    held = Disk().lock(str(source / ".lock"))
    assert imported(source, target) == 1
    assert "in use by a broker (process " in capsys.readouterr().err
    held.close()
    assert imported(source, source) == 1
    assert "is the source itself" in capsys.readouterr().err


def test_a_target_with_topics_of_its_own_keeps_them(
    source: Path, target: Path, tmp_path: Path, capsys: Capture
) -> None:
    other = write_kafka(tmp_path / "other")
    shutil.rmtree(other / "__cluster_metadata-0")
    for name in ("t", "table"):
        for path in other.glob(f"{name}-*"):
            shutil.rmtree(path)
    write_metadata(other, [TopicRecord(name="gone", topic_id=b"g" * 16), partition(b"g" * 16, 0)])
    assert imported(other, target) == 0
    assert imported(source, target) == 0
    with Opened(target) as opened:
        assert set(opened.image.topics) == {"gone", "t", "table"}
        assert opened.values("gone", 0) == [b"one", b"two", b"three"]
    shutil.rmtree(source / "__cluster_metadata-0")
    write_metadata(source, [TopicRecord(name="gone", topic_id=b"h" * 16), partition(b"h" * 16, 0)])
    shutil.rmtree(source / "gone-0")
    (source / "t-0").rename(source / "gone-0")
    (source / "gone-0" / "partition.metadata").unlink()
    capsys.readouterr()
    assert imported(source, target) == 1
    assert "already has a topic gone, with another topic id" in capsys.readouterr().err
    with Opened(target) as opened:
        assert opened.clean, "a refusal costs the next start nothing"


def test_without_a_controllers_log_the_directories_say_what_they_can(
    source: Path, target: Path, capsys: Capture
) -> None:
    shutil.rmtree(source / "__cluster_metadata-0")
    assert imported(source, target, "--node-id", "9") == 0
    assert "topics are known from their directories only" in capsys.readouterr().out
    with Opened(target, node_id=9) as opened:
        assert set(opened.image.topics) == {"t", "table", "gone"}
        assert len(opened.image.topics["t"].partitions) == 2


def test_a_snapshot_of_the_controller_counts_up_to_its_end(source: Path, target: Path) -> None:
    shutil.rmtree(source / "__cluster_metadata-0")
    records = usual_records()
    write_metadata(source, records)
    metadata = source / "__cluster_metadata-0"
    snapshot = metadata / f"{14:020d}-{1:010d}.checkpoint"
    (source / "snapshot").mkdir()
    write_metadata(source / "snapshot", records[:4])
    shutil.copy(source / "snapshot" / "__cluster_metadata-0" / f"{FIRST}.log", snapshot)
    shutil.rmtree(source / "snapshot")
    assert imported(source, target) == 0
    with Opened(target) as opened:
        assert set(opened.image.topics) == {"t", "table"}


def test_a_dry_run_says_what_would_be_done(source: Path, target: Path, capsys: Capture) -> None:
    assert imported(source, target, "--dry-run") == 0
    assert "would adopt 2 topics, 3 partitions" in capsys.readouterr().out
    assert not target.exists()
    assert imported(source, target) == 0
    before = content(target)
    capsys.readouterr()
    assert imported(source, target, "--dry-run") == 0
    assert "would adopt 0 topics, 0 partitions, 0 B" in (said := capsys.readouterr().out)
    assert "2 of the topics existed already (not changed)" in said
    assert content(target) == before
