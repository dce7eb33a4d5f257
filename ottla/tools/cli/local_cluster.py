"""`ottla cluster start`: ZooKeeper and some brokers on this machine, until Ctrl-C or SIGTERM.

All data and the log files of all processes are in one directory. A later start in the same
directory continues the cluster. The cluster is for experiments and tests: all replicas share one
machine and one disk.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from ottla.broker.first_steps import program
from ottla.broker.lock_holder import holder_of
from ottla.client.errors import ClientError
from ottla.client.frames import Frames
from ottla.tools.cli.bootstrap import check_zookeeper
from ottla.tools.cli.cluster_upkeep import Kept, Upkeep, mark_of, restart_command, say
from ottla.tools.cli.occupancy import PORT_MAX, is_taken
from ottla.tools.cli.server import READY
from ottla.tools.cli.units import checked
from ottla.tools.properties import pairs
from ottla.tools.usage import WrongUsage
from ottla.tools.zookeeper.local import LocalZooKeeper, ZooKeeperFailed, free_port
from ottla.wire.wording import counted

FIRST_PORT = 9092
CHROOT = "/ottla"
HTTP = "ottla.http.listener"
START_SECONDS = 60.0
STOP_SECONDS = 60.0
CUT_OFF_STOP_SECONDS = 3.0
"""How long a broker may take to stop without ZooKeeper. Without ZooKeeper, it cannot hand over its
leaderships, but would try for half a minute. Killing the broker loses no acknowledged record."""
BROKERS_MAX = 100


class LocalBroker:
    """One broker of the cluster: `ottla server start` with a directory and a port of its own."""

    def __init__(
        self, node_id: int, directory: Path, port: int, zookeeper: str, settings: list[str]
    ) -> None:
        self.node_id, self.directory, self.port = node_id, directory, port
        self.address = f"127.0.0.1:{port}"
        self.log = directory / f"broker-{node_id}.log"
        self.settings = [
            f"node.id={node_id}",
            f"listeners=PLAINTEXT://{self.address}",
            f"log.dirs={directory / f'broker-{node_id}'}",
            f"zookeeper.connect={zookeeper}",
            *settings,
        ]
        self.prefix: list[str] = []
        """Words before the command, for example to choose a network namespace."""
        self.process: subprocess.Popen[bytes] | None = None
        self.printed_before = 0

    @property
    def name(self) -> str:
        """The name in messages."""
        return f"broker {self.node_id}"

    @property
    def question(self) -> tuple[tuple[str, int], bytes] | None:
        """The broker's address, and an ApiVersions request. None if an override changes the
        listeners, since they may be encrypted."""
        if sum(each.startswith("listener") for each in self.settings) > 1:
            return None
        return ("127.0.0.1", self.port), Frames("ottla cluster start").encode(Frames.hello(), 0)[0]

    @property
    def held(self) -> bool:
        """Whether `ottla cluster stop-broker` has stopped this broker since its last start."""
        return mark_of(self.directory, self.node_id).exists()

    @property
    def restart(self) -> str:
        """The command that starts this broker after `ottla cluster stop-broker`."""
        return restart_command(self.directory, self.node_id)

    def start(self) -> None:
        """Starts the broker; `wait_ready` waits until it serves requests."""
        self.directory.mkdir(parents=True, exist_ok=True)
        mark_of(self.directory, self.node_id).unlink(missing_ok=True)
        self.printed_before = self.log.stat().st_size if self.log.exists() else 0
        command = [*self.prefix, sys.executable, "-m", "ottla.tools.command", "server", "start"]
        for setting in self.settings:
            command += ["--override", setting]
        with self.log.open("ab") as log:
            # In its own session: Ctrl-C reaches only `ottla cluster start`, which stops the broker.
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait_ready(self) -> None:
        """Returns once the broker serves requests. Raises ClientError."""
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS
        while READY not in self.printed():
            if self.process.poll() is not None or time.monotonic() > deadline:
                reason = " ".join(self.printed().splitlines()[-1:])
                raise ClientError(f"broker {self.node_id} did not start (see {self.log}): {reason}")
            time.sleep(0.02)

    def printed(self) -> str:
        """The broker's output since its last start."""
        return self.log.read_bytes()[self.printed_before :].decode(errors="replace")

    def stop(self, cut_off: Callable[[], bool] = lambda: False) -> None:
        """Stops the broker cleanly, or kills it after a time limit, which is short if the broker is
        `cut_off` from ZooKeeper."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(CUT_OFF_STOP_SECONDS)
            return
        except subprocess.TimeoutExpired:
            if cut_off():
                self.kill()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class LocalCluster:
    """ZooKeeper and brokers 1 to `brokers`. If `zookeeper` names a running ZooKeeper, that one is
    used.

    `port` is the port of the first broker; the next brokers have the next ports. Port 0 chooses
    free ports, which stay the same for the lifetime of this object.
    """

    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        port: int = 0,
        zookeeper: str | None = None,
        settings: list[str] | None = None,
    ) -> None:
        self.directory = directory
        self.zookeeper: LocalZooKeeper | None = None
        if zookeeper is None:
            self.zookeeper = LocalZooKeeper(directory / "zookeeper")
            zookeeper = self.zookeeper.connect + CHROOT
        factor = min(3, brokers)
        defaults = [
            f"default.replication.factor={factor}",
            f"offsets.topic.replication.factor={factor}",
            f"transaction.state.log.replication.factor={factor}",
            f"min.insync.replicas={min(2, factor)}",
            "group.initial.rebalance.delay.ms=0",
        ]
        self.brokers = {
            node: LocalBroker(
                node, directory, port + node - 1 if port else free_port(), zookeeper,
                [*defaults, *(settings or [])],
            )
            for node in range(1, brokers + 1)
        }

    @property
    def processes(self) -> list[Kept]:
        """Everything that runs, ZooKeeper first."""
        first: list[Kept] = [self.zookeeper] if self.zookeeper is not None else []
        return [*first, *self.brokers.values()]

    @property
    def running(self) -> int:
        """How many brokers run; `ottla cluster stop-broker` may have stopped some."""
        return sum(
            broker.process is not None and broker.process.poll() is None
            for broker in self.brokers.values())

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses."""
        return ",".join(broker.address for broker in self.brokers.values())

    def start(self) -> None:
        """Starts all processes, and returns once they serve requests. Raises ClientError."""
        try:
            if self.zookeeper is not None:
                self.zookeeper.start()
        except ZooKeeperFailed as error:
            raise ClientError(str(error)) from error
        for broker in self.brokers.values():
            broker.start()
        for broker in self.brokers.values():
            broker.wait_ready()

    def stop(self) -> None:
        """Stops the brokers one after the other, so that each can hand over its leaderships, and
        then ZooKeeper."""
        for broker in self.brokers.values():
            broker.stop(self._cut_off)
        if self.zookeeper is not None:
            self.zookeeper.stop()

    def _cut_off(self) -> bool:
        return self.zookeeper is not None and not self.zookeeper.answers()

    def __enter__(self) -> LocalCluster:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        except BaseException:           # such as a second Ctrl-C: no broker may keep running
            self.kill()
            raise

    def kill(self) -> None:
        """kill -9 of everything that runs."""
        for broker in self.brokers.values():
            broker.kill()
        if self.zookeeper is not None:
            self.zookeeper.kill()


