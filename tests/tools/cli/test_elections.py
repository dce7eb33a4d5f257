"""Commands wait while a leader is elected; they take no offset from a response with an error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer

from ottla.client.cluster import ClusterClient
from ottla.client.connection import Connection
from ottla.client.errors import NotConnected, Refused, Unreachable
from ottla.testing import Broker
from ottla.tools.admin import groups, partitions, transactions
from ottla.tools.cli.cluster_check import active_controller
from ottla.tools.stream import reader, writer
from ottla.tools.zookeeper.local import free_port
from tests.tools.cli.ottla_command import Ottla

ELECTION = pytest.mark.parametrize(
    "code", ["LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER", "OFFSET_NOT_AVAILABLE"]
)


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def disturbed(running: Broker) -> Iterator[Broker]:
    """A broker whose answers the test replaces."""
    yield running
    running.heal()


@pytest.fixture
def there(disturbed: Broker) -> Ottla:
    return Ottla(disturbed.bootstrap_servers)


@ELECTION
@pytest.mark.parametrize(
    "command", ["consume {1} -e", "consume {1} -e -o -2", "kcat -b {0} -C -e -q -t {1}"]
)
def test_a_reader_of_all_records_reads_all(
    there: Ottla, disturbed: Broker, code: str, command: str
) -> None:
    topic = disturbed.create_topic(f"all-{len(command)}-{code}")
    there.ok(f"produce {topic}", b"1\n2\n")
    fault = disturbed.fail("ListOffsets", code)
    assert there.ok(command.format(there.address, topic)).split() == ["1", "2"]
    assert fault.hits == 1


@ELECTION
def test_a_reset_group_is_set_to_the_end(there: Ottla, disturbed: Broker, code: str) -> None:
    topic = disturbed.create_topic(f"reset-{code}")
    there.ok(f"produce {topic}", b"1\n2\n")
    there.ok(f"consume {topic} -G team-{code} -n 1 -o beginning")
    fault = disturbed.fail("ListOffsets", code)
    there.ok(f"group reset team-{code} --to end --yes")
    assert fault.hits == 1
    assert '"offset": 2' in there.ok(f"group describe team-{code} -o json")


def test_a_mirror_copies_all_into_a_topic_that_the_target_hardly_knows(
    ottla: Ottla, there: Ottla, disturbed: Broker
) -> None:
    ottla.ok("topic create copied")
    mirror = ["mirror", "--from", ottla.address, "--to", there.address, "--topics", "copied"]
    fault = disturbed.fail("ListOffsets", "UNKNOWN_TOPIC_OR_PARTITION")
    ottla.ok([*mirror, "--once"])
    assert fault.hits == 1
    ottla.ok("produce copied", b"1\n2\n")
    ottla.ok([*mirror, "--once"])
    assert there.ok("consume copied -e").split() == ["1", "2"]


@ELECTION
def test_a_mirror_that_copies_once_waits_for_the_leaders_of_the_source(
    ottla: Ottla, there: Ottla, disturbed: Broker, code: str
) -> None:
    topic = disturbed.create_topic(f"once-{code}")
    there.ok(f"produce {topic}", b"1\n2\n")
    fault = disturbed.fail("ListOffsets", code)
    ottla.ok(
        ["mirror", "--from", there.address, "--to", ottla.address, "--topics", topic, "--once"]
    )
    assert fault.hits == 1
    assert ottla.ok(f"consume {topic} -e").split() == ["1", "2"]


def test_a_measurement_creates_its_topic_and_waits_for_it(there: Ottla, disturbed: Broker) -> None:
    fault = disturbed.fail("ListOffsets", "UNKNOWN_TOPIC_OR_PARTITION")
    line = "--topic measured --num-records 2 --producer-acks all --record-size 10"
    server = there.address
    assert "Avg latency" in there.ok(f"kafka-e2e-latency --bootstrap-server {server} {line}")
    assert fault.hits == 1


@pytest.mark.parametrize("command", ["topic offsets", "topic describe"])
def test_a_partition_that_does_not_answer_is_shown_without_offsets(
    there: Ottla, disturbed: Broker, command: str
) -> None:
    topic = disturbed.create_topic(f"silent-{len(command)}")
    disturbed.fail("ListOffsets", "LEADER_NOT_AVAILABLE", count=None)
    [shown] = json.loads(there.ok(f"{command} {topic} -o json"))
    assert (shown["first"], shown["next"]) == (None, None)


@ELECTION
@pytest.mark.parametrize(
    "command", [
        "kcat -b {0} -Q -t {1}:0:-1", "kafka-get-offsets --bootstrap-server {0} --topic {1}",
    ]
)  # fmt: skip
def test_offsets_are_not_made_up_or_left_out(
    there: Ottla, disturbed: Broker, code: str, command: str
) -> None:
    topic = disturbed.create_topic(f"asked-{len(command)}-{code}")
    there.ok(f"produce {topic}", b"1\n2\n")
    fault = disturbed.fail("ListOffsets", code)
    assert there.ok(command.format(there.address, topic)).split()[-1].endswith("2")
    assert fault.hits == 1


def test_a_record_is_sent_once_where_the_leader_moves_after_it_was_written(
    there: Ottla, disturbed: Broker
) -> None:
    topic = disturbed.create_topic("moved")
    moved = disturbed.fail("Produce", "NOT_LEADER_OR_FOLLOWER", after=True)
    lost = disturbed.drop("Produce", after=True)
    odd = b'{"key": null, "value": null, "timestamp": 0}\n' * 2
    there.ok(f"produce {topic} -i jsonl", odd)
    assert (moved.hits, lost.hits) == (1, 1)
    assert json.loads(there.ok(f"topic offsets {topic} -o json"))[0]["next"] == 2


def test_a_record_of_confluent_kafka_is_sent_once_where_its_answer_is_lost(
    there: Ottla, disturbed: Broker
) -> None:
    topic = disturbed.create_topic("lost")
    lost = disturbed.drop("Produce", after=True)
    there.ok(f"produce {topic} ", b"1\n")
    assert lost.hits == 1
    assert there.ok(f"consume {topic} -e") == "1\n"


@pytest.mark.parametrize(
    "command", [
        "consume {1} -G team-{1} -n 1 -o beginning",
        "kcat -b {0} -G team-{1} -c 1 -o beginning {1}",
    ]
)  # fmt: skip
def test_offsets_that_cannot_be_committed_are_a_failure(
    there: Ottla, disturbed: Broker, command: str
) -> None:
    """The next reader would continue at the old offsets, and read the same records again."""
    topic = disturbed.create_topic(f"stuck-{len(command)}")
    there.ok(f"produce {topic}", b"1\n2\n")
    disturbed.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", count=None)
    done = there(command.format(there.address, topic))
    assert done.status == 1 and "Group authorization failed" in done.err


@pytest.mark.parametrize(("command", "said"), [
    ("consume {1} -G others",
     "User:ANONYMOUS may not read group others (GROUP_AUTHORIZATION_FAILED); an administrator can "
     "allow it: ottla acl add User:ANONYMOUS read group/others\n"),
    ("consume {1} -G others -o beginning",
     "group 'others': group authorization failed; an administrator can allow it: ottla acl add "
     "User:ANONYMOUS read group/others\n"),
    ("consume {1} -G others -p 0", "group 'others': group authorization failed"),
    ("kcat -b {0} -G others {1}", "group others: GROUP_AUTHORIZATION_FAILED"),
    ("group reset others --to end", "group 'others': group authorization failed"),
])
def test_a_group_that_is_refused_is_named(
    there: Ottla, disturbed: Broker, command: str, said: str
) -> None:
    topic = disturbed.create_topic(f"secret-{len(command)}")
    there.ok(f"produce {topic}", b"1\n")
    disturbed.fail("FindCoordinator", "GROUP_AUTHORIZATION_FAILED", count=None)
    done = there(command.format(there.address, topic))
    assert done.status == 1 and said in done.err and "response error" not in done.err, done


@pytest.mark.parametrize("code", ["LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER"])
def test_records_are_deleted_once_there_is_a_leader(
    there: Ottla, disturbed: Broker, code: str
) -> None:
    topic = disturbed.create_topic(f"deleted-{code}")
    there.ok(f"produce {topic}", b"1\n2\n")
    fault = disturbed.fail("DeleteRecords", code)
    there.ok(f"topic trim {topic} --before 1 --yes")
    assert fault.hits == 1
    assert there.ok(f"consume {topic} -e") == "2\n"


def test_transactions_are_listed_and_described_once_their_coordinator_has_loaded_them(
    there: Ottla, disturbed: Broker
) -> None:
    topic = disturbed.create_topic("in-transactions")
    there.ok(
        f"kafka-producer-perf-test --bootstrap-server {there.address} --topic {topic} "
        "--num-records 1 --record-size 10 --throughput -1 --transactional-id loaded"
    )
    listing = disturbed.fail("ListTransactions", "COORDINATOR_LOAD_IN_PROGRESS")
    assert "loaded" in there.ok("transaction list")
    describing = disturbed.fail("DescribeTransactions", "NOT_COORDINATOR")
    assert "CompleteCommit" in there.ok("transaction describe loaded")
    assert (listing.hits, describing.hits) == (1, 1)
    producers = disturbed.fail("DescribeProducers", "NOT_LEADER_OR_FOLLOWER")
    there.ok(f"transaction hanging {topic}")
    assert producers.hits == 1


def test_offsets_of_a_group_are_deleted_once_its_coordinator_is_found(
    there: Ottla, disturbed: Broker
) -> None:
    topic = disturbed.create_topic("forgotten")
    there.ok(f"produce {topic}", b"1\n")
    there.ok(f"consume {topic} -G forgetful -n 1 -o beginning")
    fault = disturbed.fail("OffsetDelete", "NOT_COORDINATOR")
    there.ok(
        f"kafka-consumer-groups --bootstrap-server {there.address} --delete-offsets "
        f"--group forgetful --topic {topic}"
    )
    assert fault.hits == 1
    assert json.loads(there.ok("group describe forgetful -o json")) == []


def test_a_topic_that_one_broker_does_not_know_yet_exists(
    there: Ottla, disturbed: Broker
) -> None:
    disturbed.fail("CreateTopics", "TOPIC_ALREADY_EXISTS")
    there.ok(
        f"kafka-topics --bootstrap-server {there.address} --create --topic elsewhere "
        "--if-not-exists"
    )


def test_a_reassignment_that_is_not_cancelled_is_not_reported_as_cancelled(
    there: Ottla, disturbed: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = disturbed.create_topic("moving")
    plan = {"topic": topic, "partition": 0, "replicas": [1]}
    (tmp_path / "plan").write_text(json.dumps({"partitions": [plan]}))
    moving = {(topic, 0): partitions.Moving([1, 2], [2], [])}
    monkeypatch.setattr(partitions, "reassignments", lambda _: moving)
    done = there(
        f"kafka-reassign-partitions --bootstrap-server {there.address} --cancel "
        f"--reassignment-json-file {tmp_path / 'plan'}"
    )
    assert done.status == 1 and "Successfully" not in done.out
    assert f"Error cancelling partition reassignment for:\n{topic}-0: " in done.out


def test_a_transaction_whose_coordinator_is_being_elected_is_not_said_to_hang(
    disturbed: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator would abort it, and the records that its producer commits later would be lost."""
    place = ("in-doubt", 0)
    producer = SimpleNamespace(producer_id=7, current_txn_start_offset=0, last_timestamp=0)
    state = SimpleNamespace(topics=[SimpleNamespace(topic=place[0], partitions=[place[1]])])
    leaders = [-1, 2, 2]

    def metadata(topics: list[str] | None = None) -> SimpleNamespace:
        part = SimpleNamespace(partition_index=0, leader_id=leaders.pop(0), leader_epoch=5)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[part])])

    def listed(_: ClusterClient, producer_ids: list[int]) -> list[transactions.Listed]:
        return [] if len(leaders) > 1 else [transactions.Listed("id", 2, 7, "Ongoing")]

    with ClusterClient(disturbed.bootstrap_servers) as cluster:
        monkeypatch.setattr(cluster, "metadata", metadata)
        monkeypatch.setattr(transactions, "producers", lambda *_: {place: [producer]})
        monkeypatch.setattr(transactions, "list_transactions", listed)
        monkeypatch.setattr(transactions, "describe", lambda *_: (2, state))
        assert transactions.hanging(cluster, [place], 15) == []


