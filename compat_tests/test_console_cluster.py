"""Tests in a browser the console of three brokers whose users log in with SCRAM over TLS.

A user with all rights opens every page and does every action. A user with few rights sees only
what these rights allow.
"""

from __future__ import annotations

import signal
import ssl
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from compat_tests.console_browser import (
    PAGES,
    PAGES_SHOWN,
    STORIES,
    Asked,
    act,
    log_in,
    row,
    shop,
    shown,
    watched,
)
from compat_tests.requirements import zookeeper
from compat_tests.secured import PLAIN_MODULE, SCRAM_MODULE
from ottla.tools.cli.local_cluster import LocalCluster
from ottla.tools.zookeeper.local import free_port
from tests.broker.security.authority import Authority
from tests.console.consoles import Console

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.one_broker
USERS = {"root": "r-secret", "ann": "a-secret"}
NOT_HERE = {("DELETE", "/transactions-hanging"), ("DELETE", "/reassignments")}
"""Entries that need a transaction without a coordinator, or a reassignment that lasts a while."""


def settings(authority: Authority, node: int, inside: str, clients: str) -> list[str]:
    """A broker's settings: over TLS, other brokers log in with PLAIN, and clients with SCRAM."""
    return [
        f"listeners=INSIDE://{inside},CLIENTS://{clients}",
        "listener.security.protocol.map=INSIDE:SASL_SSL,CLIENTS:SASL_SSL",
        "inter.broker.listener.name=INSIDE", "sasl.mechanism.inter.broker.protocol=PLAIN",
        "ssl.keystore.type=PEM", f"ssl.keystore.location={authority.issue(f'broker-{node}')}",
        "ssl.truststore.type=PEM", f"ssl.truststore.location={authority.file}",
        "listener.name.inside.sasl.enabled.mechanisms=PLAIN",
        f'listener.name.inside.plain.sasl.jaas.config={PLAIN_MODULE} required username="broker"'
        ' password="b-secret" user_broker="b-secret";',
        "listener.name.clients.sasl.enabled.mechanisms=SCRAM-SHA-512",
        f"listener.name.clients.scram-sha-512.sasl.jaas.config={SCRAM_MODULE} required;",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:broker;User:root",
        f"ottla.http.listener=127.0.0.1:{free_port()}",
    ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> LocalCluster:
    """Three brokers, which `served` starts."""
    zookeeper()
    return LocalCluster(tmp_path_factory.mktemp("console-cluster"), 3)


@pytest.fixture(scope="module")
def served(cluster: LocalCluster) -> Iterator[Console]:
    """The console. root may do everything; ann may read orders, and describe a group and the
    cluster."""
    folder = cluster.directory
    authority = Authority(folder)
    clients = {node: f"127.0.0.1:{free_port()}" for node in cluster.brokers}
    for node, broker in cluster.brokers.items():
        broker.settings += settings(authority, node, broker.address, clients[node])
    of_all = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(authority.file)}
    broker_client = of_all | {
        "bootstrap.servers": cluster.bootstrap, "sasl.mechanism": "PLAIN",
        "sasl.username": "broker", "sasl.password": "b-secret",
    }
    root_client = of_all | {
        "bootstrap.servers": ",".join(clients.values()), "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "root", "sasl.password": USERS["root"],
    }
    config = folder / "client.properties"
    config.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority.file}\n")
    key = str(authority.issue("console"))
    trust = ssl.create_default_context(cafile=str(authority.file))
    with cluster:
        grant(AdminClient(broker_client))
        with shop(root_client, 3):
            hide(root_client)
            with Console(
                root_client["bootstrap.servers"], folder, "--command-config", str(config),
                "--certificate", key, "--key", key, tls=trust,
            ) as console:
                yield console


