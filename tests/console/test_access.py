"""Who may do what: sessions of broker users, cookies, origins, hosts, read-only consoles."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ottla.client.errors import ClientError
from ottla.console.connections import Connections, Target
from ottla.console.guard import Guard
from ottla.console.sessions import FAILURES_MAX, LIFE_SECONDS, LoginRefused, Sessions
from tests.broker.running import kept_port
from tests.broker.service import Service
from tests.console.consoles import Console
from tests.waiting import until

USERS = 'required user_root="r" user_ann="a" user_bob="b"'
SECURED = {
    "listeners": "SASL_PLAINTEXT://localhost:0",
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config":
        f"org.apache.kafka.common.security.plain.PlainLoginModule {USERS};",
    "sasl.enabled.mechanisms": "PLAIN",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root",
}


@pytest.fixture(scope="module")
def secured_http_port() -> Iterator[int]:
    """Yields a port for the HTTP listener of the broker whose users log in."""
    with kept_port() as port:
        yield port


@pytest.fixture(scope="module")
def secured(
    tmp_path_factory: pytest.TempPathFactory, secured_http_port: int
) -> Iterator[Console]:
    """A console of a broker whose users log in; ann may read one topic."""
    folder = tmp_path_factory.mktemp("secured")
    (folder / "server.properties").write_text(
        f"log.dirs={folder / 'data'}\nottla.http.listener=localhost:{secured_http_port}\n"
        + "".join(f"{name}={value}\n" for name, value in SECURED.items()))
    service = Service(folder)
    assert service.process.stdout is not None
    ready = service.process.stdout.readline().decode()
    address = ready.rpartition("://")[2].partition(",")[0]
    config = folder / "client.properties"
    config.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n")
    with Console(address, folder, "--command-config", str(config)) as running:
        root = running.log_in("root", "r")
        for topic in ("orders", "secrets"):
            made = {"topic": topic, "partitions": 1}
            assert running.ask("/topics", "POST", made, root).status == 200
        for operation in ("DESCRIBE", "READ"):
            rule = {"resource": "TOPIC", "name": "orders", "principal": "User:ann",
                    "operation": operation, "permission": "ALLOW"}
            assert running.ask("/acls", "POST", rule, root).status == 200
        yield running
    assert service.stop() == 0


def test_nothing_is_shown_before_a_login(secured: Console) -> None:
    for path in ("/overview", "/topics", "/groups", "/stream?path=/topics", "/connections"):
        assert secured.ask(path).status == 401, path
    wrong = {"user": "ann", "password": "wrong", "mechanism": "PLAIN"}
    refused = secured.ask("/session", "POST", wrong)
    assert refused.status == 401 and "set-cookie" not in refused.headers
    assert not secured.get("/session")["logged_in"]


def test_a_user_sees_and_changes_what_the_broker_allows(secured: Console) -> None:
    root, ann = secured.log_in("root", "r"), secured.log_in("ann", "a")
    assert {row["topic"] for row in secured.get("/topics", **root)["rows"]} >= {"orders", "secrets"}
    assert [row["topic"] for row in secured.get("/topics", **ann)["rows"]] == ["orders"]
    assert secured.ask("/topics/secrets", headers=ann).status == 404
    assert secured.ask("/topics/secrets/records", headers=ann).status in (403, 404)
    assert secured.get("/connections", **ann)["rows"] == []
    assert secured.get("/connections", **root)["rows"] != []
    assert secured.ask("/acls", headers=ann).status == 403
    refused = secured.ask("/topics/orders", "DELETE", {"confirm": "orders"}, ann)
    assert (refused.status, refused.json["error"]) == (403, "TOPIC_AUTHORIZATION_FAILED")
    assert secured.ask("/history?kind=topic&name=secrets&measure=offset",
                       headers=ann).status == 404


def let_bob_see(secured: Console, root: dict[str, str], group: str) -> None:
    """Allow bob to see one topic, this group, and what the brokers report."""
    for kind, name, operation in (
        ("TOPIC", "orders", "DESCRIBE"), ("GROUP", group, "DESCRIBE"),
        ("CLUSTER", "kafka-cluster", "DESCRIBE"), ("CLUSTER", "kafka-cluster", "DESCRIBE_CONFIGS"),
    ):
        rule = {"resource": kind, "name": name, "principal": "User:bob", "operation": operation,
                "permission": "ALLOW"}
        assert secured.ask("/acls", "POST", rule, root).status == 200


def test_totals_are_of_what_a_user_may_see(secured: Console) -> None:
    root = secured.log_in("root", "r")
    let_bob_see(secured, root, "mixed")
    for topic, count in (("orders", 2), ("secrets", 5)):
        for _ in range(count):
            sent = {"value": "x" * 100, "partition": 0}
            assert secured.ask(f"/topics/{topic}/records", "POST", sent, root).status == 200
    first = [{"topic": topic, "partition": 0, "offset": 0} for topic in ("orders", "secrets")]
    committed = {"offsets": first, "dry_run": False, "confirm": "mixed"}
    assert secured.ask("/groups/mixed/reset", "POST", committed, root).status == 200

    bob = secured.log_in("bob", "b")
    every, some = secured.get("/overview", **root), secured.get("/overview", **bob)
    assert (every["topics"], every["lag"]) == (2, 7) and every["records"] >= 7
    assert (some["topics"], some["records"], some["lag"]) == (1, 2, 2)
    assert some["bytes"] == some["bytes_of_replicas"] == secured.get("/topics", **bob)["rows"][0][
        "bytes"] < every["bytes"]
    [group] = secured.get("/groups", **bob)["rows"]
    assert (group["lag"], group["topics"], group["lag_bytes"]) == (2, ["orders"], None)
    [whole] = secured.get("/groups", **root)["rows"]
    page, page_of_root = (secured.get("/groups/mixed", **one) for one in (bob, root))
    assert [row["topic"] for row in page["rows"]] == ["orders"]
    assert 0 < page["lag_bytes"] < page_of_root["lag_bytes"] == whole["lag_bytes"]
    assert [one["kind"] for one in page_of_root["why"]["now"]] == ["no_members", "lag"]
    assert [one["kind"] for one in page["why"]["now"]] == ["no_members"]
    assert [one["kind"] for one in page_of_root["why"]["events"]] == ["offsets_set"]
    assert page["why"]["events"] == [], "the event names a topic that bob may not see"
    assert secured.ask("/audit", headers=bob).status == 403
    [rule] = [row for row in secured.get("/audit", **root)["rows"]
              if row["api"] == "CreateTopics" and row["what"].startswith("secrets")]
    assert (rule["principal"], rule["outcome"], rule["client_id"]) == (
        "User:root", "done", "ottla-console")
    seen = {topic for row in secured.get("/connections", **bob)["rows"]
            for topic in row["produces_to"] + row["fetches_from"]}
    assert "secrets" not in seen

    def graphs() -> list[Any]:
        paths = [f"/history?measure=lag&kind={kind}" for kind in ("total", "group&name=mixed")]
        found = [secured.get(path, **user)["points"] for user in (root, bob) for path in paths]
        return [points and points[-1][1] for points in found]

    until(lambda: graphs() == [7, 7, 2, 2], "each has graphs of their own", between=0.2)


def test_an_event_of_a_hidden_topic_stays_hidden_after_its_offsets_are_gone(
    secured: Console
) -> None:
    root = secured.log_in("root", "r")
    let_bob_see(secured, root, "wiped")
    for topic in ("secrets", "orders"):
        committed = {"offsets": [{"topic": topic, "partition": 0, "offset": 0}],
                     "dry_run": False, "confirm": "wiped"}
        assert secured.ask("/groups/wiped/reset", "POST", committed, root).status == 200
    gone = secured.ask("/groups/wiped/topics/secrets", "DELETE", {"confirm": "wiped"}, root)
    assert gone.status == 200, gone
    of_root = secured.get("/groups/wiped", **root)["why"]
    assert any("secrets" in one["topics"] for one in of_root["events"])
    of_bob = secured.get("/groups/wiped", **secured.log_in("bob", "b"))["why"]
    assert of_bob["reported"] and "secrets" not in json.dumps(of_bob)


def test_a_session_ends_with_the_logout(secured: Console) -> None:
    ann, other = secured.log_in("ann", "a"), secured.log_in("ann", "a")
    assert secured.get("/session", **ann)["user"] == "ann"
    assert secured.ask("/session", "DELETE", {}, ann).status == 200
    assert secured.ask("/topics", headers=ann).status == 401
    assert secured.ask("/topics", headers=other).status == 200
    made_up = {"Cookie": "ottla=" + "x" * 43}
    assert secured.ask("/topics", headers=made_up).status == 401


def test_a_cookie_has_the_rights_of_its_user_wherever_it_is_sent_from(
    secured: Console, tmp_path: Path
) -> None:
    root, ann = secured.log_in("root", "r"), secured.log_in("ann", "a")
    names = [{row["topic"] for row in secured.get("/topics", **cookie)["rows"]}
             for cookie in (ann, root, ann)]
    assert names[0] == names[2] == {"orders"} < names[1], "views are not shared between users"
    both = {"Cookie": f"{ann['Cookie']}; user=root; session={root['Cookie'].partition('=')[2]}"}
    assert secured.get("/session", **both)["user"] == "ann"
    folder = tmp_path / "another"
    folder.mkdir()
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n")
    with Console("localhost:1", folder, "--command-config", str(config)) as another:
        assert another.ask("/topics", headers=root).status == 401, "another console's cookie"


def test_a_cookie_is_for_this_console_alone(secured: Console) -> None:
    body = {"user": "bob", "password": "b", "mechanism": "PLAIN"}
    cookie = secured.ask("/session", "POST", body).headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "path=/" in cookie


class Server:
    """Takes the place of a session's broker. It accepts one password."""

    def __init__(self, properties: dict[str, str]) -> None:
        self.right = properties["sasl.password"] == "right"
        self.closed = False

    def any(self) -> None:
        if not self.right:
            raise ClientError("authentication failed")

    def close(self) -> None:
        self.closed = True


