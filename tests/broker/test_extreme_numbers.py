"""Extreme numbers in every field of every API: no other client's request fails because of them.

Requests with extreme numbers and the requests of a normal client arrive in one turn of the broker's
loop, so that the broker processes them together. The bodies come from the schemas, so a new API or
field is covered as soon as it is declared.
"""

from __future__ import annotations

import copy
import logging
import select
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from compat_tests.answers.conversation import prepare
from compat_tests.answers.variants import INTEGER_BITS, Body, Place, message, put
from ottla.broker.dispatch import HANDLERS
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.messages import (
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from ottla.wire.plan import Layout
from ottla.wire.schema_parser import Field
from tests.broker.produce_fetch import batch, fetch_request, produce_request, values
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create, metadata
from tests.waiting import until

STRANGE, INNOCENT = "strange", "innocent"
STRANGERS = 24
"""Requests of strange clients in one turn."""
FLOATS = (-1.0, 0.0, 5e-324, 1.7e308, float("inf"), float("-inf"), float("nan"))


@dataclass(frozen=True)
class Known:
    """Ids that the broker knows. The strange clients use them, so that only the extreme numbers can
    be a reason to refuse their requests."""

    topic_id: bytes
    producer_id: int
    producer_epoch: int
    group_id: str = ""

    def body(self, layout: Layout, version: int) -> Body:
        """A body with every field of a version."""
        return {
            each.name: self.value(layout, each, version)
            for each in layout.fields if version in each.versions
        }

    def value(self, layout: Layout, of: Field, version: int) -> Any:
        """A valid value of a field, by the field's name and type."""
        if of.is_struct:
            found: Any = self.body(layout.classes[of.name].LAYOUT, version)
        elif of.name in ("member_id", "group_instance_id", "rack_id"):
            found = None if version in of.nullable else ""
        elif of.name in ("group_id", "producer_id", "producer_epoch"):
            found = getattr(self, of.name)
        elif of.type in INTEGER_BITS:
            served = {"acks": -1, "min_bytes": 0, "session_epoch": -1}
            few = of.name.endswith(("_ms", "count", "num_partitions", "replication_factor"))
            old = of.name.startswith("generation") or of.name.endswith("epoch")
            found = served.get(of.name, 1 if few else -1 if old else 0)
        elif of.type == "string":
            found = "range" if "protocol" in of.name or "assignor" in of.name else STRANGE
        else:
            found = {
                "uuid": self.topic_id, "bytes": b"", "records": batch(b"v"), "bool": False,
                "float64": 1.0, "uint16": 1,
            }[of.type]
        return [found] if of.array else found


def numbers_of(layout: Layout, version: int, above: Place = ()) -> Iterator[tuple[Place, Field]]:
    """Yields the place of each number in a request body, with its field."""
    for of in layout.fields:
        if version not in of.versions:
            continue
        place: Place = (*above, of.name, 0) if of.array else (*above, of.name)
        if of.is_struct:
            yield from numbers_of(layout.classes[of.name].LAYOUT, version, place)
        elif of.type in INTEGER_BITS or of.type == "float64":
            yield place, of


def extremes_of(of: Field) -> tuple[Any, ...]:
    if of.type == "float64":
        return FLOATS
    top = 1 << (INTEGER_BITS[of.type] - 1)
    return (-top, -1, top - 1)


def strange_requests(known: Known) -> Iterator[tuple[Any, int]]:
    """Yields requests of every API and version: without extreme numbers, with one extreme number,
    and with all numbers at their extremes."""
    for key in sorted(HANDLERS):
        api = APIS[ApiKey(key)]
        for version in HANDLERS[key].versions:
            own = replace(known, group_id=f"{STRANGE}-{key}")
            plain = own.body(api.request.LAYOUT, version)
            if key == ApiKey.INIT_PRODUCER_ID:
                plain["transactional_id"] = f"{STRANGE}-{key}"  # does not fence the known producer
            found = list(numbers_of(api.request.LAYOUT, version))
            bodies = [plain]
            for place, of in found:
                for value in extremes_of(of):
                    bodies.append(copy.deepcopy(plain))
                    put(bodies[-1], place, value)
            for at in (0, -1):
                bodies.append(copy.deepcopy(plain))
                for place, of in found:
                    put(bodies[-1], place, extremes_of(of)[at])
            for body in bodies:
                # Skip requests that the schema cannot encode.
                with suppress(Exception):
                    request = message(api.name, version, body)
                    request.encode(version)
                    yield request, version


@dataclass
class Innocent:
    """A normal client. In each turn it commits an offset, produces a record, initializes its
    transactional producer and changes a setting."""

    client: WireClient
    turns: int = 0
    sent: list[Any] = field(default_factory=list)

    def ask(self) -> None:
        """Send one request of each kind, without reading the answers."""
        self.turns += 1
        topic = OffsetCommitRequest.Topic
        made: Any = IncrementalAlterConfigsRequest.Resource
        change = made(
            resource_type=2, resource_name=INNOCENT,
            configs=[made.Config(name="retention.ms", config_operation=0,
                                 value=str(10**9 + self.turns))],
        )
        self.sent = [
            self.client.send(request, version)
            for request, version in (
                (OffsetCommitRequest(
                    group_id=INNOCENT, member_id="", topics=[topic(name=INNOCENT, partitions=[
                        topic.Partition(partition_index=0, committed_offset=self.turns)])]), 8),
                (produce_request(INNOCENT, batch(b"%d" % self.turns)), 9),
                (InitProducerIdRequest(
                    transactional_id=INNOCENT, transaction_timeout_ms=1000), 4),
                (IncrementalAlterConfigsRequest(resources=[change]), 1),
            )
        ]

    def check(self) -> None:
        """Read the answers, and assert that all requests were served."""
        commit, produced, begun, changed = map(self.client.answer, self.sent)
        assert commit.topics[0].partitions[0].error_code == 0
        answer = produced.responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, self.turns - 1)
        assert begun.error_code == 0
        assert changed.responses[0].error_code == 0

    def check_all(self) -> None:
        """Assert that the last committed offset and all produced records are there."""
        wanted = OffsetFetchRequest.Topic(name=INNOCENT, partition_indexes=[0])
        answer = self.client.call(OffsetFetchRequest(group_id=INNOCENT, topics=[wanted]), 7)
        assert answer.topics[0].partitions[0].committed_offset == self.turns
        read: list[Any] = []
        while len(read) < self.turns:
            found = self.client.call(fetch_request(INNOCENT, offset=len(read)), 11)
            more = values(found.responses[0].partitions[0])
            assert more
            read += more
        assert read == [b"%d" % turn for turn in range(1, self.turns + 1)]


