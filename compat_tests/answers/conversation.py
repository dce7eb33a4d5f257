"""A scene's conversation with one broker: requests and answers, as plain values.

A scene is a function that takes a `Talk`. Its requests must not depend on the answers, so that the
transcripts of two brokers can be compared. The only exceptions are ids that the broker generates:
the scene takes them from the answers, and each gets a name (`Talk.names`).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import selectors
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from compat_tests.answers.normal import Names, normal
from compat_tests.answers.variants import Body, key_of, message, varied
from compat_tests.answers.versions import COMMON_VERSIONS
from ottla.wire.messages import (
    ApiVersionsRequest,
    DescribeQuorumRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    OffsetFetchRequest,
)
from ottla.wire.records import Record, build_batch
from tests.broker.running import WireClient

CLOSED, SILENT, UNREADABLE = "connection closed", "no answer", "not readable"
SILENCE_SECONDS = 2.0
SETTLE_SECONDS = 20.0
AT_ONCE, AFTER_EVENT, AFTER_WAIT = "at once", "after the event", "after the wait"
WHEN = "when the answer came"
EVENT_AT = 0.4
"""The event happens after this fraction of the wait. Earlier answers are recorded as AT_ONCE."""
EARLY_UNTIL = 0.9
"""Answers after this fraction of the wait are recorded as AFTER_WAIT."""
Question = tuple[str, int, Body]
CHANGES = {
    "CreateTopics", "DeleteTopics", "CreatePartitions", "AlterConfigs", "IncrementalAlterConfigs",
    "CreateAcls", "DeleteAcls", "AlterClientQuotas", "AlterUserScramCredentials", "ElectLeaders",
    "AlterPartitionReassignments", "UpdateFeatures",
}  # fmt: skip
"""APIs that change metadata. After their answer, `receive` waits until the broker has applied the
change."""


@dataclass
class Entry:
    """One request and its answer, both as `normal` makes them."""

    api: str
    version: int
    request: Any
    answer: Any
    digest: str = ""
    """The digest of the request, if the request itself is not available."""

    @property
    def known_by(self) -> str:
        """A short digest of the request."""
        if self.digest:
            return self.digest
        text = json.dumps([self.api, self.version, self.request], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]


Transcript = dict[str, list[Entry]]
"""The requests and answers of each scene."""


@dataclass
class Talk:
    """The conversation of one scene with one broker."""

    address: tuple[str, int]
    scene: str
    seed: int
    patience: float = 0.0
    """Seconds after which an acknowledged change of metadata or a group is visible everywhere."""
    names: Names = field(default_factory=Names)
    entries: list[Entry] = field(default_factory=list)
    connections: dict[str, WireClient] = field(default_factory=dict)
    ids: dict[str, bytes] = field(default_factory=dict)
    """Ids of the topics that the scene has created, by name."""

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.seed}/{self.scene}")
        self._numbers = itertools.count()
        self._waiting: dict[str, tuple[tuple[int, int, int], Entry]] = {}
        self.last: Any = None

    def fresh(self, base: str) -> str:
        """A unique name, the same in every run."""
        return f"{self.scene}-{base}-{next(self._numbers)}"

    def ask(self, api: str, version: int, body: Body, connection: str = "main") -> Any:
        """Send a request and record the answer; None if the broker closed the connection
        instead."""
        self.send(api, version, body, connection)
        return self.receive(connection)

    def send(self, api: str, version: int, body: Body, connection: str = "main") -> None:
        """Send a request. `receive` will record its answer."""
        request = message(api, version, body)
        entry = Entry(api, version, normal(request, version, self.names), None)
        self.entries.append(entry)
        try:
            self._waiting[connection] = self._client(connection).send(request, version), entry
        except ConnectionError:
            entry.answer = CLOSED

    def receive(self, connection: str = "main") -> Any:
        """Record the answer to the last request on this connection."""
        sent, entry = self._waiting.pop(connection)
        client = self._client(connection)
        client.socket.settimeout(SILENCE_SECONDS)
        try:
            answer = client.answer(sent)
        except (ConnectionError, TimeoutError) as error:
            entry.answer = SILENT if isinstance(error, TimeoutError) else CLOSED
            self.forget(connection)
            return None
        self._learn(entry, answer)
        entry.answer = normal(answer, sent[1], self.names)
        if entry.api in CHANGES and not entry.request.get("validate_only"):
            self.settle()
        return answer

    def send_only(self, api: str, version: int, body: Body) -> None:
        """Send a request that has no answer. Records whether the broker closes the connection."""
        request = message(api, version, body)
        entry = Entry(api, version, normal(request, version, self.names), None)
        self.entries.append(entry)
        client = self._client("main")
        client.socket.settimeout(SILENCE_SECONDS)
        client.send(request, version)
        try:
            client.call(ApiVersionsRequest(), 0)
            entry.answer = "nothing"
        except ConnectionError:
            entry.answer = CLOSED
            self.forget("main")

    def frame(self, name: str, frame: bytes, decode: Callable[[bytes], Any]) -> None:
        """Send bytes that no schema produces; the answer is the next frame, read by `decode`."""
        entry = Entry(name, 0, frame.hex(), None)
        self.entries.append(entry)
        client = self._client("main")
        client.socket.settimeout(SILENCE_SECONDS)
        try:
            client.send_frame(frame)
            entry.answer = decode(client.receive_frame())
        except TimeoutError:
            entry.answer = SILENT
        except ConnectionError:
            entry.answer = CLOSED
        self.forget("main")

    def explore(
        self,
        api: str,
        make: Callable[[], Body],
        *,
        versions: range | None = None,
        skip: tuple[str, ...] = (),
        stride: int = 3,
        then: Callable[[Body], None] | None = None,
    ) -> None:
        """Send the request of `make` in every version: unchanged, and with wrong fields."""
        asked = COMMON_VERSIONS[key_of(api)] if versions is None else versions
        for version, body in varied(api, asked, make, skip, stride, self.chance):
            self.ask(api, version, body)
            if then is not None:
                then(body)

    def settle(self) -> None:
        """Wait until the broker has applied all that its controller has written."""
        client = self._client("settle")
        quorum = DescribeQuorumRequest.Topic(
            topic_name="__cluster_metadata",
            partitions=[DescribeQuorumRequest.Topic.Partition(partition_index=0)],
        )
        written = client.call(DescribeQuorumRequest(topics=[quorum]), 1)
        wanted = written.topics[0].partitions[0].high_watermark - 1
        deadline = time.monotonic() + SETTLE_SECONDS
        asked = ApiVersionsRequest(client_software_name="compare", client_software_version="1")
        while client.call(asked, 3).finalized_features_epoch < wanted:
            assert time.monotonic() < deadline, "the broker does not take over its metadata"
            time.sleep(0.001)
        self.pause()

    def pause(self) -> None:
        """Wait until every connection sees the changes that the broker has acknowledged."""
        time.sleep(self.patience)

    def forget(self, connection: str) -> None:
        """Close a connection. The next request on it opens it again."""
        self.connections.pop(connection).close()

    def close(self) -> None:
        """End all connections."""
        for name in list(self.connections):
            self.forget(name)

    def when(
        self, questions: Sequence[Question], wait_seconds: float,
        event: Callable[[], object] | None = None,
    ) -> None:
        """Send each request on a connection of its own; record the answers, and when they arrive.

        The event happens after all requests were sent, and before the wait of any of them ends.
        """
        began = time.monotonic()
        for at, (api, version, body) in enumerate(questions):
            self.send(api, version, body, f"wait {at}")
        came: dict[str, str] = {}
        if event is not None:
            self._note(came, AT_ONCE, len(questions), began + EVENT_AT * wait_seconds)
            event()
        early = AT_ONCE if event is None else AFTER_EVENT
        self._note(came, early, len(questions), began + EARLY_UNTIL * wait_seconds)
        self._note(came, AFTER_WAIT, len(questions), began + wait_seconds + SILENCE_SECONDS)
        for at in range(len(questions)):
            name = f"wait {at}"
            entry = self._waiting[name][1] if name in self._waiting else self.entries[-1]
            self.last = self.receive(name) if name in self._waiting else None
            answer = entry.answer if isinstance(entry.answer, dict) else {"answer": entry.answer}
            entry.answer = answer | {WHEN: came.get(name, SILENT)}

    def _note(
        self, came: dict[str, str], moment: str, count: int, until: float
    ) -> None:
        """Note `moment` for each connection that becomes readable before `until`."""
        with selectors.DefaultSelector() as selector:
            for name in (f"wait {at}" for at in range(count)):
                if name not in came and name in self.connections:
                    selector.register(self.connections[name].socket, selectors.EVENT_READ, name)
            while selector.get_map() and (left := until - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    came[key.data] = moment
                    selector.unregister(key.fileobj)

    def again(self, name: str) -> None:
        """Create a deleted topic again, with one partition."""
        one = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [],
               "configs": []}  # fmt: skip
        self.ask("CreateTopics", 7, {"topics": [one], "timeout_ms": 10_000})
        self.until_led(name, 1)

    def _client(self, connection: str) -> WireClient:
        if connection not in self.connections:
            self.connections[connection] = WireClient(self.address)
        return self.connections[connection]

    def _learn(self, entry: Entry, answer: Any) -> None:
        """Give names to the ids in this answer that the broker has generated."""
        made_up = getattr(answer, "producer_id", -1)
        if made_up >= FIRST_PRODUCER_ID:
            known = self.names.of_producer
            if made_up not in known:
                self.names.producer(made_up, str(len(known)))
        member_id = getattr(answer, "member_id", "")
        if member_id and entry.request.get("member_id", member_id) != member_id:
            self.names.of_text.setdefault(member_id, f"<member {len(self.names.of_text)}>")
        if entry.api in ("CreateTopics", "Metadata"):
            for topic in answer.topics:
                if topic.name and any(topic.topic_id):
                    self.names.topic_id(topic.topic_id, topic.name)

    # Requests with which most scenes begin

    def topic(self, base: str, partitions: int = 1, **config: str) -> str:
        """Create a topic and learn its id; returns its name."""
        name = self.fresh(base)
        body = {
            "topics": [
                {
                    "name": name, "num_partitions": partitions, "replication_factor": 1,
                    "assignments": [],
                    "configs": [{"name": key.replace("_", "."), "value": value}
                                for key, value in config.items()],
                }
            ],
            "timeout_ms": 10_000,
        }  # fmt: skip
        answer = self.ask("CreateTopics", 7, body)
        self.until_led(name, partitions)
        self.ids[name] = answer.topics[0].topic_id
        return name

    def until_led(self, topic: str, partitions: int) -> None:
        """Wait until the broker serves the topic's partitions, some time after their creation."""
        client, deadline = self._client("settle"), time.monotonic() + SETTLE_SECONDS
        made = ListOffsetsRequest.Topic
        asked = made(name=topic, partitions=[
            made.Partition(partition_index=index, timestamp=-1) for index in range(partitions)
        ])  # fmt: skip
        request = ListOffsetsRequest(replica_id=-1, topics=[asked])
        while any(each.error_code for each in client.call(request, 5).topics[0].partitions):
            assert time.monotonic() < deadline, f"{topic} has no leaders"

    def producer(self, transactional_id: str | None = None) -> tuple[int, int]:
        """Initialize a producer; returns its id and epoch."""
        body = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
        answer = self.ask("InitProducerId", 4, body)
        return answer.producer_id, answer.producer_epoch

    def produce(self, topic: str, records: bytes, version: int = 9, **more: Any) -> Any:
        """Produce to partition 0, or to `partition` in `more`."""
        data = {"index": more.pop("partition", 0), "records": records}
        body = {
            "transactional_id": None, "acks": -1, "timeout_ms": 10_000,
            "topic_data": [{"name": topic, "topic_id": self.ids[topic], "partition_data": [data]}],
        }  # fmt: skip
        return self.ask("Produce", version, body | more)