def give_http(cluster: LocalCluster) -> None:
    """Gives each broker an HTTP port, for `ottla topic why` and metrics."""
    for broker in cluster.brokers.values():
        address = f"127.0.0.1:{free_port()}"
        broker.settings.append(f"{HTTP}={address}")
        say(f"{broker.name} serves its metrics on http://{address}/metrics")


def forget_others(cluster: LocalCluster) -> list[int]:
    """The brokers in the cluster's directory that an earlier start had, and this one has not. They
    no longer count as stopped by `ottla cluster stop-broker`."""
    others = sorted(
        int(number) for home in cluster.directory.glob("broker-*/")
        if (number := home.name.removeprefix("broker-")).isdecimal()
        and int(number) not in cluster.brokers
    )
    for other in others:
        mark_of(cluster.directory, other).unlink(missing_ok=True)
    return others


def check_free(cluster: LocalCluster) -> None:
    """Raises ClientError if this cluster is running; if its command was killed, but its brokers
    still run; or if another program listens on one of the cluster's ports."""
    directory = cluster.directory
    if pid := holder_of(directory):
        raise ClientError(
            f"the cluster in {directory} is already running. To stop it, press Ctrl-C in its"
            f" terminal, or run: kill {pid}"
        )
    homes = sorted(directory.glob("broker-*/"))
    survivors = [str(pid) for home in homes if (pid := holder_of(home))]
    if survivors:
        # Not ZooKeeper: without it, the brokers would need half a minute to stop. The next start
        # ends it.
        raise ClientError(
            f"brokers of {directory} still run, because their `ottla cluster start` was killed."
            f" Stop them first: kill {' '.join(survivors)}"
        )
    taken = [broker for broker in cluster.brokers.values() if is_taken("127.0.0.1", broker.port)]
    if taken:
        raise ClientError(
            f"another program listens on port {taken[0].port}, which {taken[0].name} needs:"
            " choose another first port with --port (make cluster PORT=…)"
        )