class Strangers:
    """Connections of strange clients. A connection whose request waits, or that the broker has
    closed, is replaced."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.clients: list[WireClient] = []

    def send(self, requests: list[tuple[Any, int]]) -> None:
        while len(self.clients) < len(requests):
            self.clients.append(WireClient(self.broker.address))
        for client, (request, version) in zip(self.clients, requests, strict=False):
            with suppress(ConnectionError):
                client.send(request, version)

    def settle(self) -> None:
        """Read the answers that have arrived. Close the connections on which none has arrived."""
        kept = []
        for client in self.clients:
            poll = select.poll()        # `select` takes no descriptor above 1,023
            poll.register(client.socket, select.POLLIN)
            readable = poll.poll(0)
            try:
                if not readable:
                    raise ConnectionError("it waits, or has no answer")
                client.receive_frame()
                kept.append(client)
            except (ConnectionError, ValueError):
                client.close()
        self.clients = kept

    def close(self) -> None:
        for client in self.clients:
            client.close()


@pytest.mark.timeout(300)
def test_extreme_numbers_of_some_fail_nobody_elses_requests(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    settings = {
        "offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 1,
        "offsets_topic_replication_factor": 1, "transaction_state_log_replication_factor": 1,
        "auto_create_topics_enable": "false", "ottla_acks_all_flush": "false",
    }
    with RunningBroker(tmp_path, **settings) as broker, WireClient(broker.address) as client:
        create(client, STRANGE)
        create(client, INNOCENT)
        until(lambda: metadata(client, INNOCENT)[0].leader_id >= 0, "the topic is led")
        prepare(broker.address)
        innocent, strangers = Innocent(client), Strangers(broker)
        begun = client.call(InitProducerIdRequest(
            transactional_id=STRANGE, transaction_timeout_ms=60_000), 4)
        topic_id = broker.server.broker.image.topics[STRANGE].topic_id
        requests = list(
            strange_requests(Known(topic_id, begun.producer_id, begun.producer_epoch)))
        assert len(requests) > 3000
        for start in range(0, len(requests), STRANGERS):
            part = requests[start : start + STRANGERS]
            gate = threading.Event()
            broker.loop.call_soon_threadsafe(gate.wait)
            strangers.send(part[: STRANGERS // 2])
            innocent.ask()
            strangers.send(part[STRANGERS // 2 :])
            gate.set()
            try:
                innocent.check()
            except AssertionError as error:
                beside = [(type(request).__name__, version) for request, version in part]
                raise AssertionError(f"beside {beside}") from error
            strangers.settle()
            faults = [each.getMessage() for each in caplog.records if each.exc_info]
            assert not faults, (faults, part)
        innocent.check_all()
        strangers.close()
