"""Tests the console in a real browser: every page in both themes, every action, logins over TLS.

axe-core checks accessibility. With OTTLA_SCREENSHOTS=1, the tests also replace the pictures of
docs/console.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from compat_tests.brokers import Broker, KafkaBroker, OttlaBroker
from compat_tests.console_browser import (
    CUT_COLUMNS,
    PAGES,
    PAGES_SHOWN,
    STORIES,
    Asked,
    act,
    faults_of,
    fill,
    hanging_transaction_ended,
    row,
    shop,
    shown,
    watched,
)
from compat_tests.requirements import ROOT
from compat_tests.secured import start_secured
from ottla.tools.zookeeper.local import free_port
from tests.console.consoles import Console
from tests.waiting import pause

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.one_broker
SCREENSHOTS = bool(os.environ.get("OTTLA_SCREENSHOTS"))
PICTURES = ("overview", "topics", "records", "group", "connections")
PICTURE_SECONDS = 240
PHONE_WIDTH, LAPTOP_WIDTH, SCREEN_WIDTH = 390, 1280, 1720


HERE = (*STORIES, hanging_transaction_ended)
ONLY_IN_A_CLUSTER = {("DELETE", "/reassignments")}
"""Entries that need several brokers: a reassignment can be cancelled only while it waits for
another broker."""
SYMBOLS = {
    "red \x1b[31m and the bell \x07": "red ␛[31m and the bell ␇",
    "right to left \u202egnp.exe": "right to left ⟨U+202E⟩gnp.exe",
    "<img src=x onerror='window.hit = 1'>": "<img src=x onerror='window.hit = 1'>",
    "\x00\x01\x02\x03": "00 01 02 03",
}
"""Values, and how a page shows them."""
HOSTILE = "<script>window.hit = 1</script> \u202e \x07"
LARGE = 50_000_000
HEADERS = 10_000
SCROLL = """
async () => {
  const box = document.querySelector(".scroll"), wrong = [];
  const drawn = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const all = () => [...document.querySelectorAll("tr.row")];
  const known = new Set(all());
  let made = 0;
  new MutationObserver((changes) => {
    for (const { addedNodes } of changes) for (const node of addedNodes) {
      const element = node.nodeType === 1 && !node.classList.contains("space");
      if (element && !known.has(node)) made += 1;
    }
  }).observe(box, { childList: true, subtree: true });
  const repeated = (step, times) => Array(times).fill(step);
  const steps = [...repeated(1500, 8), ...repeated(60, 12), ...repeated(-45, 12), 1e6, -5e5, 1e7];
  for (const step of steps) {
    box.scrollTop += step;
    await drawn();
    await drawn();
    const view = box.getBoundingClientRect(), rows = all();
    for (const one of rows) {
      const name = `t${String(one.ariaRowIndex - 1).padStart(6, "0")}`;
      if (one.cells[0].innerText !== name) wrong.push([step, name, one.cells[0].innerText]);
    }
    const [first, last] = [rows[0], rows.at(-1)].map((one) => one.getBoundingClientRect());
    if (first.top > view.top + 30 || last.bottom < view.bottom - 30) wrong.push([step, "empty"]);
    const place = first.top - view.top + box.scrollTop - 28 * rows[0].ariaRowIndex;
    if (Math.abs(place) > 3) wrong.push([step, "place", place]);
  }
  return { made, wrong, rows: all().length };
}
"""
"""A script that scrolls a list in large and small steps. It returns which rows are not where they
belong, how many elements were created meanwhile, and how many rows have an element."""


@pytest.fixture(scope="module")
def served(
    new_broker: Callable[..., Broker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Console]:
    """The console of a broker that has records, a group with a member, and a transaction that no
    coordinator knows."""
    broker = new_broker(
        "node.id=1", f"ottla.http.listener=localhost:{free_port()}",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:ANONYMOUS", "transaction.state.log.num.partitions=1",
        "message.max.bytes=60000000")
    broker.start()
    folder = tmp_path_factory.mktemp("console")
    try:
        forget_a_transaction(broker)
        with shop({"bootstrap.servers": broker.bootstrap}) as (producer, consumer):
            with Console(broker.bootstrap, folder, "--allow-changes") as console:
                if SCREENSHOTS:
                    busy(producer, consumer)
                yield console
    finally:
        broker.stop()


def forget_a_transaction(broker: Broker) -> None:
    """Open a transaction, and delete the coordinator's state while the broker is down."""
    producer = Producer({
        "bootstrap.servers": broker.bootstrap, "transactional.id": "lost-payment"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("paid", "never committed")
    assert producer.flush(60) == 0
    broker.kill()
    assert isinstance(broker, OttlaBroker | KafkaBroker)
    [state] = broker.directory.rglob("__transaction_state-0")
    shutil.rmtree(state)
    broker.start()


def busy(producer: Any, consumer: Any) -> None:
    """Produce for some minutes; the consumer reads alternately slower and faster than that."""
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


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    """Collects the API entries that pages request. If all tests passed, this must be every entry
    that can be used with one broker."""
    kept = Asked()
    yield kept
    if {PAGES_SHOWN, *HERE} <= kept.done:
        assert kept.missing() <= ONLY_IN_A_CLUSTER


@pytest.fixture
def page(browser: Browser, served: Console, asked: Asked) -> Iterator[Page]:
    """A page whose faults fail the test."""
    yield from watched(browser, asked)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_works_and_is_accessible(
    browser: Browser, served: Console, asked: Asked, theme: str
) -> None:
    for page in watched(browser, asked, color_scheme=theme):
        for name, path in PAGES.items():
            shown(page, served.url + path)
            assert page.evaluate("() => document.documentElement.dataset.theme") == theme
            found = faults_of(page)
            assert not found, (name, found)
            if SCREENSHOTS and name in PICTURES:
                folder = ROOT / "docs" / "console"
                folder.mkdir(exist_ok=True)
                page.screenshot(path=str(folder / f"{name}-{theme}.png"))
    asked.done.add(PAGES_SHOWN)


@pytest.mark.parametrize("width", [PHONE_WIDTH, LAPTOP_WIDTH, SCREEN_WIDTH])
def test_every_column_of_every_page_can_be_read(
    browser: Browser, served: Console, width: int
) -> None:
    for page in watched(browser, viewport={"width": width, "height": 844}):
        for name, path in PAGES.items():
            shown(page, served.url + path)
            assert page.evaluate("() => document.documentElement.scrollWidth") <= width, name
            assert page.evaluate(CUT_COLUMNS) == [], name
            for link in page.locator("nav > a, .tabs a").all():
                box = link.bounding_box()
                assert box is not None, name
                assert box["x"] >= 0 and box["x"] + box["width"] <= width, (name, link.inner_text())
                assert box["height"] < 40, (name, link.inner_text())


def test_a_phone_shows_keys_and_values_beside_the_time(browser: Browser, served: Console) -> None:
    for page in watched(browser, viewport={"width": PHONE_WIDTH, "height": 844}):
        shown(page, f"{served.url}/topics/orders/records")
        page.locator("tr.row").first.wait_for()
        heads = page.locator("th")
        assert [text.rstrip(" ↓") for text in heads.all_inner_texts()] == [
            "Time", "Key", "Value", "Part.", "Offset", "Size"]
        value = heads.nth(2).bounding_box()
        assert value is not None and value["x"] + 100 <= PHONE_WIDTH, "its beginning is in view"
        assert re.fullmatch(r"\d\d-\d\d \d\d:\d\d:\d\d",
                            page.locator("tr.row td").first.inner_text())
        page.set_viewport_size({"width": LAPTOP_WIDTH, "height": 844})
        page.wait_for_function("() => document.querySelectorAll('th')[1].innerText === 'Part.'")


OPEN_AT_THE_CLOSE = """() => {
    const dialog = document.querySelector("dialog");
    const buttons = [...document.querySelectorAll("main button")];
    const press = buttons.find((one) => one.innerText === "Delete");
    new MutationObserver((_, observer) => {
        if (!dialog.open) { observer.disconnect(); press.click(); }
    }).observe(dialog, { attributes: true, attributeFilter: ["open"] });
}"""
A_FEW_FRAMES = """async () => {
    for (let i = 0; i < 5; i += 1)
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
}"""


def test_the_keyboard_reaches_everything_in_a_list(page: Page, served: Console) -> None:
    chosen = page.locator("tr.chosen td:first-child")
    keyboard = page.keyboard
    shown(page, f"{served.url}/topics")
    names = page.locator("tr.row td:first-child").all_inner_texts()
    for key, place in (("j", 0), ("j", 1), ("ArrowDown", 2), ("k", 1), ("End", -1), ("Home", 0)):
        keyboard.press(key)
        assert chosen.inner_text() == names[place], key
    keyboard.press("/")
    keyboard.type("orders")
    for key in ("ArrowDown", "Enter"):
        page.get_by_role("searchbox").focus()
        keyboard.press(key)
        assert chosen.inner_text() == "orders", key
        assert page.evaluate("() => document.activeElement.ariaLabel") == "Topics"
    keyboard.press("/")
    keyboard.press("Escape")
    assert page.evaluate("() => document.activeElement.ariaLabel") == "Topics"
    assert page.get_by_role("searchbox").input_value() == "orders"
    keyboard.press("Enter")
    page.wait_for_url("**/topics/orders")

    for focus in ("[name=json]", ".record pre", "nav a", ".scroll"):
        shown(page, f"{served.url}/topics/orders/records?from=oldest&record=0/4")
        page.locator(focus).first.focus()
        keyboard.press("Escape")
        page.get_by_label("Record", exact=True).wait_for(state="detached")
    keyboard.press("?")
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("next or previous row").wait_for()
    assert dialog.get_by_role("button").all_inner_texts() == ["Close"]
    keyboard.press("Enter")
    dialog.wait_for(state="hidden")


def test_a_dialog_opened_while_another_one_closes_stays(page: Page, served: Console) -> None:
    """The browser reports late that a dialog was closed; the next one may be open by then."""
    shown(page, f"{served.url}/topics/orders")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("next or previous row").wait_for()
    page.evaluate(OPEN_AT_THE_CLOSE)
    page.keyboard.press("Enter")
    dialog.get_by_label("To confirm").wait_for()
    page.evaluate(A_FEW_FRAMES)
    assert dialog.get_by_role("heading").inner_text() == "Delete orders"
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    page.evaluate(A_FEW_FRAMES)
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog.get_by_label("To confirm").wait_for()


def test_a_row_that_lights_up_leads_somewhere(
    page: Page, served: Console, request: pytest.FixtureRequest
) -> None:
    rows = {"/brokers": "**/brokers/1", "/topics/orders/groups": "**/groups/billing"}
    # Apache Kafka does not report its connections.
    if tells := request.config.getoption("--broker") != "kafka":
        rows["/topics/orders/clients"] = "**/connections?q=*"
    for path, to in rows.items():
        shown(page, served.url + path)
        page.locator("tr.opens td:nth-child(3)").first.click()
        page.wait_for_url(to)
    shown(page, f"{served.url}/connections")
    if tells:
        page.locator("tr.row").first.wait_for()
    assert page.locator("tr.opens").count() == 0


def test_times_are_told_in_whole_units(page: Page, served: Console) -> None:
    shown(page, f"{served.url}/topics")
    assert page.evaluate("""async () => {
      const { duration } = await import("/static/base.js");
      return [9.96, 59.6, 599.7, 3599.5, 86399.9].map(duration);
    }""") == ["10 s", "1 min", "10 min", "1 h", "1 d"]


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


def test_what_is_typed_while_records_arrive_is_searched_for(page: Page, served: Console) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        if held:
            route.continue_()
        held.append(route)

    page.route("**/api/v1/topics/orders/records*", hold)
    page.goto(f"{served.url}/topics/orders/records")
    path = page.get_by_label("JSON path")
    path.fill('$.note contains "script"')
    while not held:
        page.wait_for_timeout(20)
    held[0].continue_()
    page.get_by_role("status").filter(has_text="100 records;").wait_for()
    assert path.input_value() == '$.note contains "script"'
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_role("status").filter(has_text="1 record;").wait_for()


def test_a_changed_filter_ends_the_running_search(page: Page, served: Console) -> None:
    held: list[Route] = []
    page.route("**/api/v1/topics/orders/records?text=first*", lambda route: held.append(route))
    shown(page, f"{served.url}/topics/orders/records")
    page.get_by_role("status").filter(has_text="100 records;").wait_for()
    page.get_by_label("Text").fill("first")
    page.get_by_text("Changed: press Enter to search.").wait_for()
    page.keyboard.press("Enter")
    page.locator(".stale tr.row").first.wait_for()
    page.get_by_text("of at most 10 s").wait_for()
    page.get_by_label("Text").fill("script")
    page.keyboard.press("Enter")
    page.get_by_role("status").filter(has_text="read to the end").wait_for()
    assert page.locator(".stale").count() == 0 and "text=script" in page.url
    assert "<script>" in row(page, "").first.inner_text()
    page.get_by_label("Text").fill("first")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped.").wait_for()
    assert row(page, "").count() == 0, "the rows of another search"


def test_records_of_a_day_are_chosen_by_name(page: Page, served: Console) -> None:
    shown(page, f"{served.url}/topics/orders/records")
    first = page.get_by_label("Where to begin")
    first.select_option("yesterday")
    page.get_by_role("status").filter(has_text="0 records; read to the end").wait_for()
    page.get_by_label("until").fill("2099-01-01T00:00:00")
    page.keyboard.press("Enter")
    row(page, "").first.wait_for()
    assert "until=40" in page.url and first.input_value() == "time"
    first.select_option("the last hour")
    page.get_by_role("status").filter(has_text="records; ").wait_for()
    assert "until" not in page.url


def test_what_is_hard_to_show_is_text_and_symbols(page: Page, served: Console) -> None:
    producer = Producer({
        "bootstrap.servers": served.get("/session")["bootstrap"], "client.id": HOSTILE,
        "message.max.bytes": 60_000_000})
    for value in SYMBOLS:
        producer.produce("hard", value, HOSTILE)
    producer.produce("hard", b"0123456789abcdef" * (LARGE // 16))
    producer.produce("hard", b"x", headers=[(f"h{number}", HOSTILE) for number in range(HEADERS)])
    assert producer.flush(60) == 0
    given = {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}], "dry_run": False,
             "confirm": HOSTILE}
    made = served.ask(f"/groups/{quote(HOSTILE, safe='')}/reset", "POST", given)
    assert made.status == 200, made
    harmless = "<script>window.hit = 1</script> ⟨U+202E⟩ ␇"

    shown(page, f"{served.url}/topics/hard/records?from=oldest&record=0/{len(SYMBOLS) + 1}")
    for symbols in SYMBOLS.values():
        assert harmless in row(page, symbols).inner_text()
    assert row(page, "47.7 MiB").count() == 1
    detail = page.get_by_label("Record", exact=True).inner_text()
    assert "10,000, the first 100" in detail and f"h99: {harmless}" in detail
    for path in (f"/groups/{quote(HOSTILE, safe='')}", "/groups", "/connections"):
        shown(page, served.url + path)
        if path != "/connections":    # Kafka reports no connections, Ottla replaces these bytes
            assert harmless in page.inner_text("main")
        assert page.evaluate("() => window.hit") is None


def test_a_list_of_a_hundred_thousand_rows_lends_few_elements_to_the_rows_in_view(
    page: Page, served: Console
) -> None:
    rows = [{"topic": f"t{number:06}", "partitions": 1, "lag": None} for number in range(100_000)]
    event = {"path": "/topics", "value": {"key": "topic", "pending": [], "rows": rows}}
    body = f"retry: 100000000\nevent: change\ndata: {json.dumps(event)}\n\n"
    page.route("**/api/v1/stream*", lambda route: route.fulfill(
        content_type="text/event-stream", body=body))
    shown(page, f"{served.url}/topics")
    found = page.evaluate(SCROLL)
    assert found == {"made": 0, "wrong": [], "rows": found["rows"]} and 20 < found["rows"] < 60
    assert row(page, "t099999").is_visible(), "it has been scrolled to its end"
    page.get_by_role("searchbox").fill("t00001")
    row(page, "t000010").wait_for()
    assert row(page, "").count() == 10


def test_a_page_says_that_the_broker_is_away_and_goes_on_when_it_is_back(
    page: Page, new_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    broker = new_broker()
    broker.start()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("orders", "x")
    assert producer.flush(60) == 0
    with Console(broker.bootstrap, tmp_path, "--timeout", "1") as console:
        shown(page, f"{console.url}/topics")
        row(page, "orders").wait_for()
        broker.kill()
        page.locator("main .note").wait_for()
        assert "orders" not in page.inner_text("main"), "nothing that may be long past"
        broker.start()
        row(page, "orders").wait_for()
        page.locator("main .note").wait_for(state="detached")
    broker.stop()


def test_a_record_is_sent_again_with_the_key_that_its_label_promises(
    page: Page, served: Console
) -> None:
    producer = Producer({"bootstrap.servers": served.get("/session")["bootstrap"]})
    for key in (None, ""):
        producer.produce("keys", "v", key, partition=0)
    assert producer.flush(60) == 0
    for offset, label in enumerate(("Key; empty for null", "Key")):
        shown(page, f"{served.url}/topics/keys/records?from=oldest&record=0/{offset}")
        page.get_by_role("button", name="Send again").click()
        page.get_by_role("dialog").get_by_label(label, exact=True).wait_for()
        fill(page, partition="0")
        act(page, "Send", f"Written to partition 0 at offset {offset + 2}.")
    consumer = Consumer({
        "bootstrap.servers": served.get("/session")["bootstrap"], "group.id": "keys"})
    consumer.assign([TopicPartition("keys", 0, 0)])
    assert [one.key() for one in consumer.consume(4, 30)] == [None, b"", None, b""]
    consumer.close()


@pytest.mark.parametrize("story", HERE, ids=lambda story: story.__name__)
def test_every_action_is_done_with_the_mouse(
    page: Page, served: Console, asked: Asked, story: Callable[[Page, Console], None]
) -> None:
    story(page, served)
    asked.done.add(story)


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
