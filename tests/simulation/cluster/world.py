"""A world of several machines with a broker each, and a ZooKeeper that never fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from ottla.broker.cluster import controller
from ottla.broker.server import Server
from ottla.broker.settings.config import BrokerConfig
from ottla.replication import cluster_store
from ottla.replication.coordination import SessionState
from tests.simulation.cluster.links import SimNetwork
from tests.simulation.cluster.options import ClusterOptions
from tests.simulation.cluster.slow_verdicts import answer_late
from tests.simulation.disk import SimDisk
from tests.simulation.machine import Machine
from tests.simulation.world import World
from tests.simulation.zookeeper import MemoryCoordination, ZooKeeperServer

if TYPE_CHECKING:
    from tests.simulation.loop import SimLoop

LISTENER_PORT = 9092
UNSOUND_BATCH = "%r: broker %d sent damaged records: %s"
"""The message that a follower logs when it refuses a leader's batch."""


class ClusterMachine(Machine):
    """A machine of a cluster. The first machine has the node id 1."""

    world: ClusterWorld

    def __init__(self, world: ClusterWorld, node_id: int, seed: int) -> None:
        super().__init__(world, node_id, seed)
        self.name, self.host = f"broker {node_id}", f"10.1.0.{node_id}"
        self.settings = {
            "listeners": f"PLAINTEXT://{self.host}:{LISTENER_PORT}",
            "node.id": str(node_id), "zookeeper.connect": "zookeeper:2181",
        }
        if cast(ClusterOptions, world.options).follower_reads:
            self.settings["broker.rack"] = f"rack {node_id}"
        self.session: MemoryCoordination | None = None
        self.to_zookeeper: Way | None = None
        self.seed, self.disks, self.paused = seed, 0, False
        self.refuses = False            # whether it refuses connections although it serves
        self.excuse: str | None = None
        self.cut_at = -1.0              # when it last lost its power or a disk
        self.dark = False               # it lost its power or a disk, and has not served since
        self.wiped = False              # it lost a disk, and has not served since

    @property
    def excused_end(self) -> str | None:
        return self.excuse

    def look(self) -> None:
        super().look()
        self.dark, self.wiped = self.dark and not self.up, self.wiped and not self.up

    def make_server(self, config: BrokerConfig, loop: SimLoop) -> Server:
        """The broker of one process, with a session of its own."""
        world = self.world
        to_server, to_client = Way(world), Way(world)
        self.to_zookeeper = to_server
        session = self.session = MemoryCoordination(
            world.zookeeper,
            later=lambda call: to_client.send(lambda: loop.dead or loop.call_soon(call)),
            send=to_server.send,
        )
        session.session_timeout_ms = int(world.session_seconds * 1000)
        return Server(
            config, self.disk, loop.poller.clock, network=SimNetwork(self), coordination=session
        )

    def listens(self) -> bool:
        """Whether the broker accepts connections."""
        server = self.server
        return server is not None and not self.died and not self.refuses and any(
            listener.socks[0].fileno() >= 0 for listener in server.listeners
        )

    def kill(self) -> None:
        session, was_there = self.session, self.loop is not None
        self.paused = False
        super().kill()
        if was_there and session is not None:
            self.world.end_session_later(session)

    def wipe(self) -> None:
        """Stop the machine, and give it new disks."""
        self.kill()
        self.world.note(f"{self.name}: its disks are replaced")
        self.disks, self.wiped = self.disks + 1, True
        self.disk = SimDisk(self.seed * 1000 + self.disks, self.world.wall_ms)
        self.disk.journaled = self.world.options.journaled

    def hide(self, directory: str) -> None:
        """Unmount a log directory of a machine whose process has ended."""
        self.world.note(f"{self.name}: {directory} is missing")
        self.disk.take_away(directory)
        self.wiped = True

    def find_directories(self) -> None:
        """Mount all log directories again. The process must have ended."""
        for directory in list(self.disk.absent):
            self.world.note(f"{self.name}: {directory} is back")
            self.disk.give_back(directory)

    def pause(self) -> None:
        """Suspend the process, as SIGSTOP does."""
        self.paused = self.loop is not None
        if self.session is not None:
            self.world.end_session_later(self.session)

    def resume(self) -> None:
        """Resume the process, as SIGCONT does."""
        self.paused = False

    def cut_off(self) -> None:
        """Cut the connection between ZooKeeper and this broker."""
        if self.session is not None and self.loop is not None:
            session = self.session
            self._in_turn(session.cut)
            self.world.end_session_later(session)

    def join_again(self) -> None:
        """Restore that connection."""
        if self.session is not None and self.loop is not None:
            self._in_turn(self.session.join)

    def _in_turn(self, call: Callable[[], None]) -> None:
        assert self.loop is not None
        self.loop.call_soon(call)


