"""The console in a real browser: every page in both themes, its actions, logins over TLS.

axe-core judges accessibility. OTTLA_SCREENSHOTS=1 writes the pictures of docs/console.md anew.
"""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.brokers import Broker, free_port
from compat_tests.console_browser import (
    PAGES,
    STORIES,
    faults_of,
    shop,
    shown,
    watched,
)
from compat_tests.requirements import ROOT
from compat_tests.secured import start_secured
from tests.console.consoles import Console
from tests.waiting import pause

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.one_broker
SCREENSHOTS = bool(os.environ.get("OTTLA_SCREENSHOTS"))
PICTURES = ("overview", "topics", "records", "group", "connections")
PICTURE_SECONDS = 240
PHONE_WIDTH = 390


@pytest.fixture(scope="module")
def served(
    new_broker: Callable[..., Broker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Console]:
    """A console, and a broker with records and a group that has a member."""
    broker = new_broker("node.id=1", f"ottla.http.listener=localhost:{free_port()}")
    broker.start()
    folder = tmp_path_factory.mktemp("console")
    try:
        with shop({"bootstrap.servers": broker.bootstrap}) as (producer, consumer):
            with Console(broker.bootstrap, folder, "--allow-changes") as console:
                if SCREENSHOTS:
                    busy(producer, consumer)
                yield console
    finally:
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


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_works_and_is_accessible(
    browser: Browser, served: Console, theme: str
) -> None:
    for page in watched(browser, color_scheme=theme):
        for name, path in PAGES.items():
            shown(page, served.url + path)
            assert page.evaluate("() => document.documentElement.dataset.theme") == theme
            found = faults_of(page)
            assert not found, (name, found)
            if SCREENSHOTS and name in PICTURES:
                folder = ROOT / "docs" / "console"
                folder.mkdir(exist_ok=True)
                page.screenshot(path=str(folder / f"{name}-{theme}.png"))


def test_every_page_fits_a_phone(browser: Browser, served: Console) -> None:
    for page in watched(browser, viewport={"width": PHONE_WIDTH, "height": 844}):
        wide = {}
        for name, path in PAGES.items():
            shown(page, served.url + path)
            wide[name] = page.evaluate("() => document.documentElement.scrollWidth")
        assert {name for name, width in wide.items() if width > PHONE_WIDTH} == set(), wide


def test_a_link_shows_the_same_view_and_values_are_text(page: Page, served: Console) -> None:
    shown(page, f"{served.url}/topics/orders/records")
    page.get_by_label("JSON path").fill('$.note contains "script"')
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_role("status").filter(has_text="1 record;").wait_for()
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


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_every_action_is_done_with_the_mouse(
    page: Page, served: Console, story: Callable[[Page, Console], None]
) -> None:
    story(page, served)


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
