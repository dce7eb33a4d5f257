"""Reads scenarios that any broker can play: requests of one client, and their answers.

    # an offset of an open transaction does not survive the group's deletion
    init                               ----  A/0
    offsets A/0                        ----  NONE
    commit-in A/0 5                    ----  NONE
    delete-group                       ----  NONE
    end A/0 commit                     ----  A/0; CompleteCommit A/0
    fetch                              ----  none

The outcomes were recorded from Apache Kafka; where Ottla differs on purpose, its outcome follows
after `| here`. Each scenario has a topic with one partition, a group and a transactional id of its
own. Producer ids are letters in the order in which they first appear, and a step that ends a
transaction waits until all markers are written and then shows the state.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ottla.groups.classic.subscription import Subscription, write_subscription
from ottla.groups.records import Producer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    DescribeTransactionsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tests.broker import transactions
from tests.broker.running import WireClient
from tests.waiting import until

FILES = sorted((Path(__file__).parent.parent / "scenarios" / "wire").glob("*.txt"))
SETTLED_SECONDS = 20
LOADING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Step(NamedTuple):
    """A request, the outcome with Apache Kafka, and the outcome with Ottla."""

    request: str
    kafka: str
    here: str


def scenarios(path: Path) -> Iterator[tuple[str, list[Step]]]:
    """Yields the title and the steps of each scenario."""
    title = ""
    steps: list[Step] = []
    for line in [*path.read_text().splitlines(), ""]:
        if line.startswith("#"):
            title = line[1:].strip()
        elif line.strip():
            request, _, outcome = line.partition(" ----")
            kafka, _, here = (part.strip() for part in outcome.partition("| here "))
            steps.append(Step(request.strip(), kafka, here or kafka))
        elif steps:
            yield title, steps
            steps = []


class WireStory:
    """Plays the steps of one scenario through one connection."""

    def __init__(self, client: WireClient, name: str) -> None:
        self.client = client
        self.topic, self.group, self.key = f"t-{name}", f"g-{name}", f"x-{name}"
        self.letters: dict[int, str] = {}
        self.member_id = ""
        for kind, key in ((0, self.group), (1, self.key)):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            until(partial(self.finds, request), "Apache Kafka has created the internal topic")
        self.create_topic()
        until(
            lambda: self.fetch() not in [code.name for code in LOADING],
            "the coordinator has loaded",
        )

    def play(self, step: str) -> str:
        """Play one step; returns the outcome."""
        verb, *words = step.split()
        names = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        said: str = getattr(self, verb.replace("-", "_"))(*names, **options)
        return said

    # Producers

    def finds(self, request: FindCoordinatorRequest) -> bool:
        """Whether the coordinator can be found already."""
        return not self.client.call(request, 6).coordinators[0].error_code

    def told(self, reply: Any) -> str:
        """A producer as its letter and epoch, or the name of an error code."""
        if isinstance(reply, Producer):
            return f"{self.letter(reply.producer_id)}/{reply.epoch}"
        return ErrorCode(reply).name

    def letter(self, producer_id: int) -> str:
        return self.letters.setdefault(producer_id, chr(ord("A") + len(self.letters)))

    def producer(self, text: str) -> Producer:
        """Read a producer such as `A/0`. In `?/0` the producer id was never assigned; `-` stands
        for no producer id."""
        letter, epoch = text.split("/")
        ids = {letter: producer_id for producer_id, letter in self.letters.items()} | {"-": -1}
        return Producer(ids.get(letter, 1 << 40), int(epoch))

    def init(self, expected: str = "", v: str = "5", timeout: str = "60000") -> str:
        known = self.producer(expected) if expected else None
        while True:
            reply = transactions.init(self.client, self.key, int(v), known, int(timeout))
            if reply not in LOADING:
                break
        return self.told(reply) + self._ended(reply)

    def add(self, producer: str, v: str = "3") -> str:
        codes = transactions.add(
            self.client, self.key, self.producer(producer), self.topic, 0, version=int(v)
        )
        return codes[0].name

    def offsets(self, producer: str, v: str = "3") -> str:
        who = self.producer(producer)
        return transactions.add_offsets(self.client, self.key, who, self.group, int(v)).name

    def commit_in(self, producer: str, offset: str, v: str = "3") -> str:
        who = self.producer(producer)
        return transactions.commit_offset(
            self.client, self.key, who, self.group, self.topic, int(offset), int(v)
        ).name

    def write(self, producer: str, sequence: str = "0", v: str = "11") -> str:
        who, number = self.producer(producer), int(sequence)
        while True:
            code = transactions.write(
                self.client, self.key, who, self.topic, b"r", sequence=number, version=int(v)
            )
            if code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:  # else the topic has no leader yet
                return code.name

    def end(self, producer: str, outcome: str, v: str = "4") -> str:
        who = self.producer(producer)
        reply = transactions.end(self.client, self.key, who, outcome == "commit", int(v))
        return self.told(reply) + self._ended(reply)

    def _ended(self, reply: Any) -> str:
        """The state of the transaction, as a part of an outcome; empty if the request cannot have
        ended it."""
        if isinstance(reply, Producer) or reply is ErrorCode.CONCURRENT_TRANSACTIONS:
            return f"; {self.show()}"
        return ""

    def show(self) -> str:
        """Wait until all markers are written; returns the transaction's state and producer."""
        deadline = time.monotonic() + SETTLED_SECONDS
        while (found := self._state()).transaction_state.startswith("Prepare"):
            assert time.monotonic() < deadline, found
            pass
        if found.error_code:
            return ErrorCode(found.error_code).name
        who = f"{self.letter(found.producer_id)}/{found.producer_epoch}"
        return f"{found.transaction_state} {who}"

    def timed_out(self) -> str:
        """Wait until the transaction has timed out; returns its state."""
        deadline = time.monotonic() + SETTLED_SECONDS
        while self._state().transaction_state == "Ongoing":
            assert time.monotonic() < deadline, "nobody ends the transaction"
        return self.show()

    def _state(self) -> Any:
        request = DescribeTransactionsRequest(transactional_ids=[self.key])
        return self.client.call(request, 0).transaction_states[0]

    # Groups and topics

    def commit(self, offset: str) -> str:
        made = OffsetCommitRequest.Topic
        partition = made.Partition(
            partition_index=0, committed_offset=int(offset), committed_metadata=""
        )
        topics = [made(name=self.topic, partitions=[partition])]
        request = OffsetCommitRequest(
            group_id=self.group, generation_id_or_member_epoch=-1, member_id="", topics=topics
        )
        return ErrorCode(self.client.call(request, 8).topics[0].partitions[0].error_code).name

    def fetch(self, stable: str = "no") -> str:
        made = OffsetFetchRequest.Group
        wanted = made(
            group_id=self.group, topics=[made.Topic(name=self.topic, partition_indexes=[0])]
        )
        request = OffsetFetchRequest(groups=[wanted], require_stable=stable == "yes")
        group = self.client.call(request, 8).groups[0]
        if group.error_code:
            return ErrorCode(group.error_code).name
        found = group.topics[0].partitions[0]
        if found.error_code:
            return ErrorCode(found.error_code).name
        return "none" if found.committed_offset < 0 else str(found.committed_offset)

    def delete_group(self) -> str:
        answer = self.client.call(DeleteGroupsRequest(groups_names=[self.group]), 2)
        return ErrorCode(answer.results[0].error_code).name

    def delete_offsets(self) -> str:
        made = OffsetDeleteRequest.Topic
        partitions = [made.Partition(partition_index=0)]
        request = OffsetDeleteRequest(
            group_id=self.group, topics=[made(name=self.topic, partitions=partitions)]
        )
        answer = self.client.call(request, 0)
        code = answer.error_code or answer.topics[0].partitions[0].error_code
        return ErrorCode(code).name

    def delete_topic(self) -> str:
        request = DeleteTopicsRequest(topic_names=[self.topic], timeout_ms=10_000)
        return ErrorCode(self.client.call(request, 5).responses[0].error_code).name

    def create_topic(self) -> str:
        topic = CreateTopicsRequest.Topic(name=self.topic, num_partitions=1, replication_factor=1)
        answer = self.client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        described = MetadataRequest(topics=[MetadataRequest.Topic(name=self.topic)])
        until(
            lambda: not self.client.call(described, 12).topics[0].error_code,
            "Metadata names the topic",
        )
        return ErrorCode(answer.topics[0].error_code).name

    def join_modern(self) -> str:
        """A KIP-848 member joins, and subscribes to the topic."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id="modern", member_epoch=0, rebalance_timeout_ms=60_000,
            subscribed_topic_names=[self.topic], topic_partitions=[],
        )
        return ErrorCode(self.client.call(request, 1).error_code).name

    def leave_modern(self) -> str:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id="modern", member_epoch=-1
        )
        return ErrorCode(self.client.call(request, 1).error_code).name

    def join_classic(self) -> str:
        """A classic member joins; its assignment in the generation is empty."""
        data = write_subscription(Subscription((self.topic,)), 1)
        request = JoinGroupRequest(
            group_id=self.group, session_timeout_ms=60_000, rebalance_timeout_ms=60_000,
            member_id="", protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name="range", metadata=data)],
        )
        told = self.client.call(request, 9)
        if told.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = request.member_id = told.member_id
            told = self.client.call(request, 9)
        if told.error_code == 0:
            given = SyncGroupRequest.Assignment(member_id=told.member_id, assignment=b"")
            sync = SyncGroupRequest(
                group_id=self.group, generation_id=told.generation_id, member_id=told.member_id,
                protocol_type="consumer", protocol_name="range", assignments=[given],
            )
            assert self.client.call(sync, 5).error_code == 0
        return ErrorCode(told.error_code).name

    def leave_classic(self) -> str:
        members = [LeaveGroupRequest.Member(member_id=self.member_id)]
        answer = self.client.call(LeaveGroupRequest(group_id=self.group, members=members), 5)
        return ErrorCode(answer.error_code or answer.members[0].error_code).name

    def groups(self) -> str:
        """The group's type and state in ListGroups."""
        answer = self.client.call(ListGroupsRequest(), 5)
        for each in answer.groups:
            if each.group_id == self.group:
                return f"{each.group_type or 'classic'} {each.group_state}"
        return "no group"
