"""One machine of a world: its disk, and the broker's process, which may be running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.broker.server import Server
from ottla.broker.settings.config import BrokerConfig
from tests.simulation.disk import ProcessEnds, SimDisk
from tests.simulation.loop import SimLoop, running
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World


class Machine:
    """A machine. The broker's process starts and ends; the disk stays."""

    def __init__(self, world: World, node_id: int, seed: int) -> None:
        self.world, self.node_id = world, node_id
        self.jumped_ms = 0
        """How far the machine's wall clock is ahead of the world's."""
        self.disk = SimDisk(seed, world.wall_ms)
        self.disk.cold_share = world.options.cold_share
        self.disk.journaled = world.options.journaled
        self.loop: SimLoop | None = None
        self.server: Server | None = None
        self.starting: Any = None
        self.up = False
        self.died = False
        self.paused = False
        self.dead: list[Any] = []
        self.name = "broker"
        self.settings = {"listeners": "PLAINTEXT://127.0.0.1:9092", "node.id": str(node_id)}

    @property
    def excused_end(self) -> str | None:
        """Why the broker is allowed to end or to refuse to start; None if it is not allowed."""
        return self.world.excused_end

    def wall_ms(self) -> int:
        """The time of the machine's wall clock."""
        return self.world.wall_ms() + self.jumped_ms

    def begin_broker(self) -> None:
        """Begin to start the broker. Some turns later it serves, or its start has failed."""
        assert self.loop is None
        world = self.world
        self.disk = self.disk.reopened()
        self.disk.on_end = self._process_stopped
        self.died = False
        loop = self.loop = SimLoop(world, wall_ms=self.wall_ms)
        settings = {
            **self.settings, "log.dirs": ",".join(world.options.directories),
            **world.options.settings, **world.config_overrides,
        }
        config = BrokerConfig.load(None, [f"{k}={v}" for k, v in settings.items()])
        with running(loop):
            server = self.server = self.make_server(config, loop)
            self.starting = loop.create_task(server.start())
        self.up = False
        world.note(f"{self.name} starts")

    def make_server(self, config: BrokerConfig, loop: SimLoop) -> Server:
        """Make the server of a new process."""
        return Server(config, self.disk, loop.poller.clock)

    def poke(self) -> None:
        """Have the broker's loop run a turn, because something has arrived."""
        if self.loop is not None:
            self.loop.poked = True

    def _process_stopped(self) -> None:
        """Called when the disk ends the process inside a disk call. Bytes that the process has sent
        still arrive."""
        self.died = True
        for link in self.world.links_of(self):
            link.pull()

    def kill(self) -> None:
        """Kill the process as `kill -9` does: between two disk calls or, if the disk has ended the
        process, inside a disk call."""
        if self.loop is None:
            return
        self.world.on_kill(self)
        self.world.note(f"{self.name} is killed")
        for link in self.world.links_of(self):
            if not self.died:
                link.pull()
        self.disk.stopped = True
        self._bury()

    def _bury(self) -> None:
        loop, server, world = self.loop, self.server, self.world
        assert loop is not None and server is not None
        loop.kill()
        self.dead.append((loop, server, self.starting))
        self.loop, self.server, self.up = None, None, False
        for link in world.links_of(self):
            link.far.close()
            world.unwatch(link)
            world.at(max(link.on_way_back + 1e-7, world.now), link.end)

    def cut_power(self) -> None:
        """Cut the machine's power: data that were not synced may be lost."""
        self.kill()
        self.world.note("power cut" if self.name == "broker" else f"{self.name}: power cut")
        self.disk = self.disk.reopened()
        self.disk.cut_power()

    async def stop_cleanly(self) -> None:
        """Stop the broker with SIGTERM; the clients' loop awaits this."""
        server, loop = self.server, self.loop
        assert server is not None and loop is not None
        self.up = False
        with running(loop):
            task = loop.create_task(server.stop())
        self.poke()
        await self.world.until(lambda: task.done() or loop.dead, "a clean stop ends", 600.0)
        if loop.dead:
            return
        if task.exception() is not None and self.disk.is_well():
            raise Violation(
                f"a clean stop of the {self.name} failed: {task.exception()!r}"
            ) from task.exception()
        self.disk.stopped = True
        self.world.note(f"{self.name} has stopped")
        self._bury()

    def is_well(self) -> bool:
        """Whether the broker serves, and `look` would notice nothing new."""
        loop, server = self.loop, self.server
        return (
            self.up and self.starting is None and not self.died
            and loop is not None and not loop.errors and server is not None
            and not server.failure.done()
        )

    def look(self) -> None:
        """Notice that the broker has begun to serve, or has ended by itself. Raises Violation if it
        has failed and no fault explains this."""
        loop, server, world = self.loop, self.server, self.world
        if loop is None or server is None:
            return
        if self.died:
            self.kill()
            return
        if self.starting is not None and self.starting.done():
            error = self.starting.exception()
            self.starting = None
            if error is not None:
                if self.excused_end is None:
                    raise Violation(f"the {self.name} does not start: {error!r}") from error
                world.note(f"the start is refused: {error}")
                self.disk.stopped = True
                self._bury()
                return
            self.up = True
            world.note(f"{self.name} serves")
        if server.failure.done() and self.up:
            reason = server.failure.result()
            world.note(f"{self.name} ends: {reason}")
            if self.excused_end is None:
                raise Violation(f"the {self.name} has ended itself: {reason}")
            self.kill()
        for failure in world.failures:
            if not isinstance(failure, ProcessEnds):
                raise Violation(f"a failure of the {self.name}: {failure!r}") from failure
        world.failures.clear()
        if loop.errors:
            context = loop.errors[0]
            loop.errors.clear()
            error = context.get("exception")
            if not isinstance(error, ProcessEnds):
                raise Violation(
                    f"an error reached the event loop of the {self.name}: {context}"
                ) from error
