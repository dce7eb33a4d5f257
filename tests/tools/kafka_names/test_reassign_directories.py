"""kafka-reassign-partitions puts a replica into a log directory of its new broker, ends
such moves, and limits the rate of all moves."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client.errors import ClientError
from ottla.tools.admin import configs, partitions
from ottla.tools.admin.partitions import Moving, Replica
from ottla.tools.commands import table
from ottla.tools.kafka_names import reassign_partitions
from ottla.tools.kafka_names.grammar import Options, parse
from ottla.tools.kafka_names.reassignment_plan import Item
from ottla.wire.errors import ErrorCode

PLAN = {("t", 0): Item([1, 2], ["any", "/b"]), ("t", 1): Item([2], ["/a"])}
PENDING = {2: {("t", 0): "/b", ("t", 1): "/a"}}
PLAN_FILE = (
    '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/b"]},'
    ' {"topic": "t", "partition": 1, "replicas": [2], "log_dirs": ["/a"]}]}')


def answering(monkeypatch: pytest.MonkeyPatch, *codes: dict[tuple[str, int], int]) -> list[Any]:
    """Makes broker 2 answer with these codes, one dictionary for each request; the last one is
    repeated. Returns the list of requests."""
    asked: list[Any] = []
    left = list(codes)

    def move(cluster: object, broker: int, wanted: Any) -> dict[tuple[str, int], int]:
        asked.append((broker, dict(wanted)))
        return left.pop(0) if len(left) > 1 else left[0]

    monkeypatch.setattr(partitions, "move_directories", move)
    monkeypatch.setattr(reassign_partitions, "AGAIN_SECONDS", 0)
    return asked


def start(seconds: float = 60) -> None:
    cluster: Any = None
    pending = {broker: dict(wanted) for broker, wanted in PENDING.items()}
    reassign_partitions.move_directories(cluster, pending, seconds)


def test_a_replica_that_is_on_its_way_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    early = ErrorCode.REPLICA_NOT_AVAILABLE
    asked = answering(
        monkeypatch, {("t", 0): early, ("t", 1): early}, {("t", 0): early, ("t", 1): 0},
        {("t", 0): 0},
    )
    start()
    both = {("t", 0): "/b", ("t", 1): "/a"}
    assert asked == [(2, both), (2, both), (2, {("t", 0): "/b"})]
    assert capsys.readouterr().out.splitlines() == [
        "Successfully started moving log directory to /a for replica t-1 with broker 2 ",
        "Successfully started moving log directory to /b for replica t-0 with broker 2 ",
    ]


def test_it_is_not_waited_for_without_end_and_other_errors_end_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    early = ErrorCode.REPLICA_NOT_AVAILABLE
    answering(monkeypatch, {("t", 0): early, ("t", 1): early})
    with pytest.raises(ClientError, match=r"moves could be started for: t-0-2,t-1-2$"):
        start(seconds=0)
    asked = answering(monkeypatch, {("t", 0): ErrorCode.LOG_DIR_NOT_FOUND, ("t", 1): 0})
    with pytest.raises(ClientError, match=r"Failed to move t-0 .* broker 2"):
        start()
    assert len(asked) == 1


LIVE: Any = SimpleNamespace(live=lambda: [1, 2, 3])


def options(words: str = "") -> Options:
    return parse(table.read("kafka")["kafka-reassign-partitions"], words.split())


def stored(monkeypatch: pytest.MonkeyPatch, *places: tuple[int, str, bool]) -> None:
    """Makes broker 2 list the partitions of `t` in these directories: index, path, future."""
    found = [Replica(2, path, "t", index, 0, 0, future) for index, path, future in places]
    monkeypatch.setattr(partitions, "replicas", lambda *_: found)


def test_a_cancelled_plan_moves_no_replica_to_another_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(PLAN_FILE)
    monkeypatch.setattr(partitions, "reassignments", lambda _: {})
    stored(monkeypatch, (0, "/a", False), (0, "/b", True), (1, "/a", False))
    asked = answering(monkeypatch, {("t", 0): 0})
    words = options(f"--cancel --preserve-throttles --reassignment-json-file {plan}")
    reassign_partitions.cancel(words, LIVE)
    assert asked == [(2, {("t", 0): "/a"})], "the copy to /b is given up"
    assert "None of the specified partition moves are active" not in capsys.readouterr().out


@pytest.mark.parametrize(("places", "done", "said"), [
    ([(0, "/b", False), (1, "/a", False)], True, "t-0-2 completed successfully."),
    ([(0, "/c", False), (1, "/a", False)], True,        # it was cancelled, or it failed
     "t-0 on broker 2 is not being moved from log dir /c to /b."),
    ([(0, "/c", False), (0, "/b", True)], False, "t-0-2 is still in progress."),
    ([(0, "/b", False), (0, "/c", True)], False,
     "t-0 on broker 2 is being moved to log dir /c instead of /b."),
    ([(1, "/a", False)], False, "t-0 is not found in any live log dir on broker 2."),
])
def test_throttles_stay_as_long_as_a_directory_move_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    places: list[tuple[int, str, bool]], done: bool, said: str,
) -> None:
    stored(monkeypatch, *places)
    assert reassign_partitions.verify_directories(LIVE, PLAN) is done
    assert said in capsys.readouterr().out


def test_a_throttle_applies_to_the_moves_that_are_already_in_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """--additional --throttle limits a move that was begun without a limit, as its help says, and
    does not end the limit of another plan's moves in the same topic."""
    changed: dict[tuple[int, str], dict[str, str]] = {}

    def alter(_: object, kind: int, name: str, values: dict[str, str]) -> None:
        changed[kind, name] = values

    monkeypatch.setattr(configs, "alter", alter)
    plan = {("t", 0): Item([1, 2])}
    moving = {("t", 0): Moving([1, 2], [2], []), ("t", 1): Moving([1, 3], [3], [1])}
    reassign_partitions.limit(
        options("--execute --additional --throttle 9"), LIVE, plan, {("t", 0): [1, 2]}, moving)
    assert changed.pop((configs.TOPIC, "t")) == {
        "leader.replication.throttled.replicas": "0:1,1:1",
        "follower.replication.throttled.replicas": "0:2,1:3",
    }
    assert sorted(changed) == [(configs.BROKER, str(broker)) for broker in (1, 2, 3)]
