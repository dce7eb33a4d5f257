"""Tests when a reader ends, which offsets it commits, and how it acts if its partitions change."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from ottla.client.errors import ClientError
from ottla.client.interrupts import Interrupts
from ottla.tools.admin.offsets import ListedOffset
from ottla.tools.commands import table
from ottla.tools.kafka_names import verifiable_consumer
from ottla.tools.kafka_names.grammar import parse
from ottla.tools.stream import reader
from ottla.tools.stream.consumer import Consumer
from ottla.tools.stream.reader import Reading, RecordPrinter

PLACE = ("t", 0)
WHOLE = {PLACE: 2}
CLUSTER: Any = SimpleNamespace(
    bootstrap=[("127.0.0.1", 1)], security=SimpleNamespace(principal="User:u"),
    metadata=lambda topics: SimpleNamespace(topics=[]))


class Message:
    """A message of librdkafka: a record, the end of a partition, or an error."""

    def __init__(self, offset: int, failed: KafkaError | None = None) -> None:
        self.at, self.failed = offset, failed

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return self.failed

    def timestamp(self) -> tuple[int, int]:
        return 1, self.at

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"%d" % self.at

    def headers(self) -> None:
        return None

    def leader_epoch(self) -> int:
        return 0


class Library:
    """Stands for librdkafka's consumer. A poll takes `seconds`, and returns what the test says."""

    seconds = 5.0

    def __init__(self, *polls: str, now: SimpleNamespace) -> None:
        self.left, self.now, self.read = list(polls), now, 0
        self.callbacks: dict[str, Any] = {}
        self.commits: list[dict[tuple[str, int], int]] = []
        self.stored: dict[tuple[str, int], int] = {}
        self.began: list[int] = []
        self.more: list[tuple[str, int, int]] = []
        self.refuses: list[int] = []    # error codes of the next commits; 0 is success

    def subscribe(self, _: list[str], **callbacks: Any) -> None:
        self.callbacks = callbacks

    def poll(self, _: float) -> Message | None:
        self.now.at += self.seconds
        got = self.left.pop(0) if self.left else ""
        if got in ("joined", "joined to nothing"):
            self.callbacks["on_assign"](self, [TopicPartition(*PLACE)] * (got == "joined"))
        elif got == "revoked":
            self.callbacks["on_revoke"](self, [TopicPartition(*PLACE)])
        elif got == "lost":
            self.callbacks["on_lost"](self, [TopicPartition(*PLACE)])
        elif got == "end":
            return Message(self.read, KafkaError(KafkaError._PARTITION_EOF))
        elif got == "fatal":
            return Message(-1, KafkaError(KafkaError._FATAL, "Fatal error: Broker: fenced"))
        elif got == "denied":
            return Message(-1, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        elif got == "stop":
            raise KeyboardInterrupt
        elif got:
            self.read += 1
            return Message(self.read - 1)
        return None

    def consume(self, _: int, __: float) -> list[Message]:
        return []

    def assign(self, places: list[TopicPartition]) -> None:
        self.began = [one.offset for one in places]

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        self.more += [(one.topic, one.partition, one.offset) for one in places]

    def unassign(self) -> None:
        pass

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return [TopicPartition(*PLACE, self.stored.get(PLACE, -1001)) for _ in places]

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        if self.refuses and (code := self.refuses.pop(0)):
            raise KafkaException(KafkaError(code))
        self.commits.append({(one.topic, one.partition): one.offset for one in offsets})
        self.stored |= self.commits[-1]
        return offsets

    def close(self) -> None:
        pass


class Shown:
    """Stands for standard output: `flushed` has the flushed output, `buffered` the rest."""

    def __init__(self) -> None:
        self.buffered: list[bytes] = []
        self.flushed: list[bytes] = []
        self.failed, self.full = False, False

    def write(self, data: bytes) -> None:
        self.buffered.append(data)

    def flush(self) -> None:
        self.flushed += self.buffered
        self.buffered.clear()

    def check_reader(self) -> None:
        pass


class Reader:
    """One reading, with a `Library` and a `Shown` in place of librdkafka and standard output."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wanted: Reading, *polls: str) -> None:
        self.now, self.monkeypatch = SimpleNamespace(at=0.0), monkeypatch
        clock = SimpleNamespace(monotonic=lambda: self.now.at)
        monkeypatch.setattr(reader, "time", clock)
        monkeypatch.setattr("ottla.tools.stream.consumer.time", clock)
        self.library = Library(*polls, now=self.now)
        monkeypatch.setattr(
            "ottla.tools.stream.consumer.open_client", lambda *_: self.library)
        monkeypatch.setattr(
            "ottla.tools.stream.consumer.offsets.required", lambda *_, **__: {PLACE: 0})
        self.out: Any = Shown()
        self.consumer = Consumer(
            CLUSTER, {}, group=wanted.group, settle=lambda: self.out.flush())
        self.printer = RecordPrinter(CLUSTER, self.consumer, wanted, self.out)
        if wanted.is_member:
            self.printer.subscribe()
        else:
            self.consumer.assign({PLACE: 0})
            self.printer.ends = dict(wanted.ends or {})

    def group_is(self, state: str) -> None:
        """Sets the group's state. `looks` gets the times at which the reader asks for it."""
        self.looks: list[float] = []

        def describe(*_: object) -> SimpleNamespace:
            self.looks.append(self.now.at)
            return SimpleNamespace(state=state)

        self.monkeypatch.setattr(reader.groups, "describe", describe)

    def read(self, counted: Any = lambda _: None) -> list[bytes]:
        self.printer.loop(Interrupts(), lambda record: record.value or b"", counted)
        return [*self.out.flushed, *self.out.buffered]


@pytest.mark.parametrize("polls", [
    ["joined", "record", "record"],
    ["", "", "joined", "record", "record"],             # the group's coordinator is being elected
    ["joined", "record", "", "", "record"],             # the partition's leader is being elected
])
def test_a_member_of_a_group_reads_to_the_end_across_an_election(
    monkeypatch: pytest.MonkeyPatch, polls: list[str]
) -> None:
    wanted = Reading(topics=["t"], group="g", idle_ms=5000, group_ends=WHOLE)
    read = Reader(monkeypatch, wanted, *polls)
    read.group_is("Empty")
    assert read.read() == [b"0", b"1"]
    assert read.now.at == 5 * len(polls), "it waited for nobody"


@pytest.mark.parametrize(("polls", "state", "said", "seconds"), [
    ([], "Empty", "could not join within 30 s. The group's state is Empty", 30),
    ([], "PreparingRebalance", "could not join within 300 s", 300),
    (["joined", "record"], "Stable", "g: records of t-0 before offset 2 have not arrived", 40),
])
def test_a_member_of_a_group_that_cannot_read_to_the_end_says_so(
    monkeypatch: pytest.MonkeyPatch, polls: list[str], state: str, said: str, seconds: int
) -> None:
    wanted = Reading(topics=["t"], group="g", idle_ms=5000, group_ends=WHOLE)
    read = Reader(monkeypatch, wanted, *polls)
    read.group_is(state)
    with pytest.raises(ClientError, match=said):
        read.read()
    assert read.now.at == seconds


def test_a_member_waits_for_the_session_of_one_that_was_killed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = Reading(topics=["t"], group="g", idle_ms=5000, group_ends=WHOLE)
    read = Reader(monkeypatch, wanted, *[""] * 20, "joined", "record", "record")
    read.group_is("PreparingRebalance")
    assert read.read() == [b"0", b"1"]
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.endswith("see ottla group why g\n"), said


def test_a_member_that_waits_long_looks_at_its_group_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = Reading(topics=["t"], group="g", idle_ms=5000, group_ends=WHOLE)
    read = Reader(monkeypatch, wanted, *[""] * 139, "joined", "record", "record")
    read.library.seconds = 0.25
    read.group_is("PreparingRebalance")
    assert read.read() == [b"0", b"1"]
    assert read.looks == [5, 30, 31, 32, 33, 34], "first of all to say what it waits for"


def test_a_member_waits_for_partitions_that_others_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those members may stop before they have read their partitions."""
    wanted = Reading(topics=["t"], group="g", idle_ms=5000, group_ends={**WHOLE, ("t", 1): 1})
    read = Reader(monkeypatch, wanted, "joined", "record", "record")
    assert len(read.read()) == 2 and read.now.at == 20


def test_a_member_of_a_group_that_gets_no_partition_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Reading(topics=["t"], group="g", idle_ms=5000, group_ends=WHOLE)
    assert Reader(monkeypatch, wanted, "joined to nothing").read() == []


def test_a_slow_taker_of_records_does_not_end_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Reader(monkeypatch, Reading(idle_ms=7000), "record", "record", "record")

    def slow(_: int) -> None:
        read.now.at += 60

    assert len(read.read(slow)) == 3


def test_a_partition_that_falls_silent_before_its_end_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = Reader(monkeypatch, Reading(ends=WHOLE), "record", *["", ""] * 10, "record")
    assert len(read.read()) == 2
    read = Reader(monkeypatch, Reading(ends=WHOLE), "record")
    with pytest.raises(ClientError, match="t-0 has records before offset 2 that were not received"):
        read.read()


@pytest.mark.parametrize(("wanted", "more"), [
    (Reading(topics=["t"], idle_ms=60_000), [("t", 1, 0)]),
    (Reading(pattern="t|u", idle_ms=60_000), [("t", 1, 0)]),
    (Reading(topics=["t"], partitions=[0], idle_ms=60_000), []),
    (Reading(topics=["t"], ends={PLACE: 1}), []),
])
def test_a_reader_without_a_group_reads_partitions_that_are_created_later(
    monkeypatch: pytest.MonkeyPatch, wanted: Reading, more: list[tuple[str, int, int]]
) -> None:
    read = Reader(monkeypatch, wanted, *[""] * 4, "record")
    parts = [SimpleNamespace(partition_index=index) for index in range(3)]
    topic = SimpleNamespace(name="t", error_code=0, partitions=parts, is_internal=False)
    monkeypatch.setattr(CLUSTER, "metadata", lambda *_: SimpleNamespace(topics=[topic]))
    monkeypatch.setattr(reader.offsets, "required", lambda _, wanted: dict.fromkeys(wanted, 0))
    monkeypatch.setattr(reader.offsets, "at", lambda _, wanted: {   # partition 2 has no leader
        (name, index): ListedOffset(0, -1, -1, 5 if index == 2 else 0) for name, index in wanted})
    monkeypatch.setattr(read.printer.refusals, "look", lambda *_: None)
    read.read()
    assert read.library.more == more


@pytest.mark.parametrize(("waits", "said"), [
    (True, "no topic matches 'ord.*'; waiting for one\n"), (False, "no topic matches 'ord.*'\n"),
])
def test_a_pattern_is_not_called_a_topic(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], waits: bool, said: str
) -> None:
    monkeypatch.setattr(CLUSTER, "metadata", lambda *_: SimpleNamespace(topics=[]))
    reader.report_missing(CLUSTER, Reading(pattern="ord.*"), waits=waits)
    assert capsys.readouterr().err == said


def member(monkeypatch: pytest.MonkeyPatch, most: int, *polls: str) -> Reader:
    return Reader(monkeypatch, Reading(topics=["t"], group="g", most=most), "joined", *polls)


def test_the_position_of_a_partition_without_records_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the next member would begin at the partition's end."""
    read = member(monkeypatch, 1)
    read.printer.wanted.idle_ms = 5000
    read.read()
    read.consumer.close()
    assert read.library.commits == [{PLACE: 0}]


def test_no_record_is_committed_before_it_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    read = member(monkeypatch, 3, "record", "record", "record")
    commit = read.library.commit

    def checked(offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        assert [one.offset for one in offsets] == [len(read.out.flushed)]
        return commit(offsets, asynchronous)

    monkeypatch.setattr(read.library, "commit", checked)
    read.read()
    read.printer.end()
    read.consumer.close()
    assert read.library.commits[-1] == {PLACE: 3}


def test_positions_are_committed_before_partitions_are_revoked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = member(monkeypatch, 9, "record", "record", "revoked", "joined to nothing")
    read.consumer.commit_seconds = 1000.0
    read.printer.wanted.idle_ms = 12_000
    read.read()
    assert read.library.commits == [{PLACE: 2}] and read.consumer.positions == {}
    read.consumer.close()
    assert read.library.commits == [{PLACE: 2}], "what was revoked is another member's"


REFUSED = [KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS]


def test_the_last_commit_is_repeated_until_the_rebalance_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a cooperative assignor, a member keeps its partitions while the group rebalances."""
    read = member(monkeypatch, 2, "record", "record", "", "record", "revoked")
    read.consumer.commit_seconds = 1000.0
    read.read()
    read.printer.end()
    read.library.refuses = [*REFUSED]
    read.consumer.close()
    assert read.library.commits == [{PLACE: 2}], "what was polled meanwhile was not printed"
    assert read.now.at == 5 * 5, "it took part in the rebalance, a poll for each refusal"


@pytest.mark.parametrize(("refuses", "seconds"), [
    (REFUSED * 9, 15),
    ([KafkaError.UNKNOWN_MEMBER_ID], 0),        # other members have its partitions
])
def test_the_last_commit_is_not_repeated_in_vain(
    monkeypatch: pytest.MonkeyPatch, refuses: list[int], seconds: int
) -> None:
    read = member(monkeypatch, 1, "record")
    read.consumer.commit_seconds = 1000.0
    read.read()
    read.printer.end()
    read.library.refuses, begun = [*refuses], read.now.at
    with pytest.raises(ClientError, match="offsets were not committed: "):
        read.consumer.close()
    assert read.now.at - begun == seconds and not read.library.commits


@pytest.mark.parametrize(("polls", "refuses"), [
    (["lost"], REFUSED[:1]),
    (["lost", "joined"], REFUSED[:1]),          # the next commit has the new start offset
    (["revoked"], REFUSED),
    (["revoked"], [*REFUSED[:1], KafkaError.UNKNOWN_MEMBER_ID]),
])  # fmt: skip
def test_a_place_that_is_taken_away_after_a_refused_commit_was_not_committed(
    monkeypatch: pytest.MonkeyPatch, polls: list[str], refuses: list[int]
) -> None:
    read = member(monkeypatch, 1, "record", *polls)
    read.consumer.commit_seconds = 1000.0
    read.read()
    read.printer.end()
    read.library.refuses, read.library.seconds = [*refuses], 0.06
    with pytest.raises(ClientError, match="offsets were not committed: Specified group gener"):
        read.consumer.close()
    assert {PLACE: 1} not in read.library.commits


def test_the_partitions_that_remain_are_committed_after_a_refusal_at_a_revocation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a cooperative assignor, not all partitions are revoked."""
    read = member(monkeypatch, 1, "record", "revoked")
    read.consumer.commit_seconds = 1000.0
    read.read()
    read.consumer.positions["t", 1] = 7
    read.printer.end()
    read.library.refuses = [*REFUSED]
    with pytest.raises(ClientError, match="offsets were not committed: "):
        read.consumer.close()
    assert read.library.commits == [{("t", 1): 7}]


def test_what_was_lost_while_reading_does_not_make_the_last_commit_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The partition's next member reads the records of the refused commit again."""
    read = member(monkeypatch, 9, "record", "lost")
    read.printer.wanted.idle_ms = 12_000
    read.library.refuses = [*REFUSED]
    read.read()
    read.consumer.positions["t", 1] = 7
    read.printer.end()
    read.library.refuses = REFUSED[:1]
    read.consumer.close()
    assert read.library.commits == [{("t", 1): 7}]


@pytest.mark.parametrize("polls", [["denied"], ["denied", "revoked"]])
def test_an_error_of_a_poll_does_not_prevent_the_last_commit(
    monkeypatch: pytest.MonkeyPatch, polls: list[str]
) -> None:
    read = member(monkeypatch, 1, "record", *polls)
    read.consumer.commit_seconds = 1000.0
    read.read()
    read.printer.end()
    read.library.refuses = REFUSED[:len(polls)]
    read.consumer.close()
    assert read.library.commits == [{PLACE: 1}]


def test_a_fatal_error_ends_the_repetition_of_the_last_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = member(monkeypatch, 1, "record", "fatal")
    read.consumer.commit_seconds = 1000.0
    read.read()
    read.printer.end()
    read.library.refuses = REFUSED[:1]
    with pytest.raises(ClientError, match=r"^fenced$"):
        read.consumer.close()
    assert read.library.commits == []


def test_a_revocation_at_the_end_does_not_commit_what_was_not_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A position is settled when its records are written. After the output has failed, a flush
    writes nothing, so it must not settle positions."""
    read = member(monkeypatch, 1, "record", "revoked")
    read.consumer.commit_seconds = 1000.0
    read.read()
    read.printer.end()
    read.consumer.advance(PLACE, 2)
    read.library.refuses = REFUSED[:1]
    read.consumer.close()
    assert read.library.commits == [{PLACE: 1}]


@pytest.mark.parametrize(("polls", "refuses", "results", "commits"), [
    (["record", "record"], REFUSED[:1], [(False, 1), (True, 2)], [{PLACE: 2}]),
    (["record", "record"], [0, *REFUSED],
     [(True, 1), (False, 2), (True, 2)], [{PLACE: 1}, {PLACE: 2}]),
    (["record", "record", "revoked"], [0, *REFUSED],
     [(True, 1), (False, 2), (True, 2)], [{PLACE: 1}, {PLACE: 2}]),
    (["record", "record", "lost"], [*REFUSED, *REFUSED], [(False, 1), (False, 2), (False, 2)], []),
    (["record", "stop"], REFUSED[:1], [(False, 1), (True, 1)], [{PLACE: 1}]),
    (["record", "revoked", "stop"], REFUSED[:1], [(False, 1)], []),     # as in Apache Kafka's tool
])  # fmt: skip
def test_the_verifiable_consumer_reports_a_refused_commit_and_repeats_it_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], polls: list[str],
    refuses: list[int], results: list[tuple[bool, int]], commits: list[dict[Any, int]],
) -> None:
    read = member(monkeypatch, 9, *polls)
    read.consumer.commits, read.library.refuses = False, refuses
    tool = table.read("kafka")["kafka-verifiable-consumer"]
    verifiable_consumer.consume(read.consumer, parse(tool, ["--max-messages", "2"]))
    read.consumer.close()
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = [one for one in events if one["name"] == "offsets_committed"]
    assert [(one["success"], one["offsets"][0]["offset"]) for one in found] == results
    refused = [one["error"] for one in found if not one["success"]]
    assert all("offsets were not committed: " in one for one in refused)
    assert read.library.commits == commits


def test_nothing_is_committed_of_partitions_that_were_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = member(monkeypatch, 9, "record", "lost")
    read.consumer.commit_seconds = 1000.0
    read.printer.wanted.idle_ms = 12_000
    read.read()
    read.consumer.close()
    assert read.library.commits == []


def test_a_fatal_error_is_told_and_no_commit_is_tried_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another member has taken this one's place, so a commit would fail, and hide the reason."""
    read = member(monkeypatch, 9, "record", "fatal")
    read.consumer.commit_seconds = 1000.0
    with pytest.raises(ClientError, match=r"^fenced$"):
        read.read()
    read.consumer.close()
    assert read.library.commits == []


def test_a_record_that_could_not_be_shown_is_not_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = member(monkeypatch, 9, "record", "record")

    def show(record: Any) -> bytes:
        if record.offset == 1:
            raise ValueError("no number")
        return b"shown"

    with pytest.raises(ValueError):
        read.printer.loop(Interrupts(), show, lambda _: None)
    read.printer.end()
    read.consumer.close()
    assert read.library.commits[-1] == {PLACE: 1}


def test_what_could_not_be_written_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    read = member(monkeypatch, 9, "record", "record")

    def broken() -> None:
        if len(read.out.buffered) and read.out.flushed:
            read.out.failed = True
            raise BrokenPipeError
        Shown.flush(read.out)

    monkeypatch.setattr(read.out, "flush", broken)
    with pytest.raises(BrokenPipeError):
        read.read()
    read.printer.end()
    read.consumer.close()
    assert read.library.commits[-1] == {PLACE: 1}


def test_messages_of_a_former_assignment_are_not_printed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = member(monkeypatch, 9, "record", "revoked", "record", "joined", "record")
    read.printer.wanted.idle_ms = 12_000
    assert read.read() == [b"0", b"2"], "1 came while the partition was not assigned"
    assert read.library.began == [1]


def test_a_reading_until_a_time_leaves_the_later_records_to_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = member(monkeypatch, 9, "record", "record", "record")
    read.printer.wanted.until = 2               # each record's timestamp is its offset
    monkeypatch.setattr(read.library, "pause", lambda _: None, raising=False)
    assert read.read() == [b"0", b"1"]
    read.printer.end()
    read.consumer.close()
    assert read.library.commits[-1] == {PLACE: 2}


def test_a_reading_until_a_time_goes_on_after_a_rebalance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the group rebalances, the member has no partitions, not even finished ones."""
    read = member(monkeypatch, 9, "record", "record", "revoked", "", "joined", "record")
    read.printer.wanted.until, read.printer.wanted.finished = 2, {("t", 1)}
    monkeypatch.setattr(read.library, "pause", lambda _: None, raising=False)
    assert read.read() == [b"0", b"1"]
    assert read.library.left == [] and PLACE in read.printer.wanted.finished


def test_a_reading_to_the_end_goes_on_after_a_long_rebalance(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    polls = ["joined", "record", "revoked", "", "", "", "joined", "record"]
    wanted = Reading(topics=["t"], group="g", idle_ms=5000, group_ends=WHOLE)
    read = Reader(monkeypatch, wanted, *polls)
    read.group_is("PreparingRebalance")
    assert read.read() == [b"0", b"1"]
    assert "g: waiting until its members have joined again" in capsys.readouterr().err