@pytest.mark.parametrize(
    ("command", "printed"), [
        ("consume {1} -e --committed", "1\n"),
        ("kcat -b {0} -C -e -q -X isolation.level=read_committed -t {1}", "1\n"),
    ]
)  # fmt: skip
def test_a_reader_does_not_wait_for_an_open_transaction(
    there: Ottla, disturbed: Broker, command: str, printed: str
) -> None:
    topic = disturbed.create_topic(f"open-{len(command)}")
    there.ok(f"produce {topic}", b"1\n")
    producer = Producer({
        "bootstrap.servers": there.address, "transactional.id": topic, "log_level": 0,
        "transaction.timeout.ms": 5000,
    })  # fmt: skip
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"2")
    producer.flush()
    assert there.ok(command.format(there.address, topic)) == printed
    assert '"Ongoing"' in there.ok(f"transaction describe {topic} -o json")
    producer.abort_transaction()


@pytest.mark.parametrize(
    "command", [
        "cluster quorum", "cluster check",
        "kafka-metadata-quorum --bootstrap-server {0} describe --status",
    ]
)  # fmt: skip
def test_the_next_controller_is_waited_for(
    there: Ottla, disturbed: Broker, command: str
) -> None:
    fault = disturbed.fail("DescribeQuorum", "NOT_LEADER_OR_FOLLOWER")
    there.ok(command.format(there.address))
    assert fault.hits == 1


