"""`Broker`: one real broker in a process of its own, for any program's tests.

    with Broker() as broker:
        ...                                     # any client, at broker.bootstrap_servers
        broker.advance(hours=2)                 # the broker's clock
        broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", count=3)
        broker.kill(); broker.start()           # kill -9, then a start with the same data

Clients talk to the broker through a proxy in another process. The proxy injects the faults and
records the frames, so the broker runs the same code as for users.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self

from ottla.testing.arguments import (
    check_broker,
    check_error,
    check_request,
    configs_of,
    delay_of,
    milliseconds,
    requests_of,
    topic_name,
    whole,
)
from ottla.testing.children import BrokerFailed, Child, PassedTime
from ottla.testing.directories import base_directory, make_directory
from ottla.testing.names import (
    api_key_of,
    error_of,
    no_argument,
    no_attribute,
    no_duration,
    no_topic,
    settings_of,
)

if TYPE_CHECKING:
    from ottla.testing.faults import Fault
    from ottla.testing.frames import Recording
    from ottla.wire.errors import ErrorCode

HOST = "127.0.0.1"
START_SECONDS = 30.0
STOP_SECONDS = 30.0

TEST_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "connections.max.idle.ms": "315360000000",   # else advance() closes idle connections
    "ottla.acks.all.flush": "false",             # no test simulates a power failure
}
"""The differences from a broker's defaults; `settings` takes precedence."""


