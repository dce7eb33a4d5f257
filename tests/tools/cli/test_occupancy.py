"""If another program uses a port, the error comes at once, and says what to type instead."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.tools.cli import occupancy
from tests.tools.cli.ottla_command import Ottla


@pytest.fixture
def port() -> Iterator[int]:
    """A port that is in use, at one of the addresses of localhost."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield int(other.getsockname()[1])


def test_make_run_names_its_variables_and_ports_that_are_free(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert occupancy.main(["PORT=0", f"HTTP_PORT={port}", f"CONSOLE_PORT={port}"]) == 1
    said = capsys.readouterr().err
    start = f"make: another program listens on HTTP_PORT={port}, CONSOLE_PORT={port}; take other"
    assert said.startswith(f"{start} ports: make run HTTP_PORT=")
    words = said.rpartition("make run ")[2].split()
    assert [word.partition("=")[0] for word in words] == ["HTTP_PORT", "CONSOLE_PORT"]
    assert occupancy.main(words) == 0 and occupancy.main(["PORT=x", "HTTP_PORT=99999"]) == 0
    assert capsys.readouterr().err == ""


def test_what_starts_brokers_names_its_own_flag(port: int, ottla: Ottla, tmp_path: Path) -> None:
    done = ottla(f"server dev --port {port}")
    assert done.status == 1 and done.out == ""
    assert done.err == (
        f"ottla server dev: another program listens on port {port}: name another port with"
        " --port, or omit --port for a free port\n"
    )
    done = ottla(f"cluster start --brokers 1 --port {port} {tmp_path / 'cluster'}")
    assert done.status == 1 and done.out == ""
    assert done.err == (
        f"ottla cluster start: another program listens on port {port}, which broker 1 needs:"
        " choose another first port with --port (make cluster PORT=…)\n"
    )
    assert not (tmp_path / "cluster").exists()