def grant(admin: Any) -> None:
    """Create the users, and ann's few ACLs."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    made = admin.alter_user_scram_credentials([
        UserScramCredentialUpsertion(name, info, password.encode())
        for name, password in USERS.items()
    ])
    for done in made.values():
        done.result(60)
    rules = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, "User:ann", "*", operation,
                   AclPermissionType.ALLOW)
        for kind, name, operation in (
            (ResourceType.TOPIC, "orders", AclOperation.READ),
            (ResourceType.TOPIC, "orders", AclOperation.DESCRIBE),
            (ResourceType.GROUP, "billing", AclOperation.DESCRIBE),
            (ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE),
            (ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS),
        )
    ]
    for added in admin.create_acls(rules).values():
        added.result(60)


def hide(client: dict[str, str]) -> None:
    """Produce records to a topic that ann may not see."""
    producer = Producer(client)
    for number in range(1000):
        producer.produce("clicks", f"hidden {number}", partition=0)
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def session(browser: Browser, served: Console) -> Iterator[Any]:
    """The browser's state, with cookies, after root has logged in."""
    for page in watched(browser, ignore_https_errors=True):
        log_in(page, served.url, "root", USERS["root"])
        yield page.context.storage_state()


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    """Collects the API entries that root's pages request. If all tests passed, this must be every
    entry except NOT_HERE."""
    kept = Asked()
    yield kept
    if {PAGES_SHOWN, *STORIES} <= kept.done:
        assert kept.missing() <= NOT_HERE


@pytest.fixture
def page(browser: Browser, session: Any, asked: Asked) -> Iterator[Page]:
    """A page on which root is logged in."""
    yield from watched(browser, asked, ignore_https_errors=True, storage_state=session)


def test_every_page_is_shown(page: Page, served: Console, asked: Asked) -> None:
    for name, path in PAGES.items():
        shown(page, served.url + path)
        assert not page.locator("main .note.bad").count(), (name, page.inner_text("main"))
    asked.done.add(PAGES_SHOWN)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_every_action_is_done_with_the_mouse(
    page: Page, served: Console, asked: Asked, story: Callable[[Page, Console], None]
) -> None:
    story(page, served)
    asked.done.add(story)


@pytest.mark.long
def test_a_move_to_a_broker_that_stands_still_is_stopped(
    page: Page, served: Console, cluster: LocalCluster
) -> None:
    cookie = {"Cookie": "; ".join(
        f"{one['name']}={one['value']}" for one in page.context.cookies())}
    made = {"topic": "waiting", "partitions": 1, "replication_factor": 1}
    assert served.ask("/topics", "POST", made, cookie).status == 200
    [there] = served.get("/topics/waiting", **cookie)["rows"][0]["replicas"]
    to = next(row["broker"] for row in served.get("/brokers", **cookie)["rows"]
              if row["broker"] != there and not row["controller"])
    process = cluster.brokers[to].process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        wanted = {"topic": "waiting", "replicas": {"0": [to]}}
        assert served.ask("/reassignments", "POST", wanted, cookie).status == 200
        page.set_default_timeout(90_000)
        shown(page, f"{served.url}/brokers/reassignments")
        row(page, "waiting").get_by_role("button", name="cancel").click()
        act(page, "Stop", "The move is stopped.")
        assert served.get("/reassignments", **cookie)["rows"] == []
    finally:
        process.send_signal(signal.SIGCONT)
    assert served.get("/topics/waiting", **cookie)["rows"][0]["replicas"] == [there]


def test_somebody_with_few_rights_sees_totals_of_what_they_may_see(
    browser: Browser, served: Console
) -> None:
    for page in watched(browser, ignore_https_errors=True):
        log_in(page, served.url, "ann", USERS["ann"])
        page.locator(".tile").filter(has_text="3 of 3").wait_for()
        page.wait_for_function(
            "() => ![...document.querySelectorAll('.tile dd')].some((one) => one.innerText == '…')")
        tiles = dict(zip(page.locator(".tile dt").all_inner_texts(),
                         page.locator(".tile dd").all_inner_texts(), strict=True))
        assert (tiles["Brokers"], tiles["Topics"], tiles["Partitions"]) == ("3 of 3", "1", "2")
        assert (tiles["Records"], tiles["Groups"]) == ("300", "1")
        shown(page, f"{served.url}/topics")
        assert page.locator("tbody tr.row").count() == 1
        for path in PAGES.values():
            shown(page, served.url + path)
            if "/groups/billing" not in path:   # a group's pages also name its members' topics
                assert "clicks" not in page.inner_text("main"), path
        shown(page, f"{served.url}/topics/orders")
        page.get_by_role("button", name="Delete", exact=True).click()
        page.get_by_label("To confirm").fill("orders")
        page.get_by_role("button", name="Delete the topic").click()
        page.get_by_role("alert").filter(has_text="orders").wait_for()
        shown(page, f"{served.url}/topics/orders")
        assert row(page, "0").count()