class Broker:
    """A broker for tests. `start` (or `with`) starts it, `close` ends it.

    `settings` are Kafka's server properties. With `directory`, the data stay in this directory.
    Without it, they are in a temporary directory, in memory if possible. It is removed at `close`,
    or when the test process ends or is killed. `log_level` is the level of the broker's log,
    `broker.log`.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        log_level: str = "info",
        **others: Never,
    ) -> None:
        for name in others:
            raise TypeError(no_argument(name))
        given = settings_of(settings)
        check_broker(given, log_level)
        self.settings = {**TEST_SETTINGS, **given}
        self.log_level = log_level
        self._kept = None if directory is None else Path(directory).absolute()
        self._path: Path | None = None
        self._lock_fd = -1
        self._reserved: socket.socket | None = None
        self._proxy: Child | None = None
        self._broker: Child | None = None
        self._broker_port = 0
        self._passed = PassedTime()
        self._numbers = itertools.count(1)
        self._paused = False
        self._disk_room = -1
        self._recording: Recording | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise AttributeError(no_attribute(name), name=name, obj=self)

    # Addresses

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, `127.0.0.1:PORT`. The port stays the same after kill and
        restart."""
        return f"{HOST}:{self.port}"

    def get_bootstrap_server(self) -> str:
        """`bootstrap_servers`, under the name that testcontainers' KafkaContainer uses."""
        return self.bootstrap_servers

    @property
    def host(self) -> str:
        """The address that clients connect to."""
        return HOST

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        if self._reserved is None:
            raise BrokerFailed("the broker has not been started: use `with Broker() as broker`")
        if self._reserved.fileno() < 0:
            raise BrokerFailed("the broker has been closed: use it in the `with` block")
        return int(self._reserved.getsockname()[1])

    @property
    def directory(self) -> Path:
        """The directory with the broker's data (`data`) and its log (`broker.log`)."""
        if self._path is None:
            raise BrokerFailed("the broker has not been started: use `with Broker() as broker`")
        return self._path

    @property
    def log(self) -> str:
        """What the broker has logged so far; nothing once its directory is removed."""
        path = self.directory / "broker.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def pid(self) -> int:
        """The process id of the broker."""
        return self._running().process.pid

    @property
    def is_running(self) -> bool:
        """Whether the broker's process is running."""
        return self._broker is not None and self._broker.process.poll() is None

    # Starting and ending

    def start(self) -> Self:
        """Start the broker and return when it serves. After `kill` or `stop`, the broker has the
        same data and port as before. Raises BrokerFailed with the last lines of its log."""
        if self.is_running:
            return self
        if self._broker is not None:        # the broker ended by itself
            self.kill()
        if self._proxy is None:
            self._prepare()
        assert self._proxy is not None
        self._broker = Child(
            "ottla.testing.broker_process",
            [str(self._passed.ms), self.log_level, *(
                f"{key}={value}" for key, value in self._all_settings().items()
            )],
            self.directory / "broker.log",
        )
        try:
            if not self._proxy.is_ready:
                self._proxy.wait_until_ready(START_SECONDS)
            self._broker_port = self._broker.wait_until_ready(START_SECONDS)
            self._broker.ask("disk_room", bytes_left=self._disk_room)
            self._proxy.ask("open", broker_port=self._broker_port, broker_pid=self.pid)
        except BaseException:
            self._broker.kill()
            self._broker = None
            raise
        self._paused = False
        return self

    def _prepare(self) -> None:
        if self._kept is None:
            self._path, self._lock_fd = make_directory(base_directory())
        else:
            self._kept.mkdir(parents=True, exist_ok=True)
            self._path = self._kept
        # Bound but not listening: no other process gets the port while the broker is down.
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reserved.bind((HOST, 0))
        held = () if self._lock_fd < 0 else (self._lock_fd,)
        self._proxy = Child(
            "ottla.testing.proxy_process",
            [HOST, str(self.port), str(self._lock_fd), "" if self._kept else str(self._path)],
            self._path / "proxy.log",
            pass_fds=held,
        )

    def _all_settings(self) -> dict[str, str]:
        return self.settings | {
            "log.dirs": str(self.directory / "data"),
            "listeners": f"PLAINTEXT://{HOST}:0",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.port}",
        }

    def stop(self) -> None:
        """Stop the broker cleanly (SIGTERM), as an operator does; the next `start` uses the same
        data."""
        broker = self._running()
        self.resume()
        assert self._proxy is not None
        self._proxy.ask("close")
        self._broker = None
        status = broker.terminate(STOP_SECONDS)
        if status != 0:
            raise BrokerFailed(f"the broker ended with status {status}:\n{broker.tail()}")

    def kill(self) -> None:
        """Kill the broker (kill -9). Its connections break, and its port refuses new ones. The next
        `start` uses the same data."""
        broker = self._running()
        assert self._proxy is not None
        self._broker = None
        broker.kill()
        self._proxy.ask("close")

    def restart(self) -> None:
        """`stop`, then `start`."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Kill the broker, and remove its directory unless the test chose it. A second call does
        nothing."""
        if self._recording is not None:
            self._recording.stop()
            self._recording = None
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.kill()
        proxy, self._proxy = self._proxy, None
        if proxy is not None:
            proxy.end(STOP_SECONDS)         # the proxy removes the directory
        if self._reserved is not None:
            self._reserved.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _running(self) -> Child:
        if self._broker is None:
            raise BrokerFailed("the broker is not running: start() it first")
        return self._broker

    # Topics

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> str:
        """Create a topic and return its name. Raises ottla.client.errors.Refused."""
        from ottla.client.errors import check
        from ottla.wire.messages import CreateTopicsRequest

        partitions = whole("partitions", partitions, -1, (1 << 31) - 1)
        topic = CreateTopicsRequest.Topic(
            name=topic_name(name), num_partitions=partitions, replication_factor=1,
            configs=[
                CreateTopicsRequest.Topic.Config(name=key, value=value)
                for key, value in configs_of(configs).items()
            ],
        )
        made = self.request(CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics[0]
        check(made.error_code, made.error_message, name)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises ottla.client.errors.Refused."""
        from ottla.client.errors import check
        from ottla.wire.errors import ErrorCode
        from ottla.wire.messages import DeleteTopicsRequest, MetadataRequest

        topic = DeleteTopicsRequest.Topic(name=topic_name(name), topic_id=bytes(16))
        gone = self.request(DeleteTopicsRequest(topics=[topic], timeout_ms=30_000)).responses[0]
        message = gone.error_message
        if gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            message = no_topic(name, self.request(MetadataRequest(topics=None)).topics)
        check(gone.error_code, message, f"topic {name!r}")

    def request(self, message: Any, version: int | None = None) -> Any:
        """Send one of `ottla.wire.messages` to the broker, bypassing the proxy, and return the
        response. Raises TypeError for anything else, such as the name of an API."""
        from ottla.client.connection import Connection

        check_request(message)
        self._running()
        with Connection((HOST, self._broker_port), client_id="ottla.testing") as connection:
            return connection.call(message, version)

    # Time and disk

    def advance(
        self, *unnamed: Never, days: float = 0, hours: float = 0, minutes: float = 0,
        seconds: float = 0, ms: float = 0, **others: Never,
    ) -> int:  # fmt: skip
        """Advance the broker's clock; return after everything that became due has happened.

        This clock determines timestamps, retention, the sessions of group members, transaction
        timeouts, and when producer ids, transactional ids and offsets expire.
        Clients' clocks do not move, so a long advance expires the sessions of group members.
        Returns the broker's time in ms since 1970. After a restart, the clock is still advanced.
        """
        if unnamed or others:
            raise TypeError(no_duration(unnamed, others))
        passed = milliseconds(days=days, hours=hours, minutes=minutes, seconds=seconds, ms=ms)
        return self._passed.advance(self._running(), passed)

    def fill_disk(self, bytes_left: int = 0) -> None:
        """Let the broker's disk accept `bytes_left` more bytes, then fail writes with ENOSPC; after
        a restart as well."""
        self._running().ask("disk_room", bytes_left=whole("bytes_left", bytes_left))
        self._disk_room = bytes_left

    def free_disk(self) -> None:
        """Let the broker's disk accept writes again."""
        self._disk_room = -1
        if self.is_running:
            self._running().ask("disk_room", bytes_left=-1)

    @contextmanager
    def full_disk(self, bytes_left: int = 0) -> Iterator[None]:
        """A context manager: `fill_disk` before the block, `free_disk` after it."""
        self.fill_disk(bytes_left)
        try:
            yield
        finally:
            self.free_disk()

    # Faults between clients and the broker

    def fail(
        self,
        api: str,
        error: ErrorCode | str | int,
        *,
        count: int | None = 1,
        after: bool = False,
        client_id: str | None = None,
    ) -> Fault:
        """Answer the next `count` requests of an API ("Produce") with an error.

        The broker does not get these requests. With `after`, it gets them, and the proxy replaces
        its answers. Metadata, DescribeCluster and ApiVersions requests always reach the broker.
        `count` None means all requests until `Fault.end`; `client_id` None means all clients.
        """
        from ottla.testing.faults import ANSWER

        code = int(check_error(error_of(error)))
        return self._fault(ANSWER, api, code=code, count=count, after=after, client_id=client_id)

    def delay(
        self,
        api: str | None,
        seconds: float,
        *,
        count: int | None = 1,
        after: bool = False,
        client_id: str | None = None,
    ) -> Fault:
        """Delay the next `count` requests of an API (None: any) before they reach the broker;
        with `after`, delay their answers. Later frames on the connection wait too."""
        from ottla.testing.faults import DELAY

        return self._fault(
            DELAY, api, seconds=delay_of(seconds), count=count, after=after, client_id=client_id
        )

    def drop(
        self,
        api: str | None = None,
        *,
        count: int | None = 1,
        after: bool = False,
        client_id: str | None = None,
    ) -> Fault:
        """Close the connection instead of forwarding the next `count` requests of an API (None:
        any). With `after` the broker serves the request, and only its answer is lost."""
        from ottla.testing.faults import DROP

        return self._fault(DROP, api, count=count, after=after, client_id=client_id)

    def _fault(self, kind: str, api: str | None, **fields: Any) -> Fault:
        from ottla.testing.faults import Fault, Rule

        fields |= requests_of(fields["count"], fields["after"], fields["client_id"])
        rule = Rule(next(self._numbers), kind, api_key_of(api), **fields)
        self._proxied().ask("add_fault", **rule.as_command())
        return Fault(rule, self._proxied().ask)

    def disconnect(self) -> int:
        """Close all clients' connections now; returns how many there were."""
        return int(self._proxied().ask("disconnect"))

    def pause(self) -> None:
        """Stop the broker's process (SIGSTOP): connections stay open, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """Continue the broker's process (SIGCONT)."""
        if self._paused:
            os.kill(self.pid, signal.SIGCONT)
            self._paused = False

    def heal(self) -> None:
        """Restore the state before a test: no faults, a writable disk, a running process."""
        self._proxied().ask("clear")
        if self.is_running:
            self.resume()
        self.free_disk()
        self.start()

    def _proxied(self) -> Child:
        if self._proxy is None:
            raise BrokerFailed("the broker has not been started: use `with Broker() as broker`")
        return self._proxy

    # Recordings

    def record(self) -> Recording:
        """Record all frames from now on; `print(recording)` shows them, one on each line.

        One recording at a time: a new one ends the previous one.
        """
        from ottla.testing.frames import Recording

        if self._recording is not None:
            self._recording.stop()
        path = self.directory / f"frames-{next(self._numbers)}"
        self._proxied().ask("record", path=str(path))
        self._recording = Recording(path, lambda: self._proxied().ask("stop_recording"))
        return self._recording
