"""Uses the console in Chromium as a person does: opens and checks its pages, and does its actions.

A story is a function that does one task of a user: it clicks, types, and checks the result. Stories
work on any cluster that has an authorizer and allows its users to make changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from starlette.routing import compile_path

from compat_tests.requirements import built
from ottla.console.api import PREFIX, TABLE
from tests.console.consoles import Console

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Response

Entry = tuple[str, str]
"""The method and the path of an entry of the API's table."""
PAGES_SHOWN = "pages"
"""The element of `Asked.done` that says that all pages were visited. The other elements are the
stories that passed."""

RECORDS = 300
PAGES = {
    "overview": "/?range=900",
    "topics": "/topics",
    "topic": "/topics/orders",
    "records": "/topics/orders/records?json=%24.order+%3E+7&record=0/9&from=oldest&partition=0",
    "settings": "/topics/orders/settings?all=1",
    "topic-groups": "/topics/orders/groups",
    "clients": "/topics/orders/clients",
    "producers": "/topics/orders/producers",
    "topic-events": "/topics/orders/events",
    "groups": "/groups",
    "group": "/groups/billing?range=900",
    "members": "/groups/billing/members",
    "events": "/groups/billing/events",
    "connections": "/connections",
    "client-metrics": "/connections/metrics",
    "transactions": "/transactions",
    "hanging": "/transactions/hanging?minutes=0",
    "audit": "/audit",
    "brokers": "/brokers",
    "broker": "/brokers/1",
    "directories": "/brokers/log-directories",
    "reassignments": "/brokers/reassignments",
    "rules": "/access/acls",
    "users": "/access/users",
    "quotas": "/access/quotas",
    "tokens": "/access/tokens",
    "clean-up": "/clean-up",
}


@contextmanager
def shop(client: dict[str, str], replicas: int = 1) -> Iterator[tuple[Any, Any]]:
    """Create topics with records, a group that has read half of them, and an open transaction.

    Yields the producer and the consumer, which is a member of the group.
    """
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    topics = [NewTopic(name, 2, replicas) for name in ("orders", "clicks")]
    admin = AdminClient(client)
    for made in admin.create_topics(topics).values():
        made.result(60)
    producer = Producer({**client, "client.id": "shop", "enable.idempotence": True})
    for number in range(RECORDS):
        order = {"order": number, "customer": f"c{number % 17}", "amount": number * 1.5,
                 "note": "<script>window.hit = 1</script>" if number == 8 else "as usual"}
        producer.produce("orders", json.dumps(order), f"c{number % 17}", number % 2,
                         headers={"trace": f"t{number}"})
    assert producer.flush(60) == 0
    payments = Producer({**client, "transactional.id": "slow-payment", "client.id": "payments",
                         "transaction.timeout.ms": 900_000})
    payments.init_transactions(60)
    payments.begin_transaction()
    payments.produce("clicks", "never committed", partition=1)
    payments.flush(60)
    consumer = Consumer({
        **client, "group.id": "billing", "client.id": "billing-1",
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
        "max.poll.interval.ms": 3_600_000,      # it stays a member while a test visits pages
    })
    consumer.subscribe(["orders"])
    read = 0
    while read < RECORDS // 2:
        message = consumer.poll(30)
        assert message is not None
        read += message.error() is None
    consumer.commit(asynchronous=False)
    consumer.commit(offsets=[TopicPartition("clicks", 0, 0)], asynchronous=False)
    yield producer, consumer
    consumer.close()


class Asked:
    """The entries of the API's table that pages have requested successfully."""

    def __init__(self) -> None:
        self.found: set[Entry] = set()
        self.done: set[Any] = set()
        self.table = [(one, compile_path(PREFIX + one.path)[0]) for one in TABLE]

    def note(self, response: Response) -> None:
        """Note the entries of a response's request; a stream names several paths in its query."""
        at = urlsplit(response.url)
        paths = [at.path]
        if at.path == f"{PREFIX}/stream":
            paths = [PREFIX + one.partition("?")[0] for one in parse_qs(at.query)["path"]]
        self.found |= {
            (one.method, one.path) for one, pattern in self.table for path in paths
            if response.ok and response.request.method == one.method and pattern.match(path)
        }

    def missing(self) -> set[Entry]:
        """The entries that no page has requested successfully."""
        return {(one.method, one.path) for one in TABLE} - self.found


