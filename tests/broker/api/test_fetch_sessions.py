"""Incremental fetch sessions (KIP-227): what is returned, remembered and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import FetchRequest
from tests.broker.fetch_sessions import session_fetch, told
from tests.broker.produce_fetch import batch, fetch_request, produce
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create


def test_an_incremental_fetch_tells_only_what_changed(client: WireClient, topic: str) -> None:
    first = session_fetch(client, topic, 0, 0, {0: 0, 1: 0})
    assert first.session_id > 0
    assert told(first) == {0: [], 1: []}
    assert told(session_fetch(client, topic, first.session_id, 1, {})) == {}
    produce(client, topic, batch(b"v"), partition=1)
    assert told(session_fetch(client, topic, first.session_id, 2, {})) == {1: [b"v"]}
    # The client has advanced in partition 1; nothing is left to return.
    assert told(session_fetch(client, topic, first.session_id, 3, {1: 1})) == {}


def test_what_a_client_did_not_take_is_told_again(client: WireClient, topic: str) -> None:
    first = session_fetch(client, topic, 0, 0, {0: 0})
    produce(client, topic, batch(b"v"))
    for epoch in (1, 2, 3):
        assert told(session_fetch(client, topic, first.session_id, epoch, {})) == {0: [b"v"]}


def test_a_forgotten_partition_is_not_told_any_more(client: WireClient, topic: str) -> None:
    first = session_fetch(client, topic, 0, 0, {0: 0, 1: 0})
    forgotten = [FetchRequest.ForgottenTopicsData(topic=topic, partitions=[1])]
    session_fetch(client, topic, first.session_id, 1, {}, forgotten_topics_data=forgotten)
    produce(client, topic, batch(b"v"), partition=1)
    assert told(session_fetch(client, topic, first.session_id, 2, {})) == {}


def test_a_waiting_session_is_woken(client: WireClient, topic: str, broker: RunningBroker) -> None:
    first = session_fetch(client, topic, 0, 0, {0: 0, 1: 0})
    request = fetch_request(
        topic, session_id=first.session_id, session_epoch=1, max_wait_ms=20_000
    )
    request.topics = []
    sent = client.send(request, 11)
    with WireClient(broker.address) as producer:
        produce(producer, topic, batch(b"v"), partition=1)
    assert told(client.answer(sent)) == {1: [b"v"]}


def test_partitions_take_turns_where_not_all_fit(client: WireClient, topic: str) -> None:
    for partition in (0, 1):
        produce(client, topic, batch(b"x" * 5_000), partition=partition)
    first = session_fetch(client, topic, 0, 0, {0: 0, 1: 0}, max_bytes=6_000)
    served = [sorted(p for p, v in told(first).items() if v)]
    for epoch in (1, 2):
        answer = session_fetch(client, topic, first.session_id, epoch, {}, max_bytes=6_000)
        served.append(sorted(p for p, v in told(answer).items() if v))
    assert served == [[0], [1], [0]]


def test_an_unknown_session_and_a_wrong_epoch_are_refused(client: WireClient, topic: str) -> None:
    unknown = session_fetch(client, topic, 12345, 7, {})
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    first = session_fetch(client, topic, 0, 0, {0: 0})
    wrong = session_fetch(client, topic, first.session_id, 9, {})
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_final_epoch_ends_the_session(client: WireClient, topic: str) -> None:
    first = session_fetch(client, topic, 0, 0, {0: 0})
    last = session_fetch(client, topic, first.session_id, -1, {0: 0})
    assert (last.session_id, last.error_code) == (0, 0)
    gone = session_fetch(client, topic, first.session_id, 1, {})
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_error_is_told_as_long_as_it_lasts(client: WireClient, topic: str) -> None:
    first = session_fetch(client, topic, 0, 0, {0: 0, 9: 0})
    for epoch in (1, 2):
        response = session_fetch(client, topic, first.session_id, epoch, {})
        answers = [a for t in response.responses for a in t.partitions]
        assert [(a.partition_index, a.error_code) for a in answers] == [
            (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        ]


@pytest.mark.parametrize("slots", [0, 1])
def test_a_full_cache_serves_without_a_session(data: Path, slots: int) -> None:
    settings = {"max.incremental.fetch.session.cache.slots": slots}
    with RunningBroker(data, **settings) as broker, WireClient(broker.address) as client:
        produce_to = "t"
        request = fetch_request(produce_to, session_id=0, session_epoch=0)
        ids = [client.call(request, 11).session_id for _ in range(3)]
    assert [session_id > 0 for session_id in ids] == [slots == 1, False, False]


def test_a_full_reply_leaves_the_other_partitions_for_the_next(
    broker: RunningBroker, client: WireClient
) -> None:
    """A consumer that lags in many partitions does not get all of them in each small reply."""
    count = 60
    topic = create(client, "lagging", partitions=count)
    first = session_fetch(client, topic, 0, 0, dict.fromkeys(range(count), 0))
    for partition in range(count):
        produce(client, topic, batch(b"x" * 1000), partition=partition)
    seen: dict[int, int] = {}
    for epoch in range(1, count + 1):
        response = session_fetch(
            client, topic, first.session_id, epoch, {p: 1 for p in seen if seen[p] == epoch - 1},
            max_bytes=1500)
        answers = [answer for each in response.responses for answer in each.partitions]
        assert len(answers) <= 34
        served = [a.partition_index for a in answers if a.records]
        assert len(served) == 1 and served[0] not in seen
        seen[served[0]] = epoch
    assert len(seen) == count


def test_a_session_remembers_little_that_is_not_here(client: WireClient, topic: str) -> None:
    absent = dict.fromkeys(range(2, 1003), 0)
    without = session_fetch(client, topic, 0, 0, {0: 0, **absent})
    assert (without.error_code, without.session_id) == (0, 0)
    assert len(without.responses[0].partitions) == 1002
    few = session_fetch(client, topic, 0, 0, dict.fromkeys(range(1000), 0))
    assert few.session_id > 0
    more = session_fetch(client, topic, few.session_id, 1, dict.fromkeys(range(1000, 1010), 0))
    assert more.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    gone = session_fetch(client, topic, few.session_id, 2, {})
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_in_a_replicas_name_is_refused_each_time(client: WireClient, topic: str) -> None:
    """Without an authorizer any client may fetch in the name of a broker, here of broker 5. It has
    no replica of the topic, so each fetch is refused."""
    refused = {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    session_id = 0
    for epoch in (0, 1, 2):
        request = fetch_request(topic, session_id=session_id, session_epoch=epoch)
        request.replica_id = 5
        answer = client.call(request, 11)
        assert {
            each.partition_index: each.error_code
            for one in answer.responses for each in one.partitions
        } == refused
        session_id = answer.session_id
    assert session_id > 0
