"""Transactions over the wire in every version: committed transactions are visible as a whole,
others never."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.groups.records import Producer
from ottla.wire.batch import BatchView
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    OffsetFetchRequest,
    WriteTxnMarkersRequest,
)
from tests.broker.produce_fetch import fetch, values
from tests.broker.running import RunningBroker, WireClient
from tests.broker.transactions import (
    OK,
    READ_COMMITTED,
    add,
    add_offsets,
    commit_offset,
    end,
    end_offset,
    find,
    init,
    write,
)
from tests.log.batches import split


@pytest.fixture
def key(client: WireClient, request: pytest.FixtureRequest) -> str:
    """A transactional id named after the test, whose coordinator is ready."""
    find(client, request.node.name)
    find(client, request.node.name, key_type=0)
    return str(request.node.name)


def committed(client: WireClient, topic: str, partition: int = 0) -> list[bytes | None]:
    """The values that a read_committed fetch returns, including markers and aborted records."""
    answer = fetch(
        client, topic, partition=partition, isolation_level=READ_COMMITTED, version=11
    )
    return values(answer)


def offset_of(client: WireClient, group: str, topic: str, stable: bool = False) -> Any:
    made = OffsetFetchRequest.Group
    wanted = made(group_id=group, topics=[made.Topic(name=topic, partition_indexes=[0])])
    answer = client.call(OffsetFetchRequest(groups=[wanted], require_stable=stable), 8)
    found = answer.groups[0].topics[0].partitions[0]
    return ErrorCode(found.error_code) if found.error_code else found.committed_offset


def topic_id(client: WireClient, topic: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)])
    found: bytes = client.call(request, 12).topics[0].topic_id
    return found


@pytest.mark.parametrize("step", range(4))
def test_a_transaction_of_clients_that_name_their_partitions(
    client: WireClient, topic: str, key: str, step: int
) -> None:
    producer = init(client, key, version=step + 1)
    assert add(client, key, producer, topic, 0, 1, version=step) == [OK, OK]
    produce_version = 3 + 2 * step
    assert write(client, key, producer, topic, b"a", version=produce_version) is OK
    assert write(client, key, producer, topic, b"b", partition=1, version=produce_version) is OK
    assert add_offsets(client, key, producer, "g" + key, step) is OK
    assert commit_offset(client, key, producer, "g" + key, topic, 5, step) is OK
    assert committed(client, topic) == []
    assert end_offset(client, topic, READ_COMMITTED) == 0
    assert end_offset(client, topic, 0) == 1
    assert offset_of(client, "g" + key, topic) == -1
    assert offset_of(client, "g" + key, topic, stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert end(client, key, producer, True, version=step) == producer
    assert committed(client, topic)[0] == b"a"
    assert committed(client, topic, 1)[0] == b"b"
    assert end_offset(client, topic, READ_COMMITTED) == 2
    assert offset_of(client, "g" + key, topic, stable=True) == 5
    # The sequence numbers continue within the same epoch.
    assert add(client, key, producer, topic, 0, version=step) == [OK]
    assert write(client, key, producer, topic, b"c", sequence=1) is OK
    assert end(client, key, producer, False, version=step) == producer
    assert end_offset(client, topic, READ_COMMITTED) == 4


@pytest.mark.parametrize("offsets_version", [5, 6])
@pytest.mark.parametrize("produce_version", [12, 13])
def test_a_transaction_of_clients_that_leave_the_partitions_to_the_broker(
    client: WireClient, topic: str, key: str, produce_version: int, offsets_version: int
) -> None:
    group = "g" + key
    known_id = topic_id(client, topic)
    named: Any = known_id if produce_version == 13 else topic
    of_offsets: Any = known_id if offsets_version == 6 else topic
    producer = init(client, key)
    for round_number in range(3):
        assert write(client, key, producer, named, b"a", version=produce_version) is OK
        assert write(client, key, producer, named, b"b", sequence=1, version=produce_version) is OK
        assert write(client, key, producer, named, b"c", partition=1, version=produce_version) is OK
        code = commit_offset(
            client, key, producer, group, of_offsets, round_number, offsets_version
        )
        assert code is OK
        assert len(committed(client, topic)) == 3 * round_number
        after = end(client, key, producer, True, version=5)
        assert after == Producer(producer.producer_id, producer.epoch + 1)
        # A delayed batch of the previous transaction arrives too late.
        late = write(client, key, producer, named, b"!", sequence=2, version=produce_version)
        assert late is ErrorCode.INVALID_PRODUCER_EPOCH
        assert offset_of(client, group, topic, stable=True) == round_number
        producer = after
    assert end_offset(client, topic, READ_COMMITTED) == 9


def test_aborted_records_are_told_to_their_readers(
    client: WireClient, topic: str, key: str
) -> None:
    producer = init(client, key)
    assert write(client, key, producer, topic, b"a", version=12) is OK
    after = end(client, key, producer, False, version=5)
    assert write(client, key, after, topic, b"b", version=12) is OK
    end(client, key, after, True, version=5)
    answer = fetch(client, topic, isolation_level=READ_COMMITTED, version=11)
    assert [(a.producer_id, a.first_offset) for a in answer.aborted_transactions] == [
        (producer.producer_id, 0)
    ]
    assert values(answer)[2] == b"b"


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, ErrorCode.INVALID_TXN_STATE), (10, ErrorCode.INVALID_TXN_STATE),
     (11, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_a_batch_of_a_partition_that_was_not_added_is_refused(
    client: WireClient, topic: str, key: str, version: int, code: ErrorCode
) -> None:
    producer = init(client, key)
    assert write(client, key, producer, topic, b"a", version=version) is code
    assert add(client, key, producer, topic, 1) == [OK]
    assert write(client, key, producer, topic, b"a", version=version) is code
    assert end_offset(client, topic, 0) == 0


def test_a_zombie_can_do_nothing(client: WireClient, topic: str, key: str) -> None:
    zombie = init(client, key)
    assert add(client, key, zombie, topic, 0) == [OK]
    assert write(client, key, zombie, topic, b"a") is OK
    assert init(client, key) is ErrorCode.CONCURRENT_TRANSACTIONS
    fresh = init(client, key)
    assert fresh.producer_id == zombie.producer_id and fresh.epoch > zombie.epoch
    assert end_offset(client, topic, READ_COMMITTED) == 2
    for version in (11, 12):
        code = write(client, key, zombie, topic, b"b", sequence=1, version=version)
        assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert add(client, key, zombie, topic, 0, version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert add(client, key, zombie, topic, 0, version=2) == [ErrorCode.PRODUCER_FENCED]
    assert end(client, key, zombie, True, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(client, key, zombie, True, version=5) is ErrorCode.PRODUCER_FENCED
    assert init(client, key, 3, zombie) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert init(client, key, 4, zombie) is ErrorCode.PRODUCER_FENCED
    for version, expected in ((3, ErrorCode.INVALID_PRODUCER_EPOCH),
                              (5, ErrorCode.INVALID_PRODUCER_EPOCH)):
        assert commit_offset(client, key, zombie, "g", topic, 1, version) is expected


def test_a_foreign_producer_id_has_no_part_in_a_transaction(
    client: WireClient, topic: str, key: str
) -> None:
    producer = init(client, key)
    foreign = Producer(producer.producer_id + 1_000_000, 0)
    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert add(client, key, foreign, topic, 0) == [code]
    assert end(client, key, foreign, True) is code
    for version in (11, 12):
        assert write(client, key, foreign, topic, b"a", version=version) is code
        assert write(client, "nobody", producer, topic, b"a", version=version) is code
    assert write(client, None, producer, topic, b"a", version=12) is (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
    assert end_offset(client, topic, 0) == 0


def test_partitions_are_added_all_or_none(client: WireClient, topic: str, key: str) -> None:
    producer = init(client, key)
    assert add(client, key, producer, topic, 0, 7) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]
    assert end(client, key, producer, True) is ErrorCode.INVALID_TXN_STATE


def test_offsets_of_what_does_not_exist_are_refused_one_by_one(
    client: WireClient, topic: str, key: str
) -> None:
    producer = init(client, key)
    code = commit_offset(client, key, producer, "g", "no-such-topic", 1, 5)
    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit_offset(client, key, producer, "g", bytes(15) + b"x", 1, 6) is (
        ErrorCode.UNKNOWN_TOPIC_ID
    )
    for version, refusal in (
        (3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)
    ):
        assert commit_offset(client, key, producer, "g", topic, 1, version) is refusal
    for version in (3, 5):
        code = commit_offset(client, key, producer, "", topic, 1, version)
        assert code is ErrorCode.INVALID_GROUP_ID


def test_an_offset_of_a_topic_made_again_meanwhile_is_refused(
    client: WireClient, broker: RunningBroker, topic: str, key: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = init(client, key)
    transactions = broker.server.broker.coordinators.transactions
    add_batches = transactions.add_batches

    def make_again() -> None:
        with WireClient(broker.address) as admin:
            admin.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5)
            made = CreateTopicsRequest.Topic(name=topic, num_partitions=1, replication_factor=1)
            admin.call(CreateTopicsRequest(topics=[made], timeout_ms=10_000), 5)

    async def add_meanwhile(*args: Any) -> Any:
        await asyncio.to_thread(make_again)
        return await add_batches(*args)

    monkeypatch.setattr(transactions, "add_batches", add_meanwhile)
    code = commit_offset(client, key, producer, "g-again", topic, 7, 5)
    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    monkeypatch.undo()
    assert commit_offset(client, key, producer, "g-again", topic, 1, 5) is OK
    assert isinstance(end(client, key, producer, commit=True), Producer)
    assert offset_of(client, "g-again", topic, stable=True) == 1


def test_brokers_ask_for_many_transactions_at_once(
    client: WireClient, topic: str, key: str
) -> None:
    producer = init(client, key)
    assert add(client, key, producer, topic, 0, version=4) == [OK]
    made = AddPartitionsToTxnRequest
    request = made(
        transactions=[
            made.Transaction(
                transactional_id=name,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=True,
                topics=[made.Topic(name=topic, partitions=[0, 1])],
            )
            for name in (key, "nobody")
        ]
    )
    answer = client.call(request, 5)
    assert [
        [p.partition_error_code for t in each.topic_results for p in t.results_by_partition]
        for each in answer.results_by_transaction
    ] == [
        [OK, ErrorCode.TRANSACTION_ABORTABLE],
        [ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING],
    ]
    assert client.call(made(transactions=[]), 5).results_by_transaction == []


@pytest.mark.parametrize("version", range(5))
def test_bad_requests_get_their_codes_and_change_nothing(
    client: WireClient, key: str, version: int
) -> None:
    nobody = Producer(1, 0)
    assert init(client, key, version, timeout_ms=0) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert init(client, "", version) is ErrorCode.INVALID_REQUEST
    assert end(client, "", nobody, True, version) is ErrorCode.INVALID_REQUEST
    assert end(client, key, nobody, True, version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert add_offsets(client, key, nobody, "g", version) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_transactions_are_listed_and_described(client: WireClient, topic: str, key: str) -> None:
    producer = init(client, key)
    write(client, key, producer, topic, b"a", version=12)
    made = DescribeTransactionsRequest(transactional_ids=[key, "nobody", ""])
    found, missing, nameless = client.call(made, 0).transaction_states
    assert (found.transaction_state, found.producer_id, found.producer_epoch) == (
        "Ongoing", *producer
    )
    assert [(t.topic, t.partitions) for t in found.topics] == [(topic, [0])]
    assert found.transaction_timeout_ms == 60_000
    assert missing.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert nameless.error_code == ErrorCode.INVALID_REQUEST

    def listed(version: int = 2, **filters: Any) -> list[str]:
        request = ListTransactionsRequest(
            **{"state_filters": [], "producer_id_filters": [], **filters}
        )
        answer = client.call(request, version)
        return [t.transactional_id for t in answer.transaction_states]

    assert key in listed(version=0)
    assert listed(producer_id_filters=[producer.producer_id]) == [key]
    assert key in listed(state_filters=["Ongoing"])
    assert key not in listed(state_filters=["CompleteCommit"])
    assert listed(transactional_id_pattern=key[:-1] + ".") == [key]
    assert key not in listed(duration_filter=3_600_000)
    unknown = ListTransactionsRequest(state_filters=["Odd"], producer_id_filters=[])
    assert client.call(unknown, 0).unknown_state_filters == ["Odd"]
    bad = ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], transactional_id_pattern="("
    )
    assert client.call(bad, 2).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_hanging_transaction_is_found_and_ended_by_hand(
    client: WireClient, topic: str, key: str
) -> None:
    producer = init(client, key)
    write(client, key, producer, topic, b"a", version=12)
    asked = DescribeProducersRequest(
        topics=[DescribeProducersRequest.Topic(name=topic, partition_indexes=[0, 9])]
    )
    known, missing = client.call(asked, 0).topics[0].partitions
    active = known.active_producers[0]
    assert (active.producer_id, active.producer_epoch) == producer
    assert (active.last_sequence, active.current_txn_start_offset) == (0, 0)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    made = WriteTxnMarkersRequest.Marker
    for version in (1, 2):
        request = WriteTxnMarkersRequest(
            markers=[
                made(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    coordinator_epoch=0,
                    topics=[made.Topic(name=topic, partition_indexes=[0, 9])],
                )
            ]
        )
        partitions = client.call(request, version).markers[0].topics[0].partitions
        assert [p.error_code for p in partitions] == [
            OK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
    assert end_offset(client, topic, READ_COMMITTED) == 3
    active = client.call(asked, 0).topics[0].partitions[0].active_producers[0]
    assert active.current_txn_start_offset == -1


@pytest.mark.parametrize("version", [1, 2], ids=["epoch of its own", "epoch of the next one"])
def test_a_marker_that_arrives_late_does_not_end_the_next_transaction(
    client: WireClient, topic: str, key: str, version: int
) -> None:
    """The coordinator got no answer to the marker, and sent it again."""
    producer = init(client, key)
    assert write(client, key, producer, topic, b"a", version=12) is OK
    producer = end(client, key, producer, True, version=5)
    made = WriteTxnMarkersRequest.Marker
    late = WriteTxnMarkersRequest(markers=[made(
        producer_id=producer.producer_id, producer_epoch=producer.epoch, coordinator_epoch=0,
        transaction_result=True, transaction_version=version,
        topics=[made.Topic(name=topic, partition_indexes=[0])],
    )])
    again = client.call(late, 2).markers[0].topics[0].partitions[0].error_code
    assert again == OK, "the answer to one that was lost"
    assert write(client, key, producer, topic, b"b", version=12) is OK
    stable = end_offset(client, topic, READ_COMMITTED)
    told = client.call(late, 2).markers[0].topics[0].partitions[0].error_code
    if version < 2:
        assert told == OK, "the first version's epoch does not tell them apart"
        return
    assert told == ErrorCode.INVALID_PRODUCER_EPOCH
    assert end_offset(client, topic, READ_COMMITTED) == stable, "it is still open"


def test_the_second_version_of_transactions_is_a_feature(client: WireClient) -> None:
    answer = client.call(
        ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3
    )
    levels = {f.name: f.max_version_level for f in answer.finalized_features}
    assert levels["transaction.version"] == 2
    assert answer.finalized_features_epoch >= 0


def test_transactions_outlive_their_broker(data: Path) -> None:
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        made = CreateTopicsRequest.Topic(name="t", num_partitions=2, replication_factor=1)
        client.call(CreateTopicsRequest(topics=[made], timeout_ms=10_000), 5)
        for name in ("open", "ended"):
            find(client, name)
        find(client, "g", key_type=0)
        ended = init(client, "ended")
        write(client, "ended", ended, "t", b"a", version=12)
        commit_offset(client, "ended", ended, "g", "t", 7, 5)
        ended = end(client, "ended", ended, True, version=5)
        still = init(client, "open")
        write(client, "open", still, "t", b"b", version=12, partition=1)
        commit_offset(client, "open", still, "h", "t", 8, 5)
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        for name in ("open", "ended"):
            find(client, name)
        assert offset_of(client, "g", "t", stable=True) == 7
        assert offset_of(client, "h", "t", stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert end(client, "ended", Producer(ended.producer_id, ended.epoch - 1), True, 5) == ended
        assert write(client, "ended", ended, "t", b"c", version=12) is OK
        assert end_offset(client, "t", READ_COMMITTED, partition=1) == 0
        end(client, "open", still, True, version=5)
        assert end_offset(client, "t", READ_COMMITTED, partition=1) == 2
        assert offset_of(client, "h", "t", stable=True) == 8
        described = client.call(DescribeTransactionsRequest(transactional_ids=["ended"]), 0)
        assert described.transaction_states[0].transaction_state == "Ongoing"


def test_a_transaction_that_times_out_is_aborted(data: Path) -> None:
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        made = CreateTopicsRequest.Topic(name="t", num_partitions=1, replication_factor=1)
        client.call(CreateTopicsRequest(topics=[made], timeout_ms=10_000), 5)
        find(client, "x")
        producer = init(client, "x", timeout_ms=1000)       # enough for a write on a busy machine
        write(client, "x", producer, "t", b"a", version=12)
        answer = fetch(
            client, "t", isolation_level=READ_COMMITTED, max_wait_ms=15_000, version=11
        )
        assert [a.producer_id for a in answer.aborted_transactions] == [producer.producer_id]
        for version in (5, 4):
            assert end(client, "x", producer, True, version=version) is ErrorCode.PRODUCER_FENCED


def test_only_aborted_transactions_within_what_is_returned_are_listed(
    client: WireClient, topic: str, key: str
) -> None:
    """Listing all of them up to the last stable offset once made reading quadratic."""
    producer = init(client, key)
    for number in range(40):
        add(client, key, producer, topic, 0)
        assert write(client, key, producer, topic, bytes(500), sequence=number) == OK
        assert end(client, key, producer, commit=False) == producer
    offset = listed = 0
    while offset < 80:
        answer = fetch(client, topic, offset, isolation_level=1, partition_max_bytes=1500)
        got = [BatchView(each) for each in split(answer.records)]
        found = [each.first_offset for each in answer.aborted_transactions]
        whole = [each.base_offset for each in got if each.base_offset % 2 == 0]
        assert set(whole) <= {*found, *range(offset)}
        # The list's upper bound comes from the offset index, whose entries are 4 KB apart.
        assert all(offset - 1 <= first < got[-1].next_offset + 20 for first in found)
        listed += len(found)
        offset = got[-1].next_offset
    assert listed < 400
    answer = fetch(client, topic, 80, isolation_level=1)
    assert answer.aborted_transactions == []