class Way:
    """One direction of a connection with ZooKeeper: messages arrive later, and in order."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world, self.arrives_at = world, 0.0
        self.held: list[Callable[[], Any]] | None = None
        """Messages that wait for `go_on`; None if messages are not delayed."""

    def hold(self) -> None:
        """Delay all messages from now on."""
        self.held = []

    def go_on(self) -> None:
        """Deliver the messages that were delayed."""
        held, self.held = self.held, None
        for call in held or ():
            self.send(call)

    def send(self, call: Callable[[], Any]) -> None:
        if self.held is not None:
            self.held.append(call)
            return
        self.arrives_at = max(self.arrives_at + 1e-7, self.world.now + self.world.latency())
        self.world.at(self.arrives_at, call)


class ClusterWorld(World):
    """Machines 1 to n."""

    def __init__(self, seed: int, options: ClusterOptions) -> None:
        self.zookeeper, self.session_seconds = ZooKeeperServer(), options.session_seconds
        self.cuts: set[tuple[int, int]] = set()
        self.held: dict[tuple[int, int], list[Callable[[], None]]] = {}
        super().__init__(seed, options)

    def make_machines(self, seed: int) -> list[Machine]:
        count = cast(ClusterOptions, self.options).brokers
        return [ClusterMachine(self, node, seed * 100 + node) for node in range(1, count + 1)]

    def is_failure(self, record: logging.LogRecord) -> bool:
        """Whether a logged error is one that no fault of this world explains. A follower may refuse
        a leader's batch only if bytes on the leader's disk have changed."""
        faults = " ".join(cast(ClusterOptions, self.options).faults)
        return record.msg == UNSOUND_BATCH and "damaged bytes" not in faults

    def patch(self, put: Callable[[Any, str, Any], None]) -> None:
        """Replace parts of the broker's code. Each entry of the metadata log is decoded once per
        run instead of once per broker, which is safe because nothing changes a decoded entry. Some
        options make snapshots frequent, or answers late."""
        if cast(ClusterOptions, self.options).snapshots:
            put(cluster_store, "SNAPSHOT_AFTER_ENTRIES", 3)
            put(controller, "SNAPSHOT_LOOK_SECONDS", 0.3)
        if cast(ClusterOptions, self.options).slow_verdicts:
            answer_late(self.options.drawn_from, put)
        put(cluster_store, "decode_entry", lru_cache(maxsize=None)(cluster_store.decode_entry))

    @property
    def brokers(self) -> list[ClusterMachine]:
        """The machines of the brokers, as ClusterMachine."""
        return cast(list[ClusterMachine], self.machines)

    def machine_at(self, host: str) -> ClusterMachine:
        """The machine at an address."""
        return next(each for each in self.brokers if each.host == host)

    def broker(self, node_id: int) -> ClusterMachine | None:
        """The machine with this node id; None if there is none."""
        return self.brokers[node_id - 1] if 0 < node_id <= len(self.brokers) else None

    # Between machines

    def is_cut(self, source: ClusterMachine, target: ClusterMachine) -> bool:
        """Whether messages from `source` do not reach `target`."""
        return (source.node_id, target.node_id) in self.cuts

    def cut(self, source: ClusterMachine, target: ClusterMachine) -> None:
        """Hold all messages from `source` to `target` from now on."""
        self.cuts.add((source.node_id, target.node_id))

    def mend(self, source: ClusterMachine, target: ClusterMachine) -> None:
        """End one cut. The messages that were held arrive."""
        key = source.node_id, target.node_id
        self.cuts.discard(key)
        for call in self.held.pop(key, ()):
            call()

    def heal(self) -> None:
        """End all cuts. The messages that were held arrive."""
        self.cuts.clear()
        held, self.held = self.held, {}
        for calls in held.values():
            for call in calls:
                call()

    def send_between(
        self, source: ClusterMachine, target: ClusterMachine, at: float, call: Callable[[], None]
    ) -> None:
        """Call `call` at the time `at`. If there is a cut between the two machines at that time,
        call it when the cut ends."""
        key = source.node_id, target.node_id

        def arrives() -> None:
            if key in self.cuts or key in self.held:
                self.held.setdefault(key, []).append(call)
            else:
                call()

        self.at(at, arrives)

    def end_session_later(self, session: MemoryCoordination) -> None:
        """Have ZooKeeper end a session one session timeout after the last ping, unless it hears
        from the client again by then. The last ping was at most a third of the timeout ago."""
        number = session.session_id

        def over() -> None:
            if number in self.zookeeper.sessions and not self._hears(session):
                self.note(f"ZooKeeper ends session {number}")
                self.zookeeper.expire(number)

        self.at(self.now + self.session_seconds * self.random.uniform(2 / 3, 1), over)

    def _hears(self, session: MemoryCoordination) -> bool:
        return session.state is SessionState.CONNECTED and any(
            each.session is session and each.loop is not None and not each.paused
            for each in self.brokers
        )