def start(options: Namespace) -> int:
    """`ottla cluster start`."""
    count = 3 if options.brokers is None else options.brokers
    if not 1 <= count <= BROKERS_MAX:
        raise WrongUsage(f"--brokers {count}: expected 1 to {BROKERS_MAX}")
    port = FIRST_PORT if options.port is None else options.port
    if port + count - 1 > PORT_MAX:
        raise WrongUsage(f"--port {port}: {counted(count, 'broker')} would need ports up to"
                         f" {port + count - 1}; the highest possible port is {PORT_MAX}")
    checked("broker", pairs(options.override, "--override"))
    check_zookeeper(options.zookeeper)
    import_module("kazoo")          # brokers need kazoo: fail before ZooKeeper is downloaded
    cluster = LocalCluster(
        Path(options.dir), count, port, options.zookeeper, list(options.override)
    )
    check_free(cluster)
    if not any(each.startswith(f"{HTTP}=") for each in options.override):
        give_http(cluster)
    for other in forget_others(cluster):
        say(f"broker {other} of an earlier start is not started, so replicas that it has are"
            f" offline; to start it too: --brokers {other} (make cluster BROKERS={other})")
    for ends in (signal.SIGTERM, signal.SIGHUP):                # both act as Ctrl-C
        if signal.getsignal(ends) is not signal.SIG_IGN:        # nohup ignores SIGHUP
            signal.signal(ends, signal.default_int_handler)
    cluster.directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(cluster.directory / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)    # until this process ends (`holder_of`)
    except BlockingIOError as held:
        raise ClientError(f"the cluster in {cluster.directory} is being started already") from held
    if cluster.zookeeper is not None:
        cluster.zookeeper.end_former()
        say(f"starting ZooKeeper on {cluster.zookeeper.connect}{CHROOT}")
    try:
        with cluster:
            where = cluster.directory.absolute()
            print(f"ottla cluster ready: {cluster.bootstrap}, data in {where}")
            first = cluster.bootstrap.partition(",")[0]
            print(f"next, in another terminal: {program()} cluster info -b {first};"
                  " Ctrl-C here stops the cluster, which keeps its records", flush=True)
            try:
                Upkeep(cluster.processes, say, time.monotonic).run()
            finally:
                if count := cluster.running:
                    also = ", one after the other" * (count > 1)
                    say(f"stopping {counted(count, 'broker')}{also}")
    except KeyboardInterrupt:
        pass
    also = " and ZooKeeper" if cluster.zookeeper is not None else ""
    say(f"stopped: {counted(count, 'broker')}{also}")
    return 0
