"""Requests for the controller reach it through any broker, with the client's identity."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.api.controller import encoded
from ottla.broker.peers.envelopes import (
    Forwarding,
    decode_address,
    decode_principal,
    encode_address,
    encode_principal,
    names_code,
)
from ottla.broker.peers.network import TcpNetwork
from ottla.broker.peers.peers import Peers, PeerUnavailable
from ottla.broker.role import Alone
from ottla.broker.threads.slices import Slices
from ottla.client.errors import Unreachable
from ottla.replication.metadata import BrokerImage, Endpoint, MetadataImage
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.headers import RequestHeader, response_header_size
from ottla.wire.messages import (
    AllocateProducerIdsRequest,
    ApiVersionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    ElectLeadersResponse,
    EnvelopeRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    MetadataRequest,
    UnregisterBrokerResponse,
)
from ottla.wire.structs import Struct
from tests.broker.running import RunningBroker, WireClient

LISTENER = "PLAINTEXT"


class Forwards(Alone):
    """The role of a broker that knows only the controller of its cluster."""

    def __init__(self, node_id: int, forwarding: Forwarding) -> None:
        super().__init__(node_id)
        self.listener = LISTENER
        for name in ("ask", "forward", "after_all", "caught_up"):
            setattr(self, name, getattr(forwarding, name))
        self.decides = forwarding.deciding                  # type: ignore[method-assign]


class Pair:
    """Three brokers. For the first one, the second or the third is the controller."""

    def __init__(self, path: Path, **settings: object) -> None:
        self.brokers = [
            RunningBroker(path / f"{node}", node_id=node, **settings) for node in (1, 2, 3)
        ]
        self.asked, *self.controllers = self.brokers
        self.decides = {2: True, 3: False}
        self.controller_id, self.caught_up = 2, 0
        self.peers: dict[int, Peers] = {}
        for at, other in enumerate(self.controllers, 2):
            other.call(self.join, other, at)
        self.asked.call(self.join, self.asked, 1)

    def join(self, broker: RunningBroker, node_id: int) -> None:
        context = broker.server.broker
        peers = self.peers[node_id] = Peers(
            node_id, self.image, LISTENER, TcpNetwork(), broker.loop)
        context.role = context.producer_ids.role = Forwards(node_id, Forwarding(
            peers, lambda: self.controller_id, lambda: self.decides.get(node_id, False),
            lambda: True, self.catch_up,
        ))

    def image(self) -> MetadataImage:
        return MetadataImage(brokers={
            node: BrokerImage(node, 1, (Endpoint(LISTENER, "127.0.0.1", broker.port),))
            for node, broker in enumerate(self.brokers, 1)
        })

    async def catch_up(self) -> None:
        self.caught_up += 1

    def stop(self) -> None:
        for node_id, broker in enumerate(self.brokers, 1):
            broker.call(self.peers[node_id].close)
            broker.stop()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    try:
        yield pair
    finally:
        pair.stop()


def creating(name: str, partitions: int = 1) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.Topic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=1000)


def topics_at(broker: RunningBroker) -> set[str]:
    return set(broker.server.metadata_log.image.topics)


@pytest.mark.parametrize("version", [2, 7])
def test_the_controller_creates_the_topic_that_another_broker_was_asked_for(
    pair: Pair, version: int
) -> None:
    with WireClient(pair.asked.address) as client:
        made = client.call(creating("made", 3), version).topics[0]
        again = client.call(creating("made"), version).topics[0]
        bad = client.call(creating("no/name"), version).topics[0]
    assert (made.error_code, again.error_code, bad.error_code) == (
        0, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_TOPIC_EXCEPTION,
    )
    assert "made" in topics_at(pair.controllers[0]) and "made" not in topics_at(pair.asked)
    assert pair.caught_up == 3


def test_a_request_goes_on_to_the_next_controller(pair: Pair) -> None:
    pair.decides = {2: False, 3: False}

    def elected() -> None:
        pair.decides, pair.controller_id = {2: False, 3: True}, 3

    with WireClient(pair.asked.address) as client:
        sent = client.send(creating("late"), 7)
        pair.asked.call(pair.asked.loop.call_later, 0.2, elected)
        assert client.answer(sent).topics[0].error_code == 0
    assert "late" in topics_at(pair.controllers[1])


def test_a_request_waits_for_a_controller_that_ended_and_comes_to_this_broker(pair: Pair) -> None:
    pair.controller_id = -1

    def elected() -> None:
        pair.decides[1] = True

    with WireClient(pair.asked.address) as client:
        sent = client.send(creating("here"), 7)
        pair.asked.call(pair.asked.loop.call_later, 0.1, elected)
        assert client.answer(sent).topics[0].error_code == 0
    assert "here" in topics_at(pair.asked)


def test_loggers_are_the_own_affair_of_each_broker(pair: Pair) -> None:
    made = IncrementalAlterConfigsRequest.Resource
    request = IncrementalAlterConfigsRequest(resources=[made(
        resource_type=8, resource_name="1",
        configs=[made.Config(name="ottla.peers", config_operation=0, value="DEBUG")],
    )])
    with WireClient(pair.asked.address) as client:
        assert client.call(request, 1).responses[0].error_code == 0
    assert pair.caught_up == 0


def test_reads_are_answered_by_the_broker_that_is_asked(pair: Pair) -> None:
    with WireClient(pair.asked.address) as client:
        client.call(creating("there"), 7)
        topics = client.call(MetadataRequest(topics=None), 12).topics
    assert topics == []


def test_topics_that_come_with_their_first_use_are_created_by_the_controller(pair: Pair) -> None:
    topic = MetadataRequest.Topic(name="used")
    coordinator = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    with WireClient(pair.asked.address) as client:
        client.call(MetadataRequest(topics=[topic], allow_auto_topic_creation=True), 12)
        client.call(coordinator, 4)
    assert topics_at(pair.controllers[0]) == {"used", "__consumer_offsets"}
    configs = pair.controllers[0].server.metadata_log.image.config_of("topic", "__consumer_offsets")
    assert configs["cleanup.policy"] == "compact"
    assert topics_at(pair.asked) == set() and pair.caught_up == 2


def test_producer_ids_come_from_the_controllers_blocks(pair: Pair) -> None:
    there = pair.controllers[0]
    epoch = there.server.metadata_log.image.brokers[2].epoch
    with WireClient(there.address) as client:
        first = client.call(AllocateProducerIdsRequest(broker_id=2, broker_epoch=epoch), 0)
    # The requesting broker is registered only in its own metadata, so it pretends to be node 2,
    # which has the same broker epoch at the controller.
    context = pair.asked.server.broker
    assert context.image.brokers[1].epoch == epoch
    context.producer_ids.node_id = 2
    context.image.brokers[2] = context.image.brokers[1]     # type: ignore[index]
    with WireClient(pair.asked.address) as client:
        asked = InitProducerIdRequest(transactional_id=None)
        given = [client.call(asked, 4).producer_id for _ in range(3)]
    start = first.producer_id_start + first.producer_id_len
    assert given == [start, start + 1, start + 2]


def envelope(request: Any, version: int, principal: str = "User:alice") -> EnvelopeRequest:
    head = RequestHeader(request.API_KEY, version, 7, "inner").encode()
    return EnvelopeRequest(
        request_data=head + request.encode(version), request_principal=encode_principal(principal),
        client_host_address=encode_address("10.1.2.3"),
    )


def opened(answer: Any, version: int = 7) -> Any:
    data = answer.response_data
    key = ApiKey.CREATE_TOPICS
    return CreateTopicsResponse.decode(data[response_header_size(key, version, data) :], version)


def test_the_controller_judges_the_client_and_not_the_broker(tmp_path: Path) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    pair = Pair(tmp_path, authorizer_class_name=authorizer, super_users="User:ANONYMOUS;User:bob")
    try:
        with WireClient(pair.controllers[0].address) as client:
            alice = client.call(envelope(creating("x"), 7, "User:alice"), 0)
            bob = client.call(envelope(creating("y"), 7, "User:bob"), 0)
        refused = opened(alice).topics[0].error_code
        assert refused == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert opened(bob).topics[0].error_code == 0
        assert topics_at(pair.controllers[0]) == {"y"}
    finally:
        pair.stop()


def test_who_may_not_act_for_the_cluster_sends_no_envelopes(tmp_path: Path) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    pair = Pair(tmp_path, authorizer_class_name=authorizer, super_users="User:root")
    try:
        with WireClient(pair.controllers[0].address) as client:
            answer = client.call(envelope(creating("x"), 7, "User:root"), 0)
            ids = client.call(AllocateProducerIdsRequest(broker_id=2, broker_epoch=1), 0)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert ids.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert topics_at(pair.controllers[0]) == set()
    finally:
        pair.stop()


def test_an_envelope_with_something_else_inside_is_refused(pair: Pair) -> None:
    good = envelope(creating("x"), 7)
    inner = envelope(good, 0)
    cases = [
        envelope(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4), inner,
        EnvelopeRequest(
            request_data=b"\0\x13\0", request_principal=good.request_principal,
            client_host_address=good.client_host_address,
        ),
        EnvelopeRequest(
            request_data=good.request_data[:-3], request_principal=good.request_principal,
            client_host_address=good.client_host_address,
        ),
        EnvelopeRequest(
            request_data=good.request_data, request_principal=b"\0\0\x7f",
            client_host_address=good.client_host_address,
        ),
        EnvelopeRequest(
            request_data=good.request_data, request_principal=good.request_principal,
            client_host_address=b"\1",
        ),
    ]
    with WireClient(pair.controllers[0].address) as client:
        for case in cases:
            assert client.call(case, 0).error_code == ErrorCode.INVALID_REQUEST
    with WireClient(pair.controllers[1].address) as client:
        assert client.call(good, 0).error_code == ErrorCode.NOT_CONTROLLER
    assert topics_at(pair.controllers[0]) == set()


def test_blocks_of_producer_ids_need_the_epoch_of_the_registration(pair: Pair) -> None:
    there = pair.controllers[0]
    epoch = there.server.metadata_log.image.brokers[2].epoch
    with WireClient(there.address) as client:
        asked = [
            client.call(AllocateProducerIdsRequest(broker_id=node, broker_epoch=at), 0)
            for node, at in ((2, epoch), (2, epoch), (2, epoch + 1), (9, epoch))
        ]
    first, second, stale, unknown = asked
    assert (first.error_code, first.producer_id_len) == (0, 1000)
    assert second.producer_id_start == first.producer_id_start + 1000
    assert stale.error_code == unknown.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_broker_alone_neither_serves_nor_names_what_is_between_brokers(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as broker, WireClient(broker.address) as client:
        keys = {api.api_key for api in client.call(ApiVersionsRequest(), 0).api_keys}
        assert not keys & {ApiKey.ENVELOPE, ApiKey.ALLOCATE_PRODUCER_IDS}
        with pytest.raises(Unreachable):
            client.call(envelope(creating("x"), 7), 0)


def found(struct: Struct) -> bool:
    return asyncio.run(names_code(struct, 41, Slices()))


def test_a_code_is_found_wherever_it_stands() -> None:
    made = CreateTopicsResponse
    assert not found(made(topics=[made.Topic(name="a")]))
    assert found(made(topics=[made.Topic(name="a"), made.Topic(error_code=41)]))
    deep = ElectLeadersResponse.ReplicaElectionResult
    assert found(ElectLeadersResponse(replica_election_results=[
        deep(topic="a", partition_result=[]),
        deep(topic="t", partition_result=[deep.PartitionResult(error_code=41)]),
    ]))
    assert found(UnregisterBrokerResponse(error_code=41))


def test_a_long_answer_of_a_forwarded_request_holds_the_loop_for_a_slice_at_a_time() -> None:
    """An answer about 10,000 topics has 400,000 structs, and once took the controller a second."""
    made = CreateTopicsResponse.Topic
    configs = [made.Config(name=f"setting-{number}", value="v") for number in range(40)]
    response = CreateTopicsResponse(
        topics=[made(name=f"t{number}", configs=configs) for number in range(2000)]
    )

    async def turns() -> tuple[list[int], bytes]:
        turns, ended = [0, 0], False

        async def others(place: int) -> None:
            while not ended:
                turns[place] += 1
                await Slices().pause()

        slices = Slices(0)                      # as if each step used up its slice
        beside = asyncio.ensure_future(others(0))
        assert not await names_code(response, 41, slices)
        ended = True
        await beside
        ended = False
        beside = asyncio.ensure_future(others(1))
        data = await encoded(response, 7, slices)
        ended = True
        await beside
        return turns, data

    (looking, encoding), data = asyncio.run(turns())
    assert data == response.encode(7)
    assert 2000 <= looking < 4000, "settings have no codes: nobody looks at them"
    assert encoding > 50


@pytest.mark.parametrize("principal", ["User:alice", "User:CN=a,O=b:c", "Service:é"])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_principals_and_addresses_come_back_as_they_were(principal: str, host: str) -> None:
    assert decode_principal(encode_principal(principal)) == principal
    assert decode_address(encode_address(host)) == host


def test_a_request_that_fails_as_it_is_given_up_is_no_error_of_the_loop() -> None:
    """Seed 121727 of the simulation: the broker to which the request was sent left the cluster in
    the turn of the loop in which the request was given up."""
    errors = []

    async def given_up() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context))
        asked: asyncio.Future[Any] = loop.create_future()

        async def ask() -> None:
            asked.set_result(asyncio.current_task())
            try:
                await loop.create_future()
            except asyncio.CancelledError:
                raise PeerUnavailable("it has left", sent=False) from None

        forwarding = Forwarding.__new__(Forwarding)
        forwarding.loop, forwarding.controller_id = loop, lambda: 2
        waiting = asyncio.create_task(forwarding.while_controller(2, ask()))
        asking = await asked
        waiting.cancel()
        await asyncio.wait([waiting, asking])

    asyncio.run(given_up())
    gc.collect()
    assert errors == []
