"""Runs each command in a fork of one process, which has imported what most commands need.

Unlike a run inside the test process, this also tests how the interpreter ends: what it prints about
a closed pipe, and its exit status after a signal. A fork takes a few milliseconds, a new process
200.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.tools.cli.ottla_command import Done

PROGRAM = """
import json, os, signal, sys
import confluent_kafka, ottla.client.cluster, ottla.wire.messages
from ottla.tools.command import main
for line in sys.stdin.buffer:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(asked["folder"])
        os.environ["OTTLA_BOOTSTRAP_SERVERS"] = asked["address"]
        for number, name in enumerate(("in", "out", "err")):
            if asked[name] is None:
                reader, file = os.pipe()
                os.close(reader)
            else:
                flags = os.O_RDONLY | os.O_NOCTTY
                if number:
                    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
                file = os.open(asked[name], flags)
            os.dup2(file, number)
            os.close(file)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.stdin = open(0)
        sys.exit(main(asked["words"]))
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Forks:
    """The process whose forks run the commands."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def start(
        self, words: list[str], folder: Path, address: str, stdin: bytes = b"",
        closed_stdout: bool = False, stdin_path: str = "",
    ) -> int:
        """Start a command; returns its process id. With `closed_stdout`, its standard output is a
        pipe that nobody reads. `stdin_path` is a file or terminal to use instead of `stdin`."""
        (folder / "stdin").write_bytes(stdin)
        self.folder = folder
        asked = {
            "words": words, "folder": str(folder), "address": address,
            "in": stdin_path or str(folder / "stdin"), "err": str(folder / "stderr"),
            "out": None if closed_stdout else str(folder / "stdout"),
        }  # fmt: skip
        (folder / "stdout").write_bytes(b"")
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return int(self._line())

    def wait(self) -> Done:
        """Wait until the command ends; returns its status and output."""
        status = int(self._line())
        out = (self.folder / "stdout").read_text(errors="replace")
        return Done(status, out, (self.folder / "stderr").read_text(errors="replace"))

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(30)