def watched(browser: Browser, asked: Asked | None = None, **context: Any) -> Iterator[Page]:
    """Yield a page in a new browser context; fail if it reported errors other than HTTP errors."""
    made = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **context})
    found = made.new_page()
    found.set_default_timeout(30_000)
    if asked is not None:
        found.on("response", asked.note)
    faults: list[str] = []
    found.on("pageerror", lambda error: faults.append(str(error)))
    found.on("console", lambda said: faults.append(said.text)
             if said.type == "error" and "status of 4" not in said.text
             and "status of 5" not in said.text else None)
    yield found
    made.close()
    assert not faults, faults


def shown(page: Page, url: str) -> None:
    """Open `url`, and wait until the page has loaded its data."""
    page.goto(url)
    page.wait_for_selector("h1")
    page.wait_for_function("() => !document.querySelector('main').innerText.includes('Loading …')")
    page.wait_for_function("() => !document.querySelector('[aria-busy=true]')")


CUT_COLUMNS = """
() => [...document.querySelectorAll(".scroll")].flatMap((box) => {
  const wrong = [], heads = [...box.querySelectorAll("th")], view = box.getBoundingClientRect();
  const note = (head, what) => wrong.push(`${box.ariaLabel}, ${head.innerText}: ${what}`);
  for (const head of heads) {
    if (head.clientWidth < 48) note(head, `${head.clientWidth} px wide`);
    if (head.firstElementChild.scrollWidth > head.clientWidth) note(head, "the heading is cut");
  }
  for (const cell of box.querySelectorAll("tr.row > .number, tr.row > td:has(button)")) {
    if (cell.scrollWidth > cell.clientWidth) note(heads[cell.cellIndex], `cut: ${cell.innerText}`);
  }
  if (heads[0].clientWidth < 80) note(heads[0], "a name cannot be read");
  box.scrollLeft = 1e6;
  const [first, last] = [heads[0], heads.at(-1)].map((one) => one.getBoundingClientRect());
  if (first.left < view.left || first.right > last.left) note(heads[0], "does not stay in sight");
  box.scrollLeft = 0;
  return wrong;
})
"""
"""A script that returns what cannot be read in a page's tables: a column or heading that is cut, or
a first column that leaves the window when the others scroll sideways."""


def faults_of(page: Page) -> list[Any]:
    """axe-core's findings on a page: each is a broken rule and the first element that breaks it."""
    axe = built("node/node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")
    found: list[Any] = page.evaluate(
        axe + "; axe.run().then(found => found.violations.map("
        "one => [one.id, one.nodes[0].html]))")
    return found


def log_in(page: Page, url: str, user: str, password: str) -> None:
    """Log in as a user of the brokers."""
    page.goto(url)
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="Overview").wait_for()