class FakeTarget(Target):
    """A target that connects to a `Server` in place of a broker."""

    def cluster(self, properties: Any) -> Any:
        return Server(dict(properties))


def sessions_of(now: list[float]) -> Sessions:
    target = FakeTarget("x:1", {"security.protocol": "SASL_PLAINTEXT"})
    return Sessions(target, ThreadPoolExecutor(1), 100.0, lambda: now[0])


async def opened(sessions: Sessions) -> str:
    return await sessions.open("ann", "right", "PLAIN")


def test_a_session_that_is_not_used_expires_and_so_does_one_that_always_is() -> None:
    now = [0.0]

    async def story() -> None:
        sessions = sessions_of(now)
        token = await opened(sessions)
        now[0] = 90.0
        assert sessions.find(token) is not None
        now[0] = 180.0
        assert sessions.find(token) is not None
        now[0] = 281.0
        assert sessions.find(token) is None
        sessions.expire()
        assert sessions.by_hash == {}
        token = await opened(sessions)
        while now[0] < 281 + LIFE_SECONDS:
            assert sessions.find(token) is not None
            now[0] += 99
        assert sessions.find(token) is None

    asyncio.run(story())


def test_passwords_are_not_guessed_quickly() -> None:
    now = [0.0]

    async def story() -> None:
        sessions = sessions_of(now)
        for _ in range(FAILURES_MAX):
            with pytest.raises(LoginRefused, match="authentication failed"):
                await sessions.open("ann", "wrong", "PLAIN")
        with pytest.raises(LoginRefused, match="too many failed logins"):
            await opened(sessions)
        now[0] = 61.0
        assert await opened(sessions)

    asyncio.run(story())


