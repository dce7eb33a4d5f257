"""Settings that may change on a running broker (KIP-226) take effect at once. Changes of other
settings are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.connection_limits import ConnectionLimits
from ottla.broker.settings.broker import DYNAMIC, BrokerSettings
from ottla.broker.settings.config import BrokerConfig
from ottla.broker.settings.kafka_settings import kafka_settings
from ottla.broker.settings.listener_settings import DYNAMIC_OF_LISTENERS
from ottla.broker.settings.sources import Sources
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import IncrementalAlterConfigsRequest, MetadataRequest
from tests.broker.running import NODE_ID, RunningBroker, WireClient
from tests.waiting import until

BROKER, SET, DELETE = 4, 0, 1
EVERYWHERE, HERE = "", str(NODE_ID)


@pytest.fixture
def admin(broker: RunningBroker) -> Iterator[WireClient]:
    """A connection that is made before the test sets limits. Afterwards, all dynamic settings are
    reset."""
    with WireClient(broker.address) as connected:
        yield connected
        for node in (EVERYWHERE, HERE):
            known = kafka_settings("broker")
            own = {name for name in DYNAMIC & known.keys() if known[name].update == "per-broker"}
            names = DYNAMIC - own if node == EVERYWHERE else DYNAMIC
            reset = alter(connected, node, **{name.replace(".", "_"): None for name in names})
            assert reset == (0, None)


def alter(client: WireClient, node: str, **settings: object) -> tuple[int, str | None]:
    """Set each setting, or reset it if its value is None; returns the error code and message.
    Underscores in names stand for dots."""
    made = IncrementalAlterConfigsRequest.Resource
    configs = [
        made.Config(
            name=name.replace("_", "."),
            config_operation=DELETE if value is None else SET,
            value=None if value is None else str(value),
        )
        for name, value in settings.items()
    ]
    resource = made(resource_type=BROKER, resource_name=node, configs=configs)
    [answer] = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return answer.error_code, answer.error_message


def is_served(broker: RunningBroker) -> bool:
    """Whether a new client is served. Otherwise its connection is closed, or has to wait."""
    listener = broker.server.listeners[0]
    with WireClient(broker.address) as client:
        name = f"-127.0.0.1:{client.socket.getsockname()[1]}-"
        for _ in range(10):                 # lets the broker notice what was opened and closed
            broker.call(lambda: None)
        seen = broker.call(
            lambda: any(name in one.client.connection_id for one in listener.connections)
        )
        if not seen and broker.call(lambda: listener.name in listener.limits.waiting):
            return False
        try:
            return bool(client.call(MetadataRequest(topics=[]), 9).brokers)
        except OSError:
            return False


def test_what_kafka_changes_on_a_running_broker_is_declared_dynamic() -> None:
    known = kafka_settings("broker")
    changeable = {
        name for name in known.keys() & BrokerSettings.declared.keys()
        if known[name].update != "read-only"
    }
    changeable -= {"listeners", "listener.security.protocol.map"}
    assert changeable == (DYNAMIC | DYNAMIC_OF_LISTENERS) & known.keys()


def test_a_setting_outside_of_kafkas_table_is_checked_too(admin: WireClient) -> None:
    name = "replica_alter_log_dirs_io_max_bytes_per_second"
    for wrong in ("-1", "fast"):
        assert alter(admin, HERE, **{name: wrong})[0] == ErrorCode.INVALID_REQUEST
    for node in (HERE, EVERYWHERE):
        assert alter(admin, node, **{name: 10_000_000}) == (0, None)


@pytest.mark.parametrize(
    "limit",
    [
        {"max_connections": 1},
        {"max_connections_per_ip": 1},
        {"max_connections_per_ip_overrides": "127.0.0.1:1,[::1]:9"},
    ],
    ids=lambda limit: str(*limit),
)
@pytest.mark.parametrize("node", [HERE, EVERYWHERE], ids=["this broker", "all brokers"])
def test_fewer_connections_are_let_in_at_once_and_the_last_active_one_stays(
    broker: RunningBroker, admin: WireClient, node: str, limit: dict[str, object]
) -> None:
    assert is_served(broker)
    assert alter(admin, node, **limit) == (0, None)
    assert not is_served(broker)
    assert alter(admin, node, **dict.fromkeys(limit)) == (0, None), "the first one is served"
    assert is_served(broker)


@pytest.mark.parametrize("node", [HERE, EVERYWHERE], ids=["this broker", "all brokers"])
def test_a_limit_of_one_listener_counts_at_once(
    broker: RunningBroker, admin: WireClient, node: str
) -> None:
    name = "listener_name_plaintext_max_connections"
    assert is_served(broker)
    assert alter(admin, node, **{name: 1}) == (0, None)
    assert not is_served(broker)
    assert alter(admin, node, **{name: 2}) == (0, None)
    assert is_served(broker)
    assert alter(admin, node, **{name: None}) == (0, None)


def test_what_is_set_for_one_broker_wins_over_all(
    broker: RunningBroker, admin: WireClient
) -> None:
    alter(admin, EVERYWHERE, max_connections=1)
    alter(admin, HERE, max_connections=2)
    assert is_served(broker)
    alter(admin, HERE, max_connections=None)
    assert not is_served(broker)


def test_a_rate_of_new_connections_counts_at_once(
    broker: RunningBroker, admin: WireClient
) -> None:
    assert alter(admin, HERE, max_connection_creation_rate=1) == (0, None)
    clients = [WireClient(broker.address) for _ in range(20)]
    rates = broker.server.broker.connection_rates
    # Twenty at once are more than ten in ten seconds.
    until(lambda: broker.call(lambda: rates.pauses), "an address has to pause")
    assert broker.call(lambda: len(broker.server.listeners[0].connections)) < 20
    for client in clients:
        client.close()


def test_producers_are_forgotten_after_the_new_time(
    broker: RunningBroker, admin: WireClient, topic: str
) -> None:
    def expiration_ms() -> int:
        partition = broker.server.replicas.partition(topic, 0)
        assert partition is not None
        return partition.log.config.producer_id_expiration_ms

    assert expiration_ms() == 86_400_000
    alter(admin, EVERYWHERE, producer_id_expiration_ms=5000)
    assert broker.call(expiration_ms) == 5000
    alter(admin, EVERYWHERE, producer_id_expiration_ms=None)
    assert broker.call(expiration_ms) == 86_400_000


def test_the_cleaner_goes_by_what_was_set(broker: RunningBroker, admin: WireClient) -> None:
    changed = {
        "log_cleaner_backoff_ms": 1234,
        "log_cleaner_dedupe_buffer_size": 2 << 20,
        "log_cleaner_io_max_bytes_per_second": 1e6,
    }
    assert alter(admin, HERE, **changed) == (0, None)
    assert {name: getattr(broker.config, name) for name in changed} == changed


def test_what_was_set_counts_after_a_start(data: Path) -> None:
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        alter(client, HERE, max_connections=1)
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        assert client.call(MetadataRequest(topics=[]), 9).brokers
        assert not is_served(broker)


def test_a_setting_that_is_taken_without_effect_is_reported(admin: WireClient) -> None:
    code, message = alter(admin, HERE, num_io_threads=9, max_connections=100)
    assert code == 0, "as Kafka's own clients expect"
    assert message is not None and "num.io.threads" in message
    assert "max.connections" not in message
    assert alter(admin, HERE, num_io_threads=None, log_retention_ms=10**9) == (0, None)
    assert alter(admin, HERE, log_retention_ms=None) == (0, None)


def test_the_log_says_that_a_setting_of_the_controller_has_no_effect_for_one_broker(
    admin: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    for node, warned in ((EVERYWHERE, False), (HERE, True)):
        assert alter(admin, node, unclean_leader_election_enable="true") == (0, None)
        assert ("only if it is set for a topic or for all brokers" in caplog.text) == warned
        assert alter(admin, node, unclean_leader_election_enable=None) == (0, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_connections": -1},
        {"max_connections": "many"},
        {"max_connections_per_ip_overrides": "127.0.0.1"},
        {"max_connection_creation_rate": 0},
        {"log_cleaner_dedupe_buffer_size": 100},
        {"producer_id_expiration_ms": 0},
        {"listener_name_plaintext_max_connections": 0},
        {"listener_name_plaintext_max_connection_creation_rate": "fast"},
        {"log_retention_ms": -2},
        {"log_retention_ms": 0},
        {"message_max_bytes": -5},
        {"log_retention_hours": 1},
        {"transaction_max_timeout_ms": 5000},
        {"group_consumer_session_timeout_ms": 50_000},
        {"auto_create_topics_enable": "false"},
        {"node_id": 5},
    ],
    ids=lambda wrong: str(*wrong),
)
def test_a_value_that_cannot_be_and_a_setting_of_the_start_are_refused(
    admin: WireClient, wrong: dict[str, object]
) -> None:
    code, message = alter(admin, HERE, **wrong)
    assert code == ErrorCode.INVALID_REQUEST
    name = next(iter(wrong)).replace("_", ".").removeprefix("listener.name.plaintext.")
    assert message is not None and name in message


def limits(descriptors: int, *overrides: str) -> ConnectionLimits:
    return ConnectionLimits(BrokerConfig.load(None, overrides), descriptors)


def test_no_more_connections_are_let_in_than_there_are_descriptors_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    assert limits(100_000).connections_max == 99_000
    assert caplog.text == "", "nobody has set it"
    assert limits(100_000, "max.connections=99001").connections_max == 99_000
    assert "ulimit -n" in caplog.text
    caplog.clear()
    assert limits(100_000, "max.connections=5000").connections_max == 5000
    assert caplog.text == ""
    assert limits(-1).connections_max == 2**31 - 1, "there is no limit of descriptors"
    few = limits(20)
    for number in range(10):
        assert few.has_slot("PLAINTEXT")
        few.opened(f"host-{number}", "PLAINTEXT")
    assert not few.has_slot("PLAINTEXT")
    few.closed("host-3", "PLAINTEXT")
    assert few.has_slot("PLAINTEXT")


TWO_LISTENERS = {
    "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
    "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
    "inter.broker.listener.name": "B",
}


def test_a_listener_has_a_limit_of_its_own_above_which_clients_wait(data: Path) -> None:
    settings = {**TWO_LISTENERS, "listener.name.a.max.connections": 2}
    with RunningBroker(data, **settings) as broker, WireClient(broker.address) as first:
        assert first.call(MetadataRequest(topics=[]), 9).brokers
        assert is_served(broker)
        with WireClient(broker.address) as second, WireClient(broker.address) as third:
            assert second.call(MetadataRequest(topics=[]), 9).brokers
            sent = third.send(MetadataRequest(topics=[]), 9)
            assert not is_served(broker)
            second.close()
            assert third.answer(sent).brokers
        port = broker.server.listeners[1].port
        others = [WireClient(("127.0.0.1", port)) for _ in range(5)]
        for other in others:
            assert other.call(MetadataRequest(topics=[]), 9).brokers
            other.close()


def test_a_limit_of_the_brokers_own_listener_counts_there(data: Path) -> None:
    """The broker's own max.connections does not apply to the listener between brokers. A limit that
    is set for this listener does."""
    settings = {**TWO_LISTENERS, "listener.name.b.max.connections": 1, "max.connections": 1}
    with RunningBroker(data, **settings) as broker:
        address = ("127.0.0.1", broker.server.listeners[1].port)
        with WireClient(address) as inside, WireClient(address) as second:
            assert inside.call(MetadataRequest(topics=[]), 9).brokers
            sent = second.send(MetadataRequest(topics=[]), 9)
            assert not is_served(broker)
            inside.close()
            assert second.answer(sent).brokers


def test_a_broker_takes_the_place_of_the_client_that_was_silent_for_longest(data: Path) -> None:
    """A broker may connect however many clients there are. To keep to max.connections, the
    connection of a client is closed."""
    settings = {**TWO_LISTENERS, "max.connections": 2}
    with RunningBroker(data, **settings) as broker:
        address = ("127.0.0.1", broker.server.listeners[1].port)
        with WireClient(broker.address) as silent, WireClient(broker.address) as busy:
            for client in (busy, silent, busy):
                assert client.call(MetadataRequest(topics=[]), 9).brokers
                broker.loop_clock.passed_seconds += 1
            with WireClient(address) as inside:
                assert inside.call(MetadataRequest(topics=[]), 9).brokers
                assert silent.is_closed()
                assert busy.call(MetadataRequest(topics=[]), 9).brokers


def test_lower_limits_close_clients_and_no_brokers(data: Path) -> None:
    with RunningBroker(data, **TWO_LISTENERS) as broker:
        address = ("127.0.0.1", broker.server.listeners[1].port)
        clients = [WireClient(broker.address) for _ in range(2)]
        with WireClient(address) as inside, clients[0], clients[1]:
            for each in (*clients, inside):
                assert each.call(MetadataRequest(topics=[]), 9).brokers
            limit = {"listener_name_a_max_connections": 1}
            assert alter(inside, EVERYWHERE, **limit) == (0, None)
            for each in clients:
                assert each.call(MetadataRequest(topics=[]), 9).brokers, "as in Kafka"
            assert alter(inside, EVERYWHERE, max_connections=0) == (0, None)
            assert all(each.is_closed() for each in clients)
            assert inside.call(MetadataRequest(topics=[]), 9).brokers


def test_connections_are_counted_over_all_listeners(data: Path) -> None:
    settings = {
        "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        "max.connections": 1,
    }
    with RunningBroker(data, **settings) as broker:
        address = ("127.0.0.1", broker.server.listeners[1].port)
        with WireClient(broker.address) as client, WireClient(address) as second:
            assert client.call(MetadataRequest(topics=[]), 9).brokers
            sent = second.send(MetadataRequest(topics=[]), 9)
            assert client.call(MetadataRequest(topics=[]), 9).brokers
            assert broker.call(lambda: broker.server.listeners[1].accepted) == 0
            client.close()
            assert second.answer(sent).brokers


def test_limits_in_the_file_count_at_once_when_it_is_read_again(tmp_path: Path) -> None:
    """In an earlier version, clients that waited for a connection went on waiting after SIGHUP, and
    a lower limit closed no connection."""
    file = tmp_path / "server.properties"
    with RunningBroker(tmp_path / "data", max_connections=1) as broker:

        def read_again(limit: int) -> None:
            file.write_text("".join(
                f"{name}={text}\n" for name, text in broker.config.static.items()
                if name != "max.connections") + f"max.connections={limit}\n")
            broker.config.sources = Sources(file)
            broker.run(broker.server.reload())

        with WireClient(broker.address) as first, WireClient(broker.address) as second:
            assert first.call(MetadataRequest(topics=[]), 9).brokers
            sent = second.send(MetadataRequest(topics=[]), 9)
            assert not is_served(broker)
            read_again(2)
            assert second.answer(sent).brokers
            read_again(1)
            assert first.is_closed()
            assert second.call(MetadataRequest(topics=[]), 9).brokers
