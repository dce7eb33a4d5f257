"""Runs one ZooKeeper server on this machine, in its own directory, by default on loopback.

Maven downloads ZooKeeper's jars once for each user into `~/.cache/ottla`. To use jars that exist
already, set OTTLA_ZOOKEEPER_JARS to their directory.
"""

from __future__ import annotations

import fcntl
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JAVA_OPTIONS = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
JAVA_RELEASE_MIN = 11
FETCHED = re.compile(r"Downloaded from .*/([^/]+\.jar) \(([^)]+)\)")
"""Maven's line about a downloaded file: its name and size."""
LOCK = "lock"
START_SECONDS = 30.0
STOP_SECONDS = 10.0
TICK_MS = 500
PORTS = range(10_000, 32_768)
SESSION_MS_MAX = 60_000
"""The longest zookeeper.session.timeout.ms that the server grants. ZooKeeper's default of 20 ticks
would be 10 s, with the TICK_MS above."""


class ZooKeeperFailed(Exception):
    """ZooKeeper cannot run here; the text says why, or ends with output of Maven or ZooKeeper."""


def java() -> str:
    """The path of the `java` program that runs ZooKeeper. Raises ZooKeeperFailed."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=f"{home}/bin") if home else None
    path = path or shutil.which("java")
    if path is None:
        raise ZooKeeperFailed(
            "ZooKeeper needs Java, which is not installed. Run `apt install"
            " openjdk-17-jre-headless`, or name a running ZooKeeper with --zookeeper host:port"
        )
    printed = subprocess.run([path, "-version"], capture_output=True, text=True).stderr
    release = printed.partition('"')[2].partition(".")[0]
    if not release.isdecimal() or int(release) < JAVA_RELEASE_MIN:
        raise ZooKeeperFailed(
            f"{path} is Java {release or '?'}, but ZooKeeper needs Java"
            f" {JAVA_RELEASE_MIN} or newer"
        )
    return path


def jars() -> Path:
    """The directory of the jars. Downloads missing jars. Raises ZooKeeperFailed."""
    given = os.environ.get("OTTLA_ZOOKEEPER_JARS")
    if given:
        if not list(Path(given).glob("zookeeper-*.jar")):
            raise ZooKeeperFailed(
                f"OTTLA_ZOOKEEPER_JARS={given}: the directory contains no zookeeper-*.jar")
        return Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla" / "zookeeper"
    complete = cache / "pom.xml"
    if complete.exists() and complete.read_bytes() == POM.read_bytes():
        return cache
    maven = shutil.which("mvn")
    if maven is None:
        raise ZooKeeperFailed(
            f"ZooKeeper's jars are not in {cache}, and Maven is not installed to download them. Run"
            " `apt install maven`, or set OTTLA_ZOOKEEPER_JARS to a directory with the jars"
        )
    shutil.rmtree(cache, ignore_errors=True)
    print(
        f"Maven downloads ZooKeeper's jars into {cache}. Later starts need no download",
        file=sys.stderr,
    )
    run_maven([
        maven, "-B", "-f", str(POM), "dependency:copy-dependencies",
        "-DincludeScope=runtime", f"-DoutputDirectory={cache}",
    ])  # fmt: skip
    shutil.copyfile(POM, complete)
    return cache


def run_maven(command: list[str]) -> None:
    """Runs Maven, and prints each file that it downloads. Raises ZooKeeperFailed."""
    printed = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as maven:
        assert maven.stdout is not None
        for line in maven.stdout:
            printed.append(line)
            if match := FETCHED.search(line):
                print(f"  {match[1]} ({match[2]})", file=sys.stderr, flush=True)
    if maven.returncode != 0:
        raise ZooKeeperFailed(
            f"Maven could not download ZooKeeper's jars:\n{''.join(printed)[-2000:]}"
        )


def free_port() -> int:
    """A port of the loopback address that nothing uses at this moment. It is below the ports that
    kernels choose for outgoing connections, so that none of these takes it meanwhile.

    Raises:
        OSError: a hundred ports, chosen at random, were all in use.
    """
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe:
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise OSError(f"no free port was found between {PORTS[0]} and {PORTS[-1]}")


class LocalZooKeeper:
    """A ZooKeeper server, which keeps its port and data when it is started again. `settings` are
    further lines of its configuration file."""

    def __init__(
        self, directory: Path, port: int = 0, host: str = "127.0.0.1", settings: str = ""
    ) -> None:
        self.directory, self.host, self.settings = directory, host, settings
        self.port = port or free_port()
        self.log = directory / "zookeeper.log"
        self.process: subprocess.Popen[bytes] | None = None

    name, held, restart = "ZooKeeper", False, ""

    @property
    def connect(self) -> str:
        """The value for `zookeeper.connect`."""
        return f"{self.host}:{self.port}"

    @property
    def question(self) -> tuple[tuple[str, int], bytes]:
        """The server's address, and a command that it answers, even while it serves no sessions."""
        return (self.host, self.port), b"srvr"

    @property
    def settings_file(self) -> Path:
        """The configuration file, which is the last argument of the server's command."""
        return (self.directory / "zoo.cfg").absolute()

    @property
    def left_behind(self) -> str:
        """The id of the process that uses the directory, from the lock file; "" if none uses it."""
        try:
            with (self.directory / LOCK).open() as lock:
                pid = lock.read()
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return pid
        except FileNotFoundError:
            pass
        return ""

    def end_former(self) -> None:
        """Ends a server that still uses the directory. If this fails, `start` says so."""
        if not (pid := self.left_behind):
            return
        for number in (signal.SIGTERM, signal.SIGKILL):         # the second for one that hangs
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(pid), number)
            deadline = time.monotonic() + STOP_SECONDS
            while self.left_behind == pid and time.monotonic() < deadline:
                time.sleep(0.02)

    def start(self) -> None:
        """Starts the server and waits until it answers. Raises ZooKeeperFailed, also if another
        server uses the directory. ZooKeeper itself has no lock: both servers would write to one
        log."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / LOCK).open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as held:
                raise ZooKeeperFailed(
                    f"a ZooKeeper that was started earlier still uses {self.directory}. If the"
                    " cluster in this directory does not run any more, end its ZooKeeper with"
                    f" `kill {self.left_behind}`"
                ) from held
            self._spawn(lock.fileno())
            assert self.process is not None
            lock.truncate(0)
            lock.write(str(self.process.pid).encode())
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise ZooKeeperFailed(f"ZooKeeper did not start:\n{self.tail()}")
            time.sleep(0.02)

    def _spawn(self, lock: int) -> None:
        """Start the process, which keeps the lock until it ends."""
        command = [java(), *JAVA_OPTIONS]
        self.settings_file.write_text(
            f"dataDir={(self.directory / 'data').absolute()}\n"
            f"clientPortAddress={self.host}\nclientPort={self.port}\n"
            f"tickTime={TICK_MS}\nmaxSessionTimeout={SESSION_MS_MAX}\n"
            "admin.enableServer=false\nmaxClientCnxns=0\n"
            "4lw.commands.whitelist=srvr\nautopurge.purgeInterval=1\n"
            f"{self.settings}"
        )
        command += [f"-Dlogback.configurationFile={HERE / 'logback.xml'}"]
        command += ["-cp", f"{jars()}/*", MAIN, str(self.settings_file)]
        with self.log.open("ab") as log:
            # In its own process session, so that Ctrl-C does not reach ZooKeeper, but only
            # `ottla cluster start`, which stops the brokers first and ZooKeeper last.
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                pass_fds=(lock,),
            )  # fmt: skip

    def answers(self) -> bool:
        """Whether the server accepts sessions: only then does its answer to `srvr` contain "Mode".
        An answer to `ruok` would not show this, since ZooKeeper answers `ruok` earlier."""
        try:
            with socket.create_connection((self.host, self.port), 1) as connection:
                connection.sendall(b"srvr")
                return b"Mode: " in b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return False

    def tail(self) -> str:
        """The last lines that the server printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    def stop(self) -> None:
        """Stops the server cleanly. A server that hangs is killed; this does not damage its log."""
        if self.process is None:
            return
        if not self.answers():
            return self.kill()
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
