"""The console's process: its start and end, a broker that disappears, TLS, history."""

from __future__ import annotations

import asyncio
import re
import socket
import sqlite3
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client.cluster import ClusterClient
from ottla.console.connections import Target
from ottla.console.history import LEVELS, SERIES_MAX, SILENT_SECONDS, History, Sample
from ottla.console.recorder import EACH_MAX, GROUP_MEASURES, once, samples_of
from ottla.console.sessions import Sessions
from ottla.tools.admin import topics
from ottla.tools.command import main
from ottla.tools.zookeeper.local import free_port
from tests.broker.security.authority import Authority
from tests.broker.service import Service
from tests.console.consoles import Console
from tests.foreign_server import HTTP, foreign_server
from tests.waiting import until


def test_it_says_where_it_is_and_ends_with_sigterm_or_its_parent(
    bootstrap: str, tmp_path: Path
) -> None:
    running = Console(bootstrap, tmp_path, "--with-parent")
    assert re.fullmatch(
        rf"ottla console of {bootstrap} on http://localhost:\d+\n", running.ready)
    assert b"<div id=\"app\">" in running.ask("//topics/orders").body
    assert running.process.stdin is not None
    running.process.stdin.close()
    assert running.ended() == 0


def test_a_wrong_command_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for given in (["--listen", "9309"], ["--certificate", "x.pem"]):
        assert main(["console", *given]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert main(["console", "--certificate", "none.pem", "--key", "none.pem"]) == 1
    assert capsys.readouterr().err == (
        "ottla console: --certificate: none.pem: no such file or directory\n")
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["console", "--listen", f"localhost:{port}"]) == 1
        assert capsys.readouterr().err == (
            f"ottla console: cannot listen on localhost:{port}: address already in use;"
            " set another address in --listen HOST:PORT\n"
        )
        assert main(["console", "--listen", f"localhost:{port}", "--with-parent"]) == 1
        assert capsys.readouterr().err.endswith("set another address in ottla.console.listener\n")


@pytest.mark.parametrize("kind, why", [
    ("directory", "unable to open database file"), ("text", "file is not a database"),
    ("below a file", "File exists"),
])
def test_a_history_that_cannot_be_used_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, why: str
) -> None:
    path = tmp_path / "history"
    if kind == "directory":
        path.mkdir()
    else:
        path.write_text("no database\n" * 1000)
    path = path / "file" if kind == "below a file" else path
    assert main(["console", "--listen", "localhost:0", "--history", str(path)]) == 1
    assert capsys.readouterr().err == (
        f"ottla console: --history {path}: {why}; name a file that the console may create, or one"
        " that it has created\n"
    )