def fill(page: Page, **fields: str) -> None:
    """Fill the fields of the open dialog."""
    for name, value in fields.items():
        field = page.locator(f"dialog [name={name}]")
        if field.evaluate("element => element.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)


def act(page: Page, verb: str, said: str, confirm: str = "") -> None:
    """Press the dialog's button `verb`, and wait until the page shows the text `said`. If `confirm`
    is given, the button must be disabled until this text is typed."""
    button = page.locator("dialog").get_by_role("button", name=verb, exact=True)
    if confirm:
        assert button.is_disabled(), f"{verb} asks to type a name"
        page.get_by_label("To confirm").fill(confirm)
    button.click()
    page.get_by_text(said).wait_for()


def row(page: Page, text: str) -> Any:
    """A locator of the table rows that contain this text."""
    return page.locator("tbody tr.row").filter(has_text=text)


def topic_made_filled_and_deleted(page: Page, served: Console) -> None:
    """Create a topic, watch a record arrive, change it in every way, delete it."""
    shown(page, f"{served.url}/topics")
    page.get_by_role("button", name="Create a topic").click()
    fill(page, topic="made", partitions="1", configs="retention.ms=86400000")
    act(page, "Create", "Topic made is created.")
    page.get_by_role("link", name="made").click()
    page.get_by_role("link", name="Records").click()
    page.get_by_label("live").check()
    page.get_by_text("Live: looked at 0 new records").wait_for()
    page.get_by_role("button", name="Produce").click()
    fill(page, value="hello from a page", headers="trace: 1")
    act(page, "Send", "Written to partition 0 at offset 0.")
    row(page, "hello from a page").click()
    page.get_by_role("button", name="Send again").click()
    act(page, "Send", "Written to partition 0 at offset 1.")
    page.get_by_role("button", name="Add partitions").click()
    fill(page, count="2")
    act(page, "Add", "The partitions are added.")
    page.get_by_role("button", name="Trim").click()
    fill(page, before="1", partition="0")
    act(page, "Delete records", "The records are deleted.", "made")
    page.get_by_role("button", name="Elect").click()
    act(page, "Elect", "Leaders are elected.")
    page.get_by_role("link", name="Settings").click()
    row(page, "retention.ms").get_by_role("button", name="change").click()
    fill(page, value="90000000")
    act(page, "Change", "retention.ms is changed.")
    row(page, "90000000").get_by_role("button", name="reset").click()
    act(page, "Reset", "retention.ms is reset.")
    page.get_by_role("button", name="Delete", exact=True).click()
    act(page, "Delete the topic", "Topic made is deleted.", "made")
    page.wait_for_url("**/topics")


def group_set_back_and_deleted(page: Page, served: Console) -> None:
    """Reset a group's offsets after a preview, delete its offsets of a topic, delete the group."""
    offsets = [{"topic": topic, "partition": 0, "offset": offset}
               for topic, offset in (("orders", 100), ("clicks", 0))]
    cookie = "; ".join(f"{one['name']}={one['value']}" for one in page.context.cookies())
    given = {"offsets": offsets, "dry_run": False, "confirm": "resting"}
    assert served.ask("/groups/resting/reset", "POST", given, {"Cookie": cookie}).status == 200
    shown(page, f"{served.url}/groups/resting")
    page.get_by_role("button", name="Reset offsets").click()
    fill(page, to="by records", value="-30", topics="orders")
    page.get_by_role("button", name="Show what will change").click()
    change = page.get_by_label("What will change").locator("tbody tr.row")
    change.wait_for()
    assert re.split(r"\s+", change.inner_text().strip())[:5] == ["orders", "0", "100", "70", "-30"]
    assert page.evaluate("() => document.activeElement.name") == "confirm"
    act(page, "Reset", "1 offset is set.", "resting")
    page.get_by_role("button", name="Reset offsets").click()
    page.locator("dialog [name=file]").set_input_files({
        "name": "offsets.csv", "mimeType": "text/csv",
        "buffer": b"topic,partition,offset\r\norders,0,42\r\n"})
    page.get_by_role("button", name="Show what will change").click()
    change.wait_for()
    assert re.split(r"\s+", change.inner_text().strip())[:5] == ["orders", "0", "70", "42", "-28"]
    act(page, "Reset", "1 offset is set.", "resting")
    page.get_by_role("button", name="Forget a topic").click()
    fill(page, topic="clicks")
    act(page, "Delete the offsets", "The offsets for clicks are deleted.", "resting")
    page.get_by_role("button", name="Delete", exact=True).click()
    act(page, "Delete the group", "Group resting is deleted.", "resting")
    page.wait_for_url("**/groups")


def leftovers_cleaned_up(page: Page, served: Console) -> None:
    """On the clean-up page, delete a group's offsets of a topic that no member reads."""
    shown(page, f"{served.url}/clean-up")
    row(page, "No member of the group reads this topic.").get_by_role(
        "button", name="delete offsets").click()
    act(page, "Delete", "The offsets are deleted.", "billing")


def users_and_their_rights_changed(page: Page, served: Console) -> None:
    """Give a user a password and a quota, and take both away."""
    shown(page, f"{served.url}/access/users")
    page.get_by_role("button", name="Set a password").click()
    fill(page, user="zoe", password="z-secret")
    act(page, "Set", "The password is set.")
    row(page, "zoe").get_by_role("button", name="delete").click()
    act(page, "Delete", "The credential is deleted.", "zoe")
    page.get_by_role("link", name="Quotas").click()
    page.get_by_role("button", name="Set a quota").click()
    fill(page, name="zoe", value="1000000")
    act(page, "Set", "The quota is set.")
    row(page, "zoe").get_by_role("button", name="remove").click()
    act(page, "Remove", "The quota is removed.")


def rules_changed(page: Page, served: Console) -> None:
    """Add an ACL and remove it."""
    shown(page, f"{served.url}/access/acls")
    page.get_by_role("button", name="Add a rule").click()
    fill(page, principal="User:zoe", name="zoe-topic")
    act(page, "Add", "The rule is added.")
    row(page, "zoe-topic").get_by_role("button", name="remove").click()
    act(page, "Remove", "The rule is removed.", "User:zoe")


def broker_set_and_leaders_elected(page: Page, served: Console) -> None:
    """Change a setting of a broker, and elect preferred leaders everywhere."""
    shown(page, f"{served.url}/brokers/1?all=1")
    page.get_by_role("searchbox").fill("log.cleaner.threads")
    row(page, "log.cleaner.threads").get_by_role("button", name="change").click()
    fill(page, value="2")
    act(page, "Change", "log.cleaner.threads is changed.")
    row(page, "dynamic broker config").get_by_role("button", name="reset").click()
    act(page, "Reset", "log.cleaner.threads is reset.")
    page.get_by_role("link", name="Brokers").click()
    page.get_by_role("button", name="Elect preferred leaders").click()
    act(page, "Elect", "partitions have another leader.")


def open_transaction_aborted(page: Page, served: Console) -> None:
    """Abort the transaction that a producer has left open."""
    shown(page, f"{served.url}/transactions")
    row(page, "slow-payment").get_by_role("button", name="abort").click()
    act(page, "Abort", "The transaction is aborted.", "slow-payment")


def records_taken_home(page: Page, served: Console) -> None:
    """Download the listed records as files, copy one as JSON, and download its value unchanged."""
    shown(page, f"{served.url}/topics/orders/records?from=oldest&partition=0&record=0/4")
    for button, line in (("JSON Lines", 4), ("CSV", 5)):
        with page.expect_download() as saved:
            page.get_by_role("button", name=button).click()
        text = Path(saved.value.path()).read_text()
        assert "<script>window.hit = 1</script>" in text.splitlines()[line]
    with page.expect_download() as saved:
        page.get_by_role("button", name="Readable JSON").click()
    record = json.loads(Path(saved.value.path()).read_text().splitlines()[4])
    assert record["value"]["order"] == 8 and record["time"].endswith("Z")
    assert record["headers"] == [{"name": "trace", "value": "t8"}]
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy as JSON").click()
    page.get_by_text("Copied.").wait_for()
    assert json.loads(page.evaluate("() => navigator.clipboard.readText()")) == record
    with page.expect_download() as saved:
        page.get_by_role("link", name="download").nth(1).click()
    assert saved.value.suggested_filename == "record-0-4.json"
    assert json.loads(Path(saved.value.path()).read_bytes())["order"] == 8


def replicas_moved(page: Page, served: Console) -> None:
    """Move a partition: of three brokers to the last and the first, otherwise to the last one. Wait
    until the page shows the new replicas."""
    shown(page, f"{served.url}/brokers")
    brokers = sorted(page.locator("tbody tr.row td:first-child").all_inner_texts())
    wanted = ", ".join(brokers[-1:] + brokers[:-2])
    shown(page, f"{served.url}/topics/clicks")
    page.get_by_role("button", name="Move", exact=True).click()
    fill(page, brokers=wanted, partition="0")
    act(page, "Move", "1 partition is being moved.")
    page.locator("tbody tr.row").nth(0).get_by_text(wanted, exact=True).first.wait_for()


def hanging_transaction_ended(page: Page, served: Console) -> None:
    """Abort a transaction that no coordinator knows. STORIES does not include this story, because
    not every cluster has such a transaction."""
    shown(page, f"{served.url}/transactions/hanging?minutes=0")
    row(page, "paid").get_by_role("button", name="abort").click()
    act(page, "Abort", "The transaction is aborted.", "paid")


STORIES = (
    topic_made_filled_and_deleted, group_set_back_and_deleted, leftovers_cleaned_up,
    users_and_their_rights_changed, rules_changed, broker_set_and_leaders_elected,
    open_transaction_aborted, records_taken_home, replicas_moved,
)