def test_logins_at_the_same_time_are_no_way_to_guess_more_passwords() -> None:
    async def story() -> None:
        sessions = sessions_of([0.0])
        guesses = (sessions.open("ann", "wrong", "PLAIN") for _ in range(3 * FAILURES_MAX))
        answers = await asyncio.gather(*guesses, return_exceptions=True)
        tried = [each for each in answers if "authentication failed" in str(each)]
        assert len(tried) == FAILURES_MAX
        assert await sessions.open("bob", "right", "PLAIN"), "other users are not held up"

    asyncio.run(story())


def test_failed_logins_of_other_users_give_no_further_guesses() -> None:
    now = [0.0]

    async def story() -> None:
        sessions = sessions_of(now)
        for user in ["ann"] * FAILURES_MAX + [str(number) for number in range(1100)]:
            with pytest.raises(LoginRefused, match="authentication failed"):
                await sessions.open(user, "wrong", "PLAIN")
        with pytest.raises(LoginRefused, match="too many failed logins"):
            await opened(sessions)
        now[0] = 61.0
        with pytest.raises(LoginRefused, match="authentication failed"):
            await sessions.open("bob", "wrong", "PLAIN")
        assert len(sessions.failures) == 1, "old failures are forgotten"

    asyncio.run(story())


def test_what_is_still_running_at_the_end_of_a_session_is_closed_after_it() -> None:
    async def story() -> None:
        target = FakeTarget("x:1", {})
        kept = Connections(target, {"sasl.password": "right"}, ThreadPoolExecutor(1))
        found: Any = await kept.run(lambda cluster: cluster)
        assert not found.closed
        kept.close()
        assert found.closed
        late: Any = await kept.run(lambda cluster: cluster)
        assert late.closed

    asyncio.run(story())


