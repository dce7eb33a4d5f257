"""The brokers under test: Ottla, a cluster of three Ottla brokers, Apache Kafka from
benchmarks/peers, or a broker that is running already."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from compat_tests.requirements import PEER_DIR, zookeeper
from ottla.tools.cli.local_cluster import LocalCluster
from ottla.tools.zookeeper.local import free_port

READY = re.compile(
    r"^ottla ready: node (\d+) on PLAINTEXT://([^,\s]+)(?:,\S+)?, data in (.+)$", re.MULTILINE
)
START_SECONDS = 120
STOP_SECONDS = 120


class BrokerFailed(Exception):
    """A broker did not start or stop properly; the text ends with the last lines of its log."""


class Broker(Protocol):
    """What a test needs from a broker: its address, and for some tests its process."""

    bootstrap: str
    pid: int

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


class OttlaBroker:
    """`ottla server start` in a directory of its own. If it is started again, it keeps its port."""

    def __init__(self, directory: Path, overrides: Iterable[str] = (), port: int = 0) -> None:
        self.directory = directory
        self.overrides = list(overrides)
        self.port = port
        self.bootstrap = ""
        self.pid = 0
        self.log = directory / "broker.log"
        self._printed_before = 0  # bytes in the log from earlier runs
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """The command line, with the console script of this interpreter."""
        settings = [
            f"listeners=PLAINTEXT://localhost:{self.port}",
            f"log.dirs={self.directory / 'data'}",
            *self.overrides,
        ]
        ottla = str(Path(sys.executable).with_name("ottla"))
        return [ottla, "server", "start"] + [x for s in settings for x in ("--override", s)]

    def listen_also(self, ports: dict[str, int]) -> None:
        """Add further listeners, each named after its security protocol."""
        self.port = self.port or free_port()
        more = [f"{name}://localhost:{port}" for name, port in ports.items()]
        listeners = ",".join([f"PLAINTEXT://localhost:{self.port}", *more])
        self.overrides.append(f"listeners={listeners}")

    def start(self) -> None:
        """Start the process and wait for the ready line. After a Ctrl-C, no process is left."""
        self.spawn()
        try:
            self.wait_for_ready_line()
        except KeyboardInterrupt:
            self.kill()
            raise

    def spawn(self) -> None:
        """Start the process."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._printed_before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        self.pid = self._process.pid

    def wait_for_ready_line(self) -> None:
        """Wait until the process reports that it is ready, and take its address."""
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while (ready := READY.search(self._printed(self._printed_before))) is None:
            if self._process.poll() is not None:
                raise BrokerFailed(f"ended with status {self._process.returncode}\n{self.tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerFailed(f"no ready line within {START_SECONDS} s\n{self.tail()}")
            time.sleep(0.005)
        self.bootstrap = ready[2]
        self.port = int(self.bootstrap.rpartition(":")[2])

    def stop(self) -> None:
        """Stop by SIGTERM, as an init system does; anything but exit status 0 is a failure."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(
                f"still running {STOP_SECONDS} s after SIGTERM\n{self.tail()}"
            ) from None
        if status != 0:
            raise BrokerFailed(f"ended with status {status} after SIGTERM\n{self.tail()}")

    def kill(self) -> None:
        """kill -9: the process has ended when this returns."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def tail(self) -> str:
        """The last lines that the broker printed."""
        return "\n".join(self._printed(0).splitlines()[-40:])

    def _printed(self, since: int) -> str:
        return self.log.read_bytes()[since:].decode(errors="replace")


class KafkaBroker:
    """Apache Kafka from benchmarks/peers, the reference for every test here."""

    def __init__(self, directory: Path, overrides: Iterable[str] = ()) -> None:
        self.directory = directory
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.pid = 0
        self.started_ms = 0.0  # from the exec of the JVM to the first Metadata reply
        self._environment = os.environ | {
            "PORT": str(self.port),
            "CPORT": str(free_port()),
            "DATA": str(directory / "data"),
            "RUN": str(directory / "run"),
            "CONF": "\n".join(overrides),
            "CLUSTER_ID": self.new_cluster_id(),
        }

    def listen_also(self, ports: dict[str, int]) -> None:
        """Add further listeners, each named after its security protocol."""
        here = "127.0.0.1"
        listeners = [
            f"PLAINTEXT://{here}:{self.port}",
            f"CONTROLLER://{here}:{self._environment['CPORT']}",
            *(f"{name}://localhost:{port}" for name, port in ports.items()),
        ]
        for name in ("listeners", "advertised.listeners"):
            self._environment["CONF"] += f"\n{name}={','.join(listeners)}"

    @staticmethod
    def new_cluster_id() -> str:
        """A random cluster id, because a mirror refuses to copy between two clusters with the same
        id. The first byte is zero, so that the id cannot begin with "-", which Kafka's tool would
        take for an option."""
        return base64.urlsafe_b64encode(bytes(1) + uuid.uuid4().bytes[1:]).decode().rstrip("=")

    def java_options(self, options: str) -> None:
        """Set further options of the JVM."""
        self._environment["JVM_EXTRA"] = options

    def compile_less(self) -> None:
        """Let the JVM use only its first compiler, for a broker that runs only for seconds."""
        self.java_options("-XX:TieredStopAtLevel=1")

    def start(self) -> None:
        """Start and wait until it answers."""
        try:
            printed = self._script("start.sh")
        except KeyboardInterrupt:
            self.kill()
            raise
        self.started_ms = float(printed.rpartition("metadata_ms=")[2])
        self.pid = int((self.directory / "run" / "pid").read_text())

    def stop(self) -> None:
        """Shut down cleanly."""
        self._script("stop.sh")

    def kill(self) -> None:
        """kill -9; the script only waits for the end. If the broker did not start, `pid` is 0:
        a signal to 0 would kill this process's own group."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
        self._script("stop.sh", KILL="1")

    def _script(self, name: str, **environment: str) -> str:
        done = subprocess.run(
            [PEER_DIR / name],
            env=self._environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise BrokerFailed(f"{name} ended with status {done.returncode}\n{done.stdout}")
        return done.stdout


class ClusterBroker:
    """Three Ottla brokers and a ZooKeeper. Topics get three replicas, two of which must be in sync.

    `kill` is a kill -9 of one broker, each time of the next one, and `start` starts it again. With
    `kills_every`, a thread does both every `kills_every` seconds, if all replicas are in sync.
    """

    pid = 0

    def __init__(
        self, directory: Path, overrides: Iterable[str] = (), kills_every: float = 0.0
    ) -> None:
        zookeeper()
        self.cluster = LocalCluster(directory, 3, settings=list(overrides))
        self.bootstrap = self.cluster.bootstrap
        self.directory, self.kills_every = directory, kills_every
        self.running, self.kills = False, 0
        self.over = threading.Event()
        self.lock = threading.Lock()            # held while processes are started or ended
        self.killer = threading.Thread(target=self._kill_by_itself, daemon=True)

    def start(self) -> None:
        """Start the processes that do not run, and wait until they are ready."""
        with self.lock:
            if not self.running:
                self.cluster.start()
                self.running = True
                if self.kills_every and not self.killer.is_alive():
                    self.killer.start()
                return
            for broker in self.cluster.brokers.values():
                if broker.process is not None and broker.process.poll() is not None:
                    broker.start()
                    broker.wait_ready()

    def stop(self) -> None:
        """Stop everything in order."""
        self.over.set()
        if self.killer.is_alive():
            self.killer.join()
        with self.lock:
            self.cluster.stop()
            self.running = False

    def kill(self) -> None:
        """kill -9 of one broker."""
        with self.lock:
            self.kills += 1
            nodes = sorted(self.cluster.brokers)
            self.cluster.brokers[nodes[self.kills % len(nodes)]].kill()

    def in_sync(self) -> bool:
        """Whether every replica of every partition is in sync."""
        from confluent_kafka.admin import AdminClient

        try:
            topics = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=5)
        except Exception:
            return False
        parts = [part for topic in topics.topics.values() for part in topic.partitions.values()]
        return all(set(part.isrs) == set(part.replicas) for part in parts)

    def _kill_by_itself(self) -> None:
        while not self.over.wait(self.kills_every):
            if self.in_sync():
                self.kill()
                self.over.wait(1.0)
                self.start()


class RunningBroker:
    """A broker at OTTLA_COMPAT_BOOTSTRAP, which the tests neither start nor stop."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.pid = 0

    def start(self) -> None:
        """Nothing to do."""

    def stop(self) -> None:
        """Nothing to do."""

    def kill(self) -> None:
        """Raises BrokerFailed: the tests must not kill this broker."""
        raise BrokerFailed("a broker at OTTLA_COMPAT_BOOTSTRAP is not ours to kill")