def test_a_broker_that_disappears_is_an_answer_and_comes_back(tmp_path: Path) -> None:
    service = Service(tmp_path)
    host, port = service.ready()
    service.properties.write_text(
        service.properties.read_text().replace("localhost:0", f"localhost:{port}"))
    with ClusterClient(f"{host}:{port}") as cluster:
        topics.create(cluster, "t", partitions=1, replication_factor=1)
    with Console(f"{host}:{port}", tmp_path, "--timeout", "1") as running:
        assert len(running.get("/topics")["rows"]) == 1
        connection = running.connection()
        connection.request("GET", "/api/v1/stream?path=/topics")
        stream = connection.getresponse()
        assert b"change" in stream.readline()
        service.process.kill()
        service.process.wait()
        until(lambda: running.ask("/topics").status == 503, "the broker is away", between=0.2)
        assert running.ask("/session").status == 200
        until(lambda: b"UNREACHABLE" in stream.readline(), "the page is told")
        again = Service(tmp_path)
        again.ready()
        until(lambda: running.ask("/topics").status == 200, "the broker is back", between=0.2)
        connection.close()
        assert again.stop() == 0


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_a_broker_that_does_not_answer_is_said_once_as_is_its_return(
    protocol: str, bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With SASL, nobody has logged in here, so the console sends no requests for a user. It finds
    out by itself whether a broker answers."""
    def said(address: str, answered: bool | None) -> tuple[bool | None, str]:
        async def three_times() -> bool | None:
            target = Target(address, {"security.protocol": protocol})
            with ThreadPoolExecutor(1) as threads:
                sessions = Sessions(target, threads)
                sessions.contact.answered = answered
                for _ in range(3):
                    await once(History(None), sessions)
                sessions.close()
                return sessions.contact.answered

        return asyncio.run(three_times()), capsys.readouterr().err

    away = f"localhost:{free_port()}"
    why = f"cannot reach a broker at {away}: connection refused"
    shown = (f"ottla console: {why}; pages show this error until a broker answers; is a broker "
             "running there? `ottla server start` starts one\n")
    assert said(away, None) == (False, shown)
    assert said(bootstrap, False) == (True, f"ottla console: connected to {bootstrap}\n")
    assert said(bootstrap, None) == (True, "")
    with foreign_server(HTTP) as away:
        answered, shown = said(away, None)
        assert shown.startswith(f"ottla console: {away}: this is an HTTP server, "), shown
        assert shown.count("\n") == 1 and answered is False


def test_it_serves_tls_with_a_secure_cookie(bootstrap: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    key = authority.issue("localhost")
    trust = ssl.create_default_context(cafile=str(authority.file))
    with Console(
        bootstrap, tmp_path, "--certificate", str(key), "--key", str(key), tls=trust
    ) as running:
        assert running.ready.strip().rpartition(" ")[2].startswith("https://localhost:")
        answer = running.ask("/session")
        assert answer.status == 200 and "max-age" in answer.headers["strict-transport-security"]


def test_graphs_survive_a_restart(console: Console, bootstrap: str, tmp_path: Path) -> None:
    path = "/history?kind=topic&name=orders&measure=offset"
    with Console(bootstrap, tmp_path) as first:
        until(lambda: first.get(path)["points"], "a point is recorded", between=0.1)
        [[at, offset], *_] = first.get(path)["points"]
    with sqlite3.connect(tmp_path / "history.sqlite") as file:
        file.execute("update point set time = time - 600")      # so that a new point differs
    with Console(bootstrap, tmp_path) as second:
        until(lambda: [at - 600, offset] in second.get(path)["points"], "it is there", between=0.1)


def test_history_keeps_a_week_in_three_levels(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite")
    history.begin("c")
    end = 8 * 86400
    for now in range(0, end, 120):
        history.write([Sample("total", "", "lag", now)], now)
    history.trim(end)
    for step, kept in LEVELS:
        points = history.points("total", "", "lag", kept, end)
        assert len(points) == kept // max(step, 120)
        assert points[-1][1] == end - 120 and points[0][0] >= end - kept
    rows = history.connection.execute("select count(*) from point").fetchone()[0]
    assert rows <= sum(kept // max(step, 120) + 1 for step, kept in LEVELS)
    history.close()


def test_history_that_could_not_be_written_does_not_mix_two_topics(tmp_path: Path) -> None:
    history = History(tmp_path / "history.sqlite")
    history.begin("c")

    def failing() -> Iterator[Sample]:
        yield Sample("topic", "a", "offset", 1)
        raise OSError("the disk is full")

    with pytest.raises(OSError):
        history.write(failing(), 100)
    history.write([Sample("topic", "b", "offset", 2)], 110)
    history.write([Sample("topic", "a", "offset", 3)], 120)
    for name, point in (("a", (120, 3)), ("b", (110, 2))):
        assert history.points("topic", name, "offset", 3600, 120) == [point]
    history.close()


def test_history_is_bounded_and_keeps_clusters_apart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    history = History(tmp_path / "history.sqlite")
    history.begin("one")
    names = [str(number) for number in range(SERIES_MAX + 50)]
    for now in (100, 110):
        history.write((Sample("topic", name, "offset", 1) for name in names), now)
    assert len(history.ids) == SERIES_MAX
    [told] = caplog.messages
    assert told.startswith(f"the history has reached its limit of {SERIES_MAX} series"), "once"
    history.begin("two")
    assert history.points("topic", "0", "offset", 3600, 100) == []
    history.begin("one")
    assert len(history.points("topic", "0", "offset", 3600, 110)) == 2
    history.trim(110 + 8 * 86400)
    assert history.ids == {}
    history.close()


def test_everything_that_one_user_sees_has_room_in_the_history() -> None:
    names = [str(number) for number in range(EACH_MAX + 1)]
    taken: Any = SimpleNamespace(
        topics=[SimpleNamespace(name=name, total=lambda _: 1, of=lambda _: ()) for name in names],
        offsets=SimpleNamespace(starts=(), ends=(), rates=dict.fromkeys(names, 1.0)),
        disks=SimpleNamespace(directories=["data"], sizes=()),
    )
    groups = [{"group": name, **dict.fromkeys(GROUP_MEASURES, 1)} for name in names]
    history = History(None)
    history.begin("c")
    samples = list(samples_of(taken, groups))
    history.write(samples, 0)
    assert len(history.ids) == len(samples) > 2 * EACH_MAX
    history.close()


def test_a_new_series_takes_the_place_of_the_one_that_is_silent_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.console.history.SERIES_MAX", 3)
    history = History(tmp_path / "history.sqlite")
    history.begin("c")

    def write(now: int, *names: str) -> set[str]:
        history.write([Sample("topic", name, "offset", now) for name in names], now)
        return {name for _, name, _ in history.ids}

    assert write(0, "deleted first", "kept", "deleted") == {"deleted first", "kept", "deleted"}
    write(10, "deleted", "kept")
    assert write(SILENT_SECONDS, "kept", "new") == {"deleted first", "kept", "deleted"}
    now = SILENT_SECONDS + 5
    assert write(now, "kept", "new") == {"deleted", "kept", "new"}
    assert write(now + 6, "kept", "new", "newer", "newest") == {"kept", "new", "newer"}
    assert [value for _, value in history.points("topic", "new", "offset", 3600, now + 6)] == [
        now, now + 6], "the points of the former series are gone"
    assert history.points("topic", "deleted first", "offset", 3600, now) == []
    history.begin("")
    history.begin("c")
    assert {name for _, name, _ in history.ids} == {"kept", "new", "newer"}
    history.close()