def test_a_check_does_not_take_a_broker_for_the_controller_where_there_is_none(
    disturbed: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is not the controller may have old state, in which everything is in order."""
    part = SimpleNamespace(error_code=0, leader_id=-1, current_voters=[], observers=[])
    answer = SimpleNamespace(error_code=0, topics=[SimpleNamespace(partitions=[part])])
    with ClusterClient(disturbed.bootstrap_servers) as cluster:
        cluster.refresh()
        cluster.controller_id, cluster.request_seconds = -1, -1.0
        monkeypatch.setattr(cluster, "refresh", lambda: None)
        monkeypatch.setattr(Connection, "call", lambda *_: answer)
        with pytest.raises(NotConnected, match="the brokers know no controller at the moment"):
            active_controller(cluster)
        monkeypatch.setattr(cluster, "controller", lambda itself: cluster.any())
        with pytest.raises(Refused, match="the metadata quorum: leader not available"):
            active_controller(cluster)


@pytest.mark.parametrize("listing", [groups.list_groups, transactions.list_transactions])
def test_a_listing_begins_again_where_a_broker_leaves_meanwhile(
    disturbed: Broker, monkeypatch: pytest.MonkeyPatch, listing: Callable[[ClusterClient],
    list[object]]
) -> None:
    asked = 0
    with ClusterClient(
        disturbed.bootstrap_servers, connect_seconds=0.5, request_seconds=5
    ) as cluster:
        live = cluster.live

        def once_more() -> list[int]:
            nonlocal asked
            asked += 1
            found = live()
            if asked == 1:
                cluster.brokers[99] = ("127.0.0.1", free_port())
                return [*found, 99]
            return found

        monkeypatch.setattr(cluster, "live", once_more)
        assert isinstance(listing(cluster), list)
    assert asked > 1


def test_the_only_broker_is_not_waited_for_at_an_address_that_is_wrong(
    disturbed: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    with ClusterClient(disturbed.bootstrap_servers, connect_seconds=0.5) as cluster:
        learn = cluster.learn

        def misled(metadata: object) -> None:
            nonlocal asked
            asked += 1
            learn(metadata)
            cluster.brokers = {node: ("127.0.0.1", free_port()) for node in cluster.brokers}

        monkeypatch.setattr(cluster, "learn", misled)
        with pytest.raises(Unreachable, match="at an address that cannot be reached"):
            groups.list_groups(cluster)
    assert asked == 2


@pytest.mark.parametrize("command", [
    "produce {1}", "consume {1} -e", "kcat -b {0} -P -t {1}", "kcat -b {0} -C -e -q -t {1}",
    "kafka-console-producer --bootstrap-server {0} --topic {1}",
    "kafka-console-consumer --bootstrap-server {0} --topic {1} --from-beginning --max-messages 1",
])
def test_records_come_although_one_of_two_addresses_is_out_of_reach(
    there: Ottla, disturbed: Broker, command: str
) -> None:
    topic = disturbed.create_topic(f"begun-{sum(map(ord, command))}")
    there.ok(f"produce {topic}", b"1\n")
    address = f"127.0.0.1:{free_port()},{disturbed.bootstrap_servers}"
    printed = Ottla(address).ok(command.format(address, topic), b"2\n")
    reads = "-P" not in command and "produce" not in command
    assert printed == ("1\n" if reads else "")
    assert there.ok(f"consume {topic} -e").split() == (["1"] if reads else ["1", "2"])


def test_a_producer_whose_records_nobody_acknowledges_says_where_the_reason_is(
    there: Ottla, disturbed: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk causes this error, which librdkafka retries without a report."""
    topic = disturbed.create_topic("full")
    monkeypatch.setattr(writer, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(writer, "CLOSE_SECONDS", 1)
    disturbed.fail("Produce", "KAFKA_STORAGE_ERROR", count=None)
    done = there(f"produce {topic}", b"1\n")
    waiting, failed = done.err.splitlines()[:2]
    advice = f"`ottla topic why {topic}` shows what is wrong with the topic"
    assert waiting == f"no record was acknowledged for 0.2 s; waiting. {advice}", done
    assert done.status == 1 and f"1 record got no reply within 1 s; {advice}" in failed, done


def test_a_member_without_a_coordinator_says_so(
    there: Ottla, disturbed: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = disturbed.create_topic("waiting")
    monkeypatch.setattr(reader, "GROUP_IDLE_MS", 200)
    monkeypatch.setattr(reader, "STUCK_SECONDS", 0.5)
    disturbed.fail("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", count=None)
    done = there(f"consume {topic} -e -G g --timeout 0.5")
    assert done.status == 1
    assert "group g: waiting for its coordinator: " in done.err, done
    assert "members have joined" not in done.err