FIRST_PRODUCER_ID = 100
"""No scene gets a smaller id, because `prepare` allocates those."""


def batch(*values: str, timestamp: int = 1_600_000_000_000, **fields: Any) -> bytes:
    """A batch of records with the same key (by default null), a millisecond apart."""
    key = fields.pop("key", None)
    return build_batch(
        [
            Record(offset=n, timestamp=timestamp + n, key=key, value=value.encode())
            for n, value in enumerate(values)
        ],
        **fields,
    )


def prepare(address: tuple[str, int]) -> None:
    """Have a broker create its internal topics, and use up the first producer ids."""
    deadline = time.monotonic() + 60
    with WireClient(address) as client:

        def until(request: Any, version: int, done: Callable[[Any], bool]) -> None:
            while not done(client.call(request, version)):
                assert time.monotonic() < deadline, "the coordinators do not start"
                time.sleep(0.05)

        for key_type in (0, 1):
            find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["prepare"])
            until(find, 4, lambda answer: answer.coordinators[0].error_code == 0)
        for number in range(60):
            group = OffsetFetchRequest.Group(group_id=f"prepare-{number}", topics=None)
            until(OffsetFetchRequest(groups=[group]), 8,
                  lambda answer: answer.groups[0].error_code == 0)
            init = InitProducerIdRequest(
                transactional_id=f"prepare-{number}", transaction_timeout_ms=60_000
            )
            until(init, 4, lambda answer: answer.error_code == 0)
        anybody = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        until(anybody, 4, lambda answer: answer.producer_id >= FIRST_PRODUCER_ID)
