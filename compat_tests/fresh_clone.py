"""Runs the commands of documents in a fresh clone with a fresh HOME.

Only the placeholder DIR, ports and addresses are replaced. The ports are replaced because another
program may use port 9092.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType

from compat_tests.requirements import ROOT
from ottla.tools.zookeeper.local import free_port
from tests.documents import Block

SERVES = re.compile(r"(make (run|cluster)|ottla (server|cluster) start)\b")
"""Commands that run until Ctrl-C."""
READY = re.compile(r"^ottla (cluster )?ready: ", re.MULTILINE)
SECONDS_MAX = 600
COMPILED = "build/cython"


class FreshClone:
    """What a newcomer has: the sources, and two terminals; a broker may run in the first."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.home = directory / "ottla", directory / "home"
        self.log = directory / "first-terminal.log"
        self.port = free_port()
        self.broker: subprocess.Popen[bytes] | None = None
        self.activated = ""
        self.variables: dict[str, str] = {}
        self.home.mkdir()
        subprocess.run(["git", "clone", "-q", str(ROOT), str(self.directory)], check=True)
        self._take_what_is_not_committed()

    def _take_what_is_not_committed(self) -> None:
        """Repeat in the clone all changes of this checkout that are not committed."""
        changed = subprocess.run(
            ["git", "ls-files", "-mo", "--exclude-standard"], cwd=ROOT,
            capture_output=True, text=True, check=True,
        ).stdout.splitlines()
        for name in changed:
            target = self.directory / name
            if (ROOT / name).is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, target)
            else:
                target.unlink(missing_ok=True)

    def keep_what_is_compiled(self) -> None:
        """Copy compiled modules into the clone, because compiling takes minutes; `make newcomer`
        does not call this. To prevent compilation, the copies must be newer than the sources and
        the installed Cython, and modules must be newer than their C files."""
        self.run("make .venv/.base")
        source = ROOT / COMPILED
        modules = [each for each in source.glob("*-cpython-*") if each.is_dir()]
        shutil.copytree(
            source, self.directory / COMPILED, copy_function=shutil.copyfile,
            ignore=lambda where, names: [n for n in names if Path(where, n) in modules],
        )
        for each in modules:
            shutil.copytree(
                each, self.directory / COMPILED / each.name, copy_function=shutil.copyfile)

    @property
    def environment(self) -> dict[str, str]:
        """A user's environment variables, without those that refer to this checkout."""
        kept = {
            name: value for name, value in os.environ.items()
            if not name.startswith(("OTTLA_", "PYTHON", "VIRTUAL_", "PYTEST", "MAKE", "CI"))
        }
        ours = f"{ROOT}/.venv/bin"
        path = ":".join(part for part in os.environ["PATH"].split(":") if part != ours)
        cache = subprocess.run(
            ["python3", "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=False)
        return kept | self.variables | {
            "HOME": str(self.home), "PATH": path, "PIP_CACHE_DIR": cache.stdout.strip(),
            "PORT": str(self.port), "HTTP_PORT": str(free_port()),
            "CONSOLE_PORT": str(free_port()),
            "OTTLA_BOOTSTRAP_SERVERS": f"localhost:{self.port}",
        }

    def run(self, script: str, *interpreter: str) -> str:
        """Run a script in the second terminal, and return what it prints. Raises AssertionError if
        it fails."""
        done = subprocess.run(
            [*(interpreter or ("sh", "-ec")), script], cwd=self.directory, env=self.environment,
            text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=SECONDS_MAX,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\nstatus {done.returncode}: {done.stdout[-4000:]}"
        return done.stdout

    def run_block(self, block: Block) -> str:
        """Run a document's block; return what it printed, without the output of a broker."""
        text = block.text.replace("localhost:9092", f"localhost:{self.port}")
        text = text.replace("localhost:9093", f"localhost:{self.port + 1}")
        text = text.replace(" DIR ", " other-cluster/broker-2 ")
        if block.language == "python":
            if "def test_" in text:
                (self.directory / "test_block.py").write_text(text)
                return self.run(f"{self.activated}pytest -q test_block.py")
            return self.run(text, f"{self.directory}/.venv/bin/python", "-c")
        printed, script = "", ""
        for line in text.splitlines(keepends=True):
            if line.startswith("# Ctrl-C") and script == "":
                self.stop()
            elif SERVES.match(line):
                printed += self.run(self.activated + script) if script else ""
                script = ""
                self.start(line)
            else:
                script += line
        printed += self.run(self.activated + script) if script else ""
        self.activated += "".join(re.findall(r"^\. .*\n", text, re.MULTILINE))
        return printed

    def start(self, line: str) -> None:
        """Start a command that SERVES matches in the first terminal, and wait until it is ready."""
        self.stop()
        line = line.split("  #")[0].rstrip()
        if line.startswith("ottla server start"):
            line += f" --override listeners=PLAINTEXT://localhost:{self.port}"
        elif line.startswith("ottla cluster start"):
            line += f" --port {self.port}"
        with self.log.open("wb") as log:
            self.broker = subprocess.Popen(
                ["sh", "-ec", self.activated + line], cwd=self.directory, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + SECONDS_MAX
        while not READY.search(self.printed()):
            running = self.broker.poll() is None and time.monotonic() < deadline
            assert running, f"{line}:\n{self.printed()[-4000:]}"
            time.sleep(0.05)

    def printed(self) -> str:
        """What the first terminal shows since its last command was started."""
        return self.log.read_text(errors="replace")

    def stop(self) -> None:
        """Press Ctrl-C in the first terminal, even if its command has already ended."""
        if self.broker is not None:
            os.killpg(self.broker.pid, signal.SIGINT)
            self.broker.wait(60)
            self.broker = None

    def forget_data(self) -> None:
        """Stop the broker, and remove the files that a document's commands have left."""
        self.stop()
        self.activated = ""
        for name in (
            "data", "other-data", "other-cluster", "backup", "data-before", "zookeeper-backup",
            "server.properties", "test_block.py",
        ):
            path = self.directory / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def __enter__(self) -> FreshClone:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.stop()