@pytest.mark.parametrize(
    ("headers", "passes"),
    [
        ({"host": "localhost:1"}, True), ({"host": "127.0.0.1:1"}, True),
        ({"host": "[::1]:1"}, True), ({"host": "evil.example:1"}, False), ({}, False),
        ({"host": "localhost:1", "origin": "http://localhost:1"}, True),
        ({"host": "localhost:1", "origin": "https://localhost:1"}, False),
        ({"host": "localhost:1", "origin": "http://localhost:2"}, False),
        ({"host": "localhost:1", "origin": "null"}, False),
        ({"host": "localhost:1", "origin": "http://evil.example"}, False),
        ({"host": "localhost:1", "sec-fetch-site": "same-origin"}, True),
        ({"host": "localhost:1", "sec-fetch-site": "cross-site"}, False),
        ({"host": "localhost:1", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
         True),
        ({"host": "console.example:1"}, True),
    ],
)
def test_foreign_hosts_and_origins_are_refused(headers: dict[str, str], passes: bool) -> None:
    app: Any = None
    guard = Guard(app, "localhost", ["console.example"], False)
    assert (guard.refusal(headers) is None) is passes


def test_a_forged_request_changes_nothing(console: Console) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"},
                    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}):
        answer = console.ask("/topics", "POST", {"topic": "forged"}, headers)
        assert (answer.status, answer.json["error"]) == (403, "FOREIGN_ORIGIN")
    form = console.ask("/topics", "POST", b'{"topic": "forged"}', {"Content-Type": "text/plain"})
    assert form.status == 415
    assert "forged" not in {row["topic"] for row in console.get("/topics")["rows"]}


def test_every_answer_has_a_policy_without_exceptions(console: Console) -> None:
    for path in ("//", "//static/app.js", "//static/none.js", "/overview", "/nothing"):
        headers = console.ask(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy, path
        assert "*" not in policy and "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"


def test_no_path_leads_out_of_the_folder_of_static_files(console: Console) -> None:
    for path in ("/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e/app.py",
                 "/static/....//app.py", "/static//etc/passwd", "/static/%2fetc%2fpasswd",
                 "/..%2f..%2fetc/passwd", "/static/\\..\\app.py"):
        with socket.create_connection(("localhost", console.port), 10) as raw:
            raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                        .encode())
            answer = b"".join(iter(lambda: raw.recv(1 << 16), b""))
        assert b"from __future__" not in answer and b"root:" not in answer, path


def test_without_authentication_nothing_is_changed_unless_allowed(
    bootstrap: str, tmp_path: Path
) -> None:
    with Console(bootstrap, tmp_path) as careful:
        answer = careful.ask("/topics", "POST", {"topic": "no"})
        assert (answer.status, answer.json["error"]) == (403, "READ_ONLY")
        assert not careful.get("/session")["changes_allowed"]
        assert careful.ask("/topics/orders/records").status == 200
