"""`ottla cluster accept-backup` removes the files that keep brokers from starting with a restored
ZooKeeper. It does this only in log directories of stopped brokers of one cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.broker.cluster.metadata_checkpoint import MARK
from ottla.log.files.disk import Disk
from tests.broker.running import RunningBroker
from tests.tools.cli.member_directory import CLUSTER, member_directory
from tests.tools.cli.ottla_command import Done, Ottla
from tests.tools.kafka_names.stage import OVERRIDES


def accept(*words: object) -> Done:
    """Run the command. Nothing listens at the address, because the command asks no broker."""
    return Ottla("127.0.0.1:1")(["cluster", "accept-backup", *map(str, words)])


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    """The settings file of a broker with two log directories."""
    for name, entry in (("a", 12), ("b", 9)):
        member_directory(tmp_path / name, entry)
    file = tmp_path / "server.properties"
    file.write_text(
        f"node.id=1\nzookeeper.connect=localhost:2181/ottla\nlisteners=PLAINTEXT://:9092\n"
        f"log.dirs={tmp_path / 'a'}, {tmp_path / 'b'}\n"
    )
    return file


def marked(folder: Path) -> set[str]:
    return {path.parent.name for path in folder.glob(f"*/{MARK}")}


def test_the_log_directories_of_a_property_file_are_shown_with_what_was_read_and_freed(
    tmp_path: Path, properties: Path
) -> None:
    done = accept(properties, "--yes")
    assert done.status == 0 and not marked(tmp_path)
    assert [line.split() for line in done.out.splitlines()] == [
        ["DIRECTORY", "BROKER", "ENTRY"],
        [str(tmp_path / "a"), "1", "12"], [str(tmp_path / "b"), "1", "9"],
    ]
    assert "removed ottla-metadata-checkpoint from 2 log directories" in done.err


def test_directories_of_several_brokers_can_be_named(tmp_path: Path) -> None:
    one, two = member_directory(tmp_path / "1"), member_directory(tmp_path / "2", node_id="2")
    done = accept(one, f"{two}/", two, "-y", "-o", "json")
    assert done.status == 0 and not marked(tmp_path)
    assert json.loads(done.out) == [
        {"directory": str(path), "broker": node, "entry": 7, "cluster": CLUSTER}
        for node, path in ((1, one), (2, two))
    ]


def test_where_it_is_done_already_it_says_so_and_asks_nothing(
    tmp_path: Path, properties: Path
) -> None:
    assert accept(properties, "--yes").status == 0
    done = accept(properties)
    assert done.status == 0 and "nothing to do" in done.err, done
    member_directory(tmp_path / "b", 9)         # as if the first run had been killed
    assert accept(properties, "--yes").status == 0 and not marked(tmp_path)


def test_a_damaged_file_goes_too(tmp_path: Path) -> None:
    (member_directory(tmp_path / "a") / MARK).write_bytes(b"\0\xff")
    done = accept(tmp_path / "a", "--yes")
    assert done.status == 0 and done.out.splitlines()[1].endswith("-") and not marked(tmp_path)


def test_a_dry_run_and_a_question_without_an_answer_change_nothing(
    tmp_path: Path, properties: Path
) -> None:
    done = accept(properties, "--dry-run")
    assert done.status == 0 and "would have removed" in done.err, done
    done = accept(properties)
    assert done.status == 1 and "cannot be undone: confirm with --yes" in done.err, done
    assert marked(tmp_path) == {"a", "b"}


@pytest.mark.parametrize(("changes", "said"), [
    ({"ottla_metadata": ""}, "belongs to a standalone broker"),
    ({"ottla_metadata": "", "node_id": "", "broker_id": "3"}, "belongs to a standalone broker"),
    ({"cluster_id": ""}, "meta.properties is damaged"),
    ({"node_id": "x"}, "meta.properties is damaged"),
    ({"node_id": "9" * 5000}, "meta.properties is damaged"),
    ({"cluster_id": "another"}, "belong to different clusters, a-cluster-of-one and another"),
])
def test_one_strange_directory_has_all_refused(
    tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    good = member_directory(tmp_path / "good")
    done = accept(good, member_directory(tmp_path / "strange", **changes), "--yes")
    assert done.status == 1 and said in done.err and len(done.err.splitlines()) == 1, done
    assert marked(tmp_path) == {"good", "strange"}


def test_what_is_no_log_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = accept(tmp_path / "empty", "--yes")
    assert done.status == 1 and "empty has no meta.properties" in done.err, done
    member_directory(tmp_path / "empty" / "broker-1")
    done = accept(tmp_path / "empty", "--yes")
    assert done.status == 1 and "it holds data directories, so give " in done.err, done
    done = accept(tmp_path / "none", "--yes")
    assert done.status == 1 and "none: no such file" in done.err, done
    (tmp_path / "server.properties").write_text("node.id=one\n")
    done = accept(tmp_path / "server.properties", "--yes")
    assert done.status == 1 and "node.id" in done.err, done


def test_a_directory_that_a_broker_holds_is_refused(tmp_path: Path) -> None:
    path = member_directory(tmp_path / "a")
    lock = Disk().lock(str(path / ".lock"))
    done = accept(path, "--yes")
    assert done.status == 1 and "is in use by a broker (process " in done.err, done
    assert "Stop that broker first" in done.err and marked(tmp_path) == {"a"}
    lock.close()
    assert accept(path, "--yes").status == 0 and not marked(tmp_path)


def test_a_standalone_brokers_directory_is_refused_as_it_runs_and_stopped(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data", **OVERRIDES):
        assert "belongs to a standalone broker" in accept(tmp_path / "data", "--yes").err
    assert "belongs to a standalone broker" in accept(tmp_path / "data", "--yes").err
