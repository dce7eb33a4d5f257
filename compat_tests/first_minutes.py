"""A newcomer's first five minutes, in a fresh clone: each step of the quick start with its time.

`python -m compat_tests.first_minutes` clones what is committed, builds it without a compiler cache,
starts the broker on a free port and runs every block of the quick start as it stands there. It ends
with status 1 if a step fails, or all of it took more than five minutes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from compat_tests.brokers import free_port
from compat_tests.requirements import ROOT

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
READY = b"ottla ready: "
SECONDS_MAX = 300
STEP_SECONDS_MAX = 280


class Watch:
    """Runs commands, and prints how long each took."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.total = directory, 0.0
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")
        } | {"CCACHE_DISABLE": "1"}

    def note(self, name: str, begin: float) -> None:
        """Prints and adds up the time since `begin`."""
        seconds = time.monotonic() - begin
        self.total += seconds
        print(f"{name:<50} {seconds:6.1f} s", flush=True)

    def run(self, name: str, *command: str) -> None:
        """Runs a command in the clone; SystemExit if it fails."""
        begin = time.monotonic()
        done = subprocess.run(
            command, cwd=self.directory, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=STEP_SECONDS_MAX,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{name}: status {done.returncode}\n{done.stdout[-3000:]}")
        self.note(name, begin)


def started(watch: Watch, log: Path, port: int) -> subprocess.Popen[bytes]:
    """The broker as `make run` starts it, on another port, once its ready line is there."""
    begin = time.monotonic()
    command = [".venv/bin/ottla", "server", "start",
               "--override", f"listeners=PLAINTEXT://localhost:{port}"]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=watch.directory, env=watch.environment, stdout=out, stderr=out)
    while READY not in log.read_bytes():
        if process.poll() is not None or time.monotonic() - begin > STEP_SECONDS_MAX:
            process.kill()
            raise SystemExit(f"the broker did not start:\n{log.read_text()}")
        time.sleep(0.01)
    watch.note("start of the broker", begin)
    return process


def main() -> int:
    """The command."""
    with tempfile.TemporaryDirectory(prefix="ottla-first-minutes-") as directory:
        clone, port = Path(directory) / "ottla", free_port()
        watch = Watch(Path(directory))
        watch.run("git clone", "git", "clone", "-q", str(ROOT), str(clone))
        watch.directory = clone
        watch.run("make build, which make run begins with", "make", "build")
        process = started(watch, Path(directory) / "broker.log", port)
        try:
            blocks = BLOCK.findall((clone / "docs" / "quick_start.md").read_text())
            for number, (language, block) in enumerate(blocks, 1):
                block = block.replace("localhost:9092", f"localhost:{port}")
                if "kcat" in block and shutil.which("kcat") is None:
                    print(f"block {number}: kcat is not installed, left out")
                    continue
                watch.environment["OTTLA_BOOTSTRAP_SERVERS"] = f"localhost:{port}"
                command = [".venv/bin/python", "-c"] if language == "python" else ["sh", "-ec"]
                first = block.strip().splitlines()[0][:30]
                watch.run(f"block {number}: {first}", *command, block)
        finally:
            process.terminate()
            process.wait()
    print(f"{'in all':<50} {watch.total:6.1f} s")
    return int(watch.total > SECONDS_MAX)


if __name__ == "__main__":
    raise SystemExit(main())
