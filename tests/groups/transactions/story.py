"""Plays a scenario of transactions. Each line is one step: request `----` answer.

    init x                         ----  1001/0
    add x 1001/0 a-0 b-1           ----  NONE
    end x 1001/0 commit            ----  1001/0; a-0 commit 1001/0; b-1 commit 1001/0
    crash                          ----

A producer is written as its id and epoch. After the answer of a step come the markers that were
written during the step, then the delayed answers that the step caused. `v=2` uses KIP-890. `hold`
and `release` stop and resume markers or commits; `fail` and `heal` stop and resume the leader of a
partition.
"""

from __future__ import annotations

from typing import Any

from ottla.groups.records import NO_PRODUCER, Producer
from ottla.groups.transactions.records import TopicIndex, TransactionValue
from ottla.wire.errors import ErrorCode, ProtocolError
from tests.groups.story import milliseconds
from tests.groups.transactions.bench import TransactionBench


def producer_of(text: str) -> Producer:
    producer_id, epoch = text.split("/")
    return Producer(int(producer_id), int(epoch))


def partition_of(name: str) -> TopicIndex:
    topic, index = name.rsplit("-", 1)
    return topic, int(index)


def told(reply: Any) -> str:
    """A reply as the text of a scenario."""
    if reply is None:
        return "waits"
    if isinstance(reply, ProtocolError):
        return reply.code.name
    if isinstance(reply, TransactionValue):
        return f"{reply.producer_id}/{reply.epoch}"
    if isinstance(reply, Producer):
        return f"{reply.producer_id}/{reply.epoch}"
    return ErrorCode(reply).name


class TransactionStory:
    """Plays the steps of one scenario and writes down their outcomes."""

    def __init__(self) -> None:
        self.bench = TransactionBench(transaction_state_log_num_partitions=1)
        self.waiting: list[tuple[str, list[Any]]] = []

    def play(self, step: str) -> str:
        """Play one step; returns the answers and markers of the step."""
        seen = len(self.bench.markers)
        verb, *words = step.split()
        names = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        said = getattr(self, verb)(*names, **options)
        heard = [f"{who}: {told(answers[0])}" for who, answers in self.waiting if answers]
        self.waiting = [(who, answers) for who, answers in self.waiting if not answers]
        markers = [
            f"{topic}-{index} {'commit' if marker.commits else 'abort'}"
            f" {marker.producer_id}/{marker.epoch}"
            for (topic, index), marker in self.bench.markers[seen:]
        ]
        return "; ".join(([said] if said else []) + markers + heard)

    def init(self, key: str, timeout: str = "60s", expected: str = "") -> str:
        known = producer_of(expected) if expected else NO_PRODUCER
        return told(self.bench.init(key, known, milliseconds(timeout)))

    def add(self, key: str, producer: str, *partitions: str, v: str = "0") -> str:
        wanted = [partition_of(name) for name in partitions]
        return told(self.bench.add(producer_of(producer), *wanted, key=key, v=int(v)))

    def check(self, key: str, producer: str, partition: str) -> str:
        """The verification that a partition's leader requests before it appends a batch."""
        return told(self.bench.check(producer_of(producer), partition_of(partition), key))

    def end(self, key: str, producer: str, outcome: str, v: str = "0") -> str:
        try:
            answers = self.bench.end_later(
                producer_of(producer), outcome == "commit", key, int(v)
            )
        except ProtocolError as error:
            return error.code.name
        if answers:
            return told(answers[0])
        self.waiting.append((f"{key} {producer}", answers))
        return "waits"

    def hold(self, what: str) -> None:
        self.set_held(what, True)

    def release(self, what: str) -> None:
        self.set_held(what, False)

    def set_held(self, what: str, held: bool) -> None:
        if what == "markers":
            self.bench.hold_markers = held
            if not held:
                self.bench.write_held_markers()
        else:
            self.bench.hold_commits = held
            if not held:
                self.bench.commit_all()

    def fail(self, partition: str) -> None:
        self.bench.marker_errors[partition_of(partition)] = ErrorCode.NOT_LEADER_OR_FOLLOWER

    def heal(self, partition: str) -> None:
        del self.bench.marker_errors[partition_of(partition)]

    def wait(self, duration: str) -> None:
        self.bench.wait(milliseconds(duration))

    def crash(self, lost: str = "0") -> None:
        """kill -9, or a power cut that removes the given number of unflushed records."""
        self.waiting.clear()
        self.bench.crash(int(lost))

    def show(self, key: str) -> str:
        value = self.bench.value(key)
        names = ",".join(f"{topic}-{index}" for topic, index in sorted(value.partitions))
        return f"{value.state.name} {value.producer_id}/{value.epoch} [{names}]"


def retell(text: str) -> str:
    """Play a scenario's text; returns the same text with the outcomes that were seen."""
    story = TransactionStory()
    lines = []
    for line in text.splitlines():
        step = line.partition(" ----")[0].strip()
        if not step or step.startswith("#"):
            lines.append(line.rstrip())
        else:
            lines.append(f"{step:<48} ----  {story.play(step)}".rstrip())
    return "\n".join(lines) + "\n"
