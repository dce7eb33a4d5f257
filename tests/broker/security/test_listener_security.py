"""A listener's properties result in a protocol and mechanisms, or in a clear error."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.security.listener_security import ListenerSecurity, listeners_security
from ottla.broker.settings.config import BrokerConfig, SettingsError
from ottla.client.jaas import JaasError, parse_jaas
from ottla.wire.messages import MetadataRequest
from tests.broker.running import WireClient
from tests.broker.security.logging_in import JAAS, SaslBroker, log_in, shake
from tests.imports import imported

SASL = ("listeners=SASL_PLAINTEXT://h:1", "sasl.enabled.mechanisms=PLAIN")
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def config(*overrides: str) -> BrokerConfig:
    return BrokerConfig.load(None, overrides)


def secured(*overrides: str) -> dict[str, ListenerSecurity]:
    broker = config(*overrides)
    return listeners_security(broker, broker.static)


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (["listeners=SASL_PLAINTEXT://h:1"], "GSSAPI is not served on listener SASL_PLAINTEXT"),
        (["listeners=SASL_PLAINTEXT://h:1", "sasl.enabled.mechanisms="],
         "has no mechanism for listener SASL_PLAINTEXT; choose among PLAIN, SCRAM-SHA-256"),
        ([*SASL, "listener.name.sasl_plaintext.sasl.enabled.mechanisms="],
         "has no mechanism for listener SASL_PLAINTEXT; choose among PLAIN, SCRAM-SHA-256"),
        ([*SASL], "listener.name.sasl_plaintext.plain.sasl.jaas.config: has to be set"),
        ([*SASL, f"sasl.jaas.config={JAAS}"], "plain.sasl.jaas.config: has to be set"),
        ([*SASL, "listener.name.sasl_plaintext.plain.sasl.jaas.config=x"], "control flag"),
        ([*SASL, "listener.name.sasl_plaintext.plain.sasl.jaas.config=a.B required;"],
         "a.B is not available"),
        ([*SASL, "listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class=a.B"],
         "Java code"),
    ],
)  # fmt: skip
def test_a_listener_that_nobody_could_log_in_to_is_an_error_at_start(
    overrides: list[str], problem: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        secured(*overrides)
    assert problem in str(raised.value)


def test_a_broker_without_tls_and_sasl_imports_nothing_of_them() -> None:
    security = "ottla.broker.security."
    program = (
        "import ottla.broker.service;"
        "from ottla.broker.security.listener_security import ListenerSecurity;"
        "ListenerSecurity('PLAINTEXT', 'PLAINTEXT', {}).session(None, None)"
    )
    wanted = (security + "sasl.", security + "tls.", security + "session", "ottla.client.")
    assert imported(program, *wanted) == []


def test_a_listeners_own_setting_wins_over_the_brokers() -> None:
    found = secured(
        "listeners=A://h:1,B://h:2", "listener.security.protocol.map=A:SASL_PLAINTEXT,B:PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN", "connections.max.reauth.ms=7",
        "listener.name.a.sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256",
        "listener.name.a.scram-sha-512.connections.max.reauth.ms=9",
    )  # fmt: skip
    times = {each.name: each.reauthentication_ms for each in found["A"].mechanisms.values()}
    assert times == {"SCRAM-SHA-512": 9, "SCRAM-SHA-256": 7}
    assert not found["B"].authenticates


def test_settings_that_no_listener_goes_by_are_warned_about() -> None:
    broker = config(
        "listeners=A://h:1", "listener.security.protocol.map=A:PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN", f"listener.name.a.plain.sasl.jaas.config={JAAS}",
        "listener.name.b.sasl.server.max.receive.size=1",
    )  # fmt: skip
    assert broker.warnings == [
        "without effect in Ottla: listener.name.a.plain.sasl.jaas.config,"
        " listener.name.b.sasl.server.max.receive.size, sasl.enabled.mechanisms"
    ]


def test_a_secured_listener_warns_of_nothing() -> None:
    broker = config(
        "listeners=A://h:1", "listener.security.protocol.map=A:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN", f"listener.name.a.plain.sasl.jaas.config={JAAS}",
    )  # fmt: skip
    assert broker.warnings == []


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (["security.inter.broker.protocol=SASL_SSL"], "no listener has the protocol SASL_SSL"),
        (["security.inter.broker.protocol=PLAINTEXT", "inter.broker.listener.name=PLAINTEXT"],
         "cannot be set together with"),
    ],
)  # fmt: skip
def test_brokers_have_one_listener_among_themselves(overrides: list[str], problem: str) -> None:
    with pytest.raises(SettingsError) as raised:
        config(*overrides)
    assert problem in str(raised.value)


def test_the_listener_among_brokers_is_named_or_has_the_protocol() -> None:
    two = (
        "listeners=A://h:1,B://h:2",
        "listener.security.protocol.map=A:SASL_PLAINTEXT,B:PLAINTEXT",
    )
    assert config(*two, "inter.broker.listener.name=a").inter_broker_listener() == "A"
    assert config(*two).inter_broker_listener() == "B"
    wanted = "security.inter.broker.protocol=SASL_PLAINTEXT"
    assert config(*two, wanted).inter_broker_listener() == "A"


def test_different_listeners_ask_for_different_things_at_once(data: Path) -> None:
    more = {
        "listeners": "A://127.0.0.1:0,B://127.0.0.1:0,C://127.0.0.1:0",
        "listener.security.protocol.map": "A:PLAINTEXT,B:SASL_PLAINTEXT,C:SASL_PLAINTEXT",
        "listener.name.b.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.b.plain.sasl.jaas.config": f'{MODULE} required user_x="b";',
        "listener.name.c.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.c.plain.sasl.jaas.config": f'{MODULE} required user_x="c";',
    }
    with SaslBroker(data, more) as broker:
        ports = [listener.port for listener in broker.server.listeners]
        with WireClient(("127.0.0.1", ports[0])) as open_to_all:
            assert open_to_all.call(MetadataRequest(topics=[]), 9).brokers[0].port == ports[0]
        for port, password in ((ports[1], "b"), (ports[2], "c")):
            with WireClient(("127.0.0.1", port)) as client:
                assert log_in(client, "PLAIN", "x", password).error_code == 0
                # Clients get the address of the listener that they are connected to.
                assert client.call(MetadataRequest(topics=[]), 9).brokers[0].port == port
            with WireClient(("127.0.0.1", port)) as client:
                assert log_in(client, "PLAIN", "x", "bc".replace(password, "")).error_code != 0
        with WireClient(("127.0.0.1", ports[1])) as client:
            assert shake(client, "SCRAM-SHA-256").mechanisms == ["PLAIN"]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{MODULE} required user_a="b";', {"user_a": "b"}),
        (f"{MODULE} REQUIRED\n user_a='b' # comment\n user_c=d ;", {"user_a": "b", "user_c": "d"}),
        (f'{MODULE} optional /* no */ user_a="x\\"y\\\\z=;" ; // end', {"user_a": 'x"y\\z=;'}),
        (f'{MODULE} required user_a="";', {"user_a": ""}),
        (f"{MODULE} required;", {}),
    ],
)
def test_jaas_texts_are_read_as_java_reads_them(text: str, options: dict[str, str]) -> None:
    module = parse_jaas(text)
    assert (module.name, module.options) == (MODULE, options)


@pytest.mark.parametrize(
    "text",
    ["", MODULE, f"{MODULE} required", f"{MODULE} maybe;", f"{MODULE} required user_a;",
     f"{MODULE} required user_a=;", f'{MODULE} required user_a="secret;',
     f"{MODULE} required; {MODULE} required;"],
)  # fmt: skip
def test_a_broken_jaas_text_is_refused_without_a_word_of_its_secrets(text: str) -> None:
    with pytest.raises(JaasError) as raised:
        parse_jaas(text)
    assert "secret" not in str(raised.value)
