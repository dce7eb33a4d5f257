"""`ottla server stop | status | config | dev`. `server start` is `broker/main.py`."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping
from pathlib import Path

from ottla.broker.lock_holder import holder_of
from ottla.client.addresses import Address
from ottla.client.cluster import ClusterClient
from ottla.client.command_line import INT32_MOST, limited
from ottla.client.errors import ClientError
from ottla.tools.admin import cluster as admin
from ottla.tools.admin import topics
from ottla.tools.cli.bootstrap import connect
from ottla.tools.cli.config import show_settings
from ottla.tools.cli.occupancy import is_taken
from ottla.tools.cli.output import done, show
from ottla.tools.cli.units import checked
from ottla.tools.properties import pairs
from ottla.tools.usage import WrongUsage, check_topic_name, one_of
from ottla.wire.wording import counted

READY = "ottla ready: "
HOST = "127.0.0.1"
START_SECONDS = 30.0
STOP_SECONDS = 60.0
"""A broker of a cluster may try to hand over its leaderships for 30 s before it stops."""


def running_in(named: str | None) -> int:
    """The process id of the broker that uses the data directory `named`, by default `data`. Raises
    ClientError if there is no such broker."""
    directory = Path(named or "data")
    pid = holder_of(directory)
    if not pid:
        hint = "" if named else "; name another directory with --data-dir"
        if directory.exists() and not directory.is_dir():
            raise ClientError(f"no broker uses {directory}: it is not a directory{hint}")
        if not directory.is_dir():
            from ottla.client.similar_names import directories_beside

            near = directories_beside(str(directory))
            raise ClientError(f"no broker uses {directory}: there is no such directory{near}{hint}")
        raise ClientError(f"no broker uses {directory}{hint}")
    return pid


def stop(options: Namespace) -> None:
    pid = running_in(options.data_dir)
    directory = Path(options.data_dir or "data")
    logs = [*directory.glob("broker-*.log")]                # made by `ottla cluster start`
    brokers = sum(holder_of(log.with_suffix("")) > 0 for log in logs)
    what = f"process {pid}" + (f": a cluster of {counted(brokers, 'broker')}" if logs else "")
    if logs and (directory / "zookeeper").is_dir():
        what += " and its ZooKeeper"
    if options.dry_run:
        done(options, f"stopped {what}")
        return
    end(pid, STOP_SECONDS if options.wait is None else options.wait)
    print(f"stopped {what}", file=sys.stderr)


def end(pid: int, wait: float) -> None:
    """End a process with SIGTERM. Raises ClientError if that takes more than `wait` seconds."""
    watched = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(watched, signal.SIGTERM)
        with selectors.DefaultSelector() as selector:
            selector.register(watched, selectors.EVENT_READ)
            if not selector.select(wait):
                raise ClientError(f"process {pid} is still running {wait:g} s after SIGTERM")
    finally:
        os.close(watched)


def status(options: Namespace) -> None:
    one_of(data_dir=options.data_dir, bootstrap_server=options.bootstrap_server)
    one_of(data_dir=options.data_dir, command_config=options.command_config)
    if options.data_dir:
        pid = running_in(options.data_dir)
        show(options, ("directory", "process"), [{"directory": options.data_dir, "process": pid}])
        return
    begun = time.monotonic()
    with connect(options, retry=False) as cluster:
        found = admin.brokers(cluster)
        took = (time.monotonic() - begun) * 1000
    show(
        options,
        ("broker", "address", "controller", "cluster", "ms"),
        (
            {
                "broker": one.broker_id,
                "address": f"{one.host}:{one.port}",
                "controller": one.broker_id == found.controller_id,
                "cluster": found.cluster_id,
                "ms": round(took, 1),
            }
            for one in found.brokers
        ),
    )


def config(options: Namespace) -> None:
    with connect(options) as cluster:
        address, live = cluster.any().address, cluster.live()
        broker = asked_broker(address, {node: cluster.brokers[node] for node in live})
    if len(live) > 1:
        print(f"settings of broker {broker}; for another one: ottla config show broker/ID",
              file=sys.stderr)
    show_settings(options, f"broker/{broker}", everything=options.all)


def asked_broker(address: Address, brokers: Mapping[int, Address]) -> int:
    """The broker at a bootstrap address: it advertises this address or, as with localhost and
    127.0.0.1, it is the only one with this port. The first broker if there is none."""
    exact = [node for node, known in brokers.items() if known == address]
    same_port = [node for node, known in brokers.items() if known[1] == address[1]]
    if exact or len(same_port) == 1:
        return (exact or same_port)[0]
    return min(brokers)


def dev(options: Namespace) -> int:
    """Runs a broker on temporary data until standard input ends, or until Ctrl-C or SIGTERM."""
    from ottla.broker.settings.hazards import FOR_A_WHILE

    wanted = [topic_of(text) for text in options.topic]
    checked("broker", pairs(options.override, "--override"))
    if options.port and is_taken(HOST, options.port):
        raise ClientError(
            f"another program listens on port {options.port}: name another port with --port, or"
            " omit --port for a free port"
        )
    with tempfile.TemporaryDirectory(prefix=FOR_A_WHILE, dir=memory()) as name:
        process = start_broker(options, Path(name))
        try:
            address = wait_ready(process)
            with ClusterClient(address) as cluster:
                for topic, count in wanted:
                    topics.create(cluster, topic, partitions=count)
            print(f"BOOTSTRAP_SERVERS={address}", flush=True)
            wait_end(process, None if options.detach_stdin else sys.stdin.fileno())
            if status := process.poll():
                raise ClientError(f"the broker ended by itself, with status {status}")
        except KeyboardInterrupt:
            pass
        finally:
            process.terminate()
            process.wait(STOP_SECONDS)
    return 0


def topic_of(text: str) -> tuple[str, int]:
    """A topic to be created, and its partitions. Raises WrongUsage."""
    topic, colon, count = text.partition(":")
    try:
        partitions = limited(1, INT32_MOST)(count) if colon else 1
    except ArgumentTypeError as wrong:
        raise WrongUsage(f"--topic {text}: expected NAME, or NAME:PARTITIONS; {wrong}") from None
    if not topic:
        raise WrongUsage(f"--topic {text}: expected NAME, or NAME:PARTITIONS")
    check_topic_name(topic)
    return topic, partitions


def memory() -> str | None:
    """A directory in memory; None if there is none."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def start_broker(options: Namespace, directory: Path) -> subprocess.Popen[str]:
    """Starts the process of the broker."""
    settings = [
        f"listeners=PLAINTEXT://{HOST}:{options.port or 0}",
        f"log.dirs={directory / 'data'}",
        "offsets.topic.replication.factor=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
        "group.initial.rebalance.delay.ms=0",
        *options.override,
    ]
    command = [
        sys.executable,
        "-m",
        "ottla.tools.command",
        "server",
        "start",
        "--log-level",
        "warning",
    ]
    for setting in settings:
        command += ["--override", setting]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)


def wait_ready(process: subprocess.Popen[str]) -> str:
    """Waits for the broker's ready line, and returns the address in it. Raises ClientError."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(READY):
            return line.partition("://")[2].partition(",")[0]
    raise ClientError(f"the broker ended with status {process.wait(STOP_SECONDS)}")


def wait_end(process: subprocess.Popen[str], stdin: int | None) -> None:
    """Waits for the end of the broker, or of standard input."""
    with selectors.DefaultSelector() as selector:
        watched = os.pidfd_open(process.pid)
        selector.register(watched, selectors.EVENT_READ, "broker")
        if stdin is not None:
            try:
                selector.register(stdin, selectors.EVENT_READ, "stdin")
            except PermissionError:     # a file or /dev/null, which epoll cannot watch
                print("standard input has ended, so the broker stops. With --detach-stdin, the"
                      " broker keeps running", file=sys.stderr)  # fmt: skip
                return
        try:
            while True:
                for key, _ in selector.select():
                    if key.data == "broker" or not os.read(key.fd, 4096):
                        return
        finally:
            os.close(watched)
