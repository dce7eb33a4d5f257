"""The console in a real browser: every page in both themes, its actions, logins over TLS.

axe-core judges accessibility. OTTLA_SCREENSHOTS=1 writes the pictures of docs/console.md anew.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.brokers import Broker, free_port
from compat_tests.requirements import ROOT, built, program
from compat_tests.secured import start_secured
from tests.console.consoles import Console
from tests.waiting import pause

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.one_broker
RECORDS = 300
SCREENSHOTS = bool(os.environ.get("OTTLA_SCREENSHOTS"))
PAGES = {
    "overview": "/?range=900",
    "topics": "/topics",
    "topic": "/topics/orders",
    "records": "/topics/orders/records?json=%24.order+%3E+7&record=0/9&from=oldest&partition=0",
    "settings": "/topics/orders/settings?all=1",
    "topic-groups": "/topics/orders/groups",
    "producers": "/topics/orders/producers",
    "groups": "/groups",
    "group": "/groups/billing?range=900",
    "members": "/groups/billing/members",
    "events": "/groups/billing/events",
    "connections": "/connections",
    "transactions": "/transactions",
    "brokers": "/brokers",
    "directories": "/brokers/log-directories",
    "reassignments": "/brokers/reassignments",
    "rules": "/access/acls",
    "users": "/access/users",
    "quotas": "/access/quotas",
    "tokens": "/access/tokens",
    "clean-up": "/clean-up",
}
PICTURES = ("overview", "topics", "records", "group", "connections")
PICTURE_SECONDS = 240


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(
            executable_path=program("chromium"), args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def served(
    new_broker: Callable[..., Broker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Console]:
    """A console, and a broker with records and a group that has a member."""
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    broker = new_broker(f"ottla.http.listener=localhost:{free_port()}")
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(name, 2, 1) for name in ("orders", "clicks")]
    for made in admin.create_topics(topics).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "shop",
                         "enable.idempotence": True})
    for number in range(RECORDS):
        order = {"order": number, "customer": f"c{number % 17}", "amount": number * 1.5,
                 "note": "<script>window.hit = 1</script>" if number == 8 else "as usual"}
        producer.produce("orders", json.dumps(order), f"c{number % 17}", number % 2,
                         headers={"trace": f"t{number}"})
    producer.flush(30)
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "billing", "client.id": "billing-1",
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    })
    consumer.subscribe(["orders"])
    read = 0
    while read < RECORDS // 2:
        message = consumer.poll(30)
        assert message is not None
        read += message.error() is None
    consumer.commit(asynchronous=False)
    folder = tmp_path_factory.mktemp("console")
    with Console(broker.bootstrap, folder, "--allow-changes") as console:
        if SCREENSHOTS:
            busy(producer, consumer)
        yield console
    consumer.close()
    broker.stop()


def busy(producer: Any, consumer: Any) -> None:
    """Records for some minutes, which a consumer reads, now slower, now faster than they come."""
    began = time.monotonic()
    while (passed := time.monotonic() - began) < PICTURE_SECONDS:
        for topic, many in (("orders", 3 + int(passed) % 3), ("clicks", 9)):
            for number in range(many):
                order = {"order": int(passed * 100) + number, "customer": f"c{number}"}
                producer.produce(topic, json.dumps(order), f"c{number}")
        producer.poll(0.05)
        for _ in range(1 if int(passed) % 80 < 50 else 12):
            if (message := consumer.poll(0.02)) is not None and message.error() is None:
                consumer.commit(message)
        pause(0.1)


@pytest.fixture
def page(browser: Browser, served: Console) -> Iterator[Page]:
    """A page whose faults fail the test."""
    yield from watched(browser)


def watched(browser: Browser, **context: Any) -> Iterator[Page]:
    """A page of a context of its own; errors and refused requests are faults."""
    made = browser.new_context(viewport={"width": 1280, "height": 800}, **context)
    found = made.new_page()
    found.set_default_timeout(30_000)
    faults: list[str] = []
    found.on("pageerror", lambda error: faults.append(str(error)))
    found.on("console", lambda said: faults.append(said.text)
             if said.type == "error" and "status of 4" not in said.text
             and "status of 5" not in said.text else None)
    yield found
    made.close()
    assert not faults, faults


def shown(page: Page, url: str) -> None:
    """Go there, and wait for what the page shows."""
    page.goto(url)
    page.wait_for_selector("h1")
    page.wait_for_function("() => !document.querySelector('main').innerText.includes('Loading …')")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_works_and_is_accessible(
    browser: Browser, served: Console, theme: str
) -> None:
    axe = built("node/node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")
    for page in watched(browser, color_scheme=theme):
        for name, path in PAGES.items():
            shown(page, served.url + path)
            assert page.evaluate("() => document.documentElement.dataset.theme") == theme
            found = page.evaluate(axe + "; axe.run().then(found => found.violations.map("
                                  "one => [one.id, one.nodes[0].html]))")
            assert not found, (name, found)
            if SCREENSHOTS and name in PICTURES:
                folder = ROOT / "docs" / "console"
                folder.mkdir(exist_ok=True)
                page.screenshot(path=str(folder / f"{name}-{theme}.png"))


def test_a_link_shows_the_same_view_and_values_are_text(page: Page, served: Console) -> None:
    shown(page, f"{served.url}/topics/orders/records")
    page.get_by_label("JSON path").fill('$.note contains "script"')
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_role("status").filter(has_text="1 records").wait_for()
    page.locator("tbody tr.row").click()
    detail = page.get_by_label("Record", exact=True)
    assert "<script>window.hit = 1</script>" in detail.inner_text()
    other = page.context.new_page()
    shown(other, page.url)
    assert "trace: t8" in other.get_by_label("Record", exact=True).inner_text()
    assert other.evaluate("() => window.hit") is None
    other.keyboard.press("g")
    other.keyboard.press("t")
    other.wait_for_url("**/topics")
    other.keyboard.press("/")
    other.keyboard.type("ord")
    other.locator("tbody tr.row").nth(0).get_by_role("link", name="orders").click()
    other.wait_for_url("**/topics/orders")


def test_a_topic_is_made_filled_and_deleted(page: Page, served: Console) -> None:
    shown(page, f"{served.url}/topics")
    page.get_by_role("button", name="Create a topic").click()
    page.locator("dialog input[name=topic]").fill("made")
    page.locator("dialog input[name=partitions]").fill("1")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("link", name="made").click()
    page.get_by_role("link", name="Records").click()
    page.get_by_label("live").check()
    page.get_by_text("Live: 0 of 0").wait_for()
    page.get_by_role("button", name="Produce").click()
    page.locator("dialog textarea[name=value]").fill("hello from a page")
    page.get_by_role("button", name="Send", exact=True).click()
    page.locator("tbody tr.row").filter(has_text="hello from a page").wait_for()
    page.get_by_role("button", name="Delete", exact=True).click()
    last = page.get_by_role("button", name="Delete the topic")
    assert last.is_disabled()
    page.get_by_label("To confirm").fill("made")
    last.click()
    page.wait_for_url("**/topics")
    page.get_by_text("Topic made is deleted.").wait_for()


def test_a_group_is_set_back_after_showing_what_changes(page: Page, served: Console) -> None:
    offsets = {"offsets": [{"topic": "orders", "partition": 0, "offset": 100}], "dry_run": False,
               "confirm": "resting"}
    assert served.ask("/groups/resting/reset", "POST", offsets).status == 200
    shown(page, f"{served.url}/groups/resting")
    page.get_by_role("button", name="Reset offsets").click()
    page.locator("dialog select[name=to]").select_option("by records")
    page.locator("dialog input[name=value]").fill("-30")
    page.get_by_role("button", name="Show what will change").click()
    change = page.get_by_label("What will change").locator("tbody tr.row")
    change.wait_for()
    assert re.split(r"\s+", change.inner_text().strip()) == ["orders", "0", "100", "70", "-30"]
    page.get_by_label("To confirm").fill("resting")
    page.get_by_role("button", name="Reset", exact=True).click()
    page.get_by_text("1 offsets are set.").wait_for()
    assert served.get("/groups/resting")["rows"][0]["offset"] == 70


def test_users_of_the_broker_log_in_over_tls(
    browser: Browser, new_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    secured = start_secured(new_broker, tmp_path)
    key = secured.authority.issue("console")
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={secured.authority.file}\n")
    trust = ssl.create_default_context(cafile=str(secured.authority.file))
    try:
        with Console(
            secured.bootstrap("SASL_SSL"), tmp_path, "--command-config", str(config),
            "--certificate", str(key), "--key", str(key), tls=trust,
        ) as console:
            for page in watched(browser, ignore_https_errors=True):
                page.goto(console.url)
                page.get_by_label("User").fill("sam")
                page.get_by_label("Password").fill("wrong")
                page.get_by_role("button", name="Log in").click()
                page.locator(".toast.bad").wait_for()
                page.get_by_label("Password").fill("s-secret")
                page.get_by_role("button", name="Log in").click()
                page.get_by_role("heading", name="Overview").wait_for()
                [cookie] = page.context.cookies()
                assert (cookie["name"], cookie["secure"], cookie["httpOnly"]) == (
                    "__Host-ottla", True, True)
                page.get_by_role("button", name="log out").click()
                page.get_by_label("User").wait_for()
    finally:
        secured.broker.stop()
