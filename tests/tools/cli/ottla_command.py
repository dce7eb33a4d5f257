"""Runs `ottla …` inside the test process, against a broker in a thread."""

from __future__ import annotations

import contextlib
import io
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from ottla.tools.command import main
from ottla.tools.kafka_names import main as kafka_names_main

EXAMPLES_APART = {
    "cluster accept-backup", "cluster create", "cluster drain", "cluster restart-broker",
    "cluster stop-broker",
    "cluster start", "console", "reassign plan", "topic browse", "group why", "topic why",
    "server stop", "server dev", "server connections", "mirror", "kafka-server-start",
    "kafka-server-stop", "kafka-mirror-maker", "kafka-delegation-tokens",
}
"""Commands whose examples need more than the one running broker: they stop or start a broker, wait,
or need a terminal, a second cluster, a login or a cluster's directory. test_examples_apart.py runs
these examples."""


LOADED = (kafka_names_main,)
"""Imported here, not by the first command that needs it: pytest rewrites each module at its import,
and Python 3.11 fails if the broker's thread imports a module at the same time (SystemError, "AST
constructor recursion depth mismatch")."""


class Done(NamedTuple):
    """The exit status of a command, and what it printed."""

    status: int
    out: str
    err: str


class Ottla:
    """The command line with the address of one broker in its environment."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __call__(self, line: str | Sequence[str], stdin: bytes = b"") -> Done:
        """Run a command line, given as a shell would read it or as words without `ottla`."""
        words = shlex.split(line) if isinstance(line, str) else list(line)
        out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
        source = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OTTLA_BOOTSTRAP_SERVERS", self.address)
            patch.setattr("sys.stdin", source)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    status = main(words)
                except SystemExit as ended:
                    status = int(ended.code or 0)
        out.flush()
        printed = out.buffer.getvalue().decode(errors="replace")  # type: ignore[attr-defined]
        assert "Traceback" not in err.getvalue(), err.getvalue()
        return Done(status, printed, err.getvalue())

    def ok(self, line: str | Sequence[str], stdin: bytes = b"") -> str:
        """The output of a command that must succeed."""
        done = self(line, stdin)
        assert done.status == 0, f"{line}: {done}"
        return done.out


def mirroring(source: Ottla, target: Ottla, *more: str) -> subprocess.Popen[str]:
    """Start a mirror in a process of its own."""
    words = ["mirror", "--from", source.address, "--to", target.address, "--report", "0.1", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "ottla.tools.command", *words], stderr=subprocess.PIPE, text=True
    )
