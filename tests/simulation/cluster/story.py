"""One run of several brokers: clients, faults between them, and the final checks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from tests.simulation.cluster.checker import Leaders, check_contents, differences, unsettled
from tests.simulation.cluster.clients import Admin, Consumer, Part, Producer
from tests.simulation.cluster.options import ClusterOptions
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterMachine, ClusterWorld

TOPICS = {"a": 3, "b": 1}
SETTLED_SECONDS = 120.0


class ClusterStory:
    """The clients of one run, and what they share."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world, self.options = world, cast(ClusterOptions, world.options)
        self.random = random.Random(f"cluster story {world.seed}")
        self.parts = [Part(name, index) for name, count in TOPICS.items() for index in range(count)]
        self.producer_ids: set[int] = set()
        self.leaders = Leaders(world)
        self.over = False
        self.tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        world, options = self.world, self.options
        for machine in world.brokers:
            machine.begin_broker()
        await world.until(
            lambda: all(machine.up for machine in world.brokers), "every broker serves", 60.0
        )
        admin = Admin(self, "admin")
        for name, count in TOPICS.items():
            await admin.create(name, count)
        clients: list[Any] = [Producer(self, f"p{at}") for at in range(options.producers)]
        clients += [Consumer(self, "reader"), admin]
        self.tasks = [asyncio.ensure_future(client.work()) for client in clients]
        for fault in options.faults:
            await self.pass_time(options.rounds_seconds)
            world.note(f"fault: {fault}")
            await FAULTS[fault](self)
        await self.pass_time(options.rounds_seconds)
        self.over = True
        self.heal()
        await self.settle()
        check_contents(world, self.parts)

    async def pass_time(self, seconds: float) -> None:
        """Let the clients work; a violation that one of them finds ends the run."""
        end = self.world.now + seconds
        while self.world.now < end:
            await asyncio.sleep(min(0.05, seconds))
            self.look()

    def look(self) -> None:
        for task in self.tasks:
            if task.done() and task.exception() is not None:
                task.result()
        self.leaders.look()

    def heal(self) -> None:
        """All brokers are running again and connected."""
        self.world.note("everything is healed")
        self.world.heal()
        for machine in self.world.brokers:
            machine.join_again()
            if machine.loop is None:
                machine.begin_broker()

    async def settle(self) -> None:
        """The clients finish, and all replicas become equal."""
        end = self.world.now + SETTLED_SECONDS
        while True:
            self.look()
            left = [task for task in self.tasks if not task.done()]
            problem = f"{len(left)} clients do not end" if left else unsettled(self.world)
            problem = problem or differences(self.world)
            if not problem:
                return
            if self.world.now > end:
                raise Violation(f"{SETTLED_SECONDS:g} s after everything was healed: {problem}")
            await asyncio.sleep(0.2)

    # Helpers of faults

    def some_machine(self) -> ClusterMachine | None:
        up = [machine for machine in self.world.brokers if machine.up]
        return self.random.choice(up) if up else None

    def controller(self) -> ClusterMachine | None:
        for machine in self.world.brokers:
            server = machine.server
            if machine.up and server is not None and server.metadata_log.is_controller:
                return machine
        return None

    async def restart_later(self, machine: ClusterMachine) -> None:
        """The process restarts, soon or after its session has ended."""
        await self.pass_time(self.random.choice((0.01, 0.5, 3.0, 10.0)))
        if machine.loop is None:
            machine.begin_broker()
        if self.random.random() < 0.7:
            await self.until_up(machine)

    async def until_up(self, machine: ClusterMachine) -> None:
        end = self.world.now + 60
        while not machine.up and machine.loop is not None:
            if self.world.now > end:
                raise Violation(f"{machine.name} does not come to serve")
            await self.pass_time(0.1)


Fault = Callable[[ClusterStory], Coroutine[Any, Any, None]]


async def kill(story: ClusterStory) -> None:
    machine = story.some_machine()
    if machine is not None:
        machine.kill()
        await story.restart_later(machine)


async def kill_the_controller(story: ClusterStory) -> None:
    machine = story.controller()
    if machine is not None:
        machine.kill()
        await story.restart_later(machine)


async def kill_a_leader(story: ClusterStory) -> None:
    part = story.random.choice(story.parts)
    node_id = story.leaders.of(part.topic, part.index)
    machine = None if node_id is None else story.world.broker(node_id)
    if machine is not None:
        machine.kill()
        await story.restart_later(machine)


async def clean_stop(story: ClusterStory) -> None:
    machine = story.some_machine()
    if machine is not None:
        await machine.stop_cleanly()
        await story.restart_later(machine)


async def cut_off_one_way(story: ClusterStory) -> None:
    one, other = story.random.sample(story.world.brokers, 2)
    story.world.cut(one, other)
    await story.pass_time(story.random.choice((0.2, 3.0, 15.0)))
    story.world.heal()


async def cut_off(story: ClusterStory) -> None:
    one = story.random.choice(story.world.brokers)
    for other in story.world.brokers:
        if other is not one:
            story.world.cut(one, other)
            story.world.cut(other, one)
    await story.pass_time(story.random.choice((0.2, 3.0, 15.0)))
    story.world.heal()


async def lose_zookeeper(story: ClusterStory) -> None:
    machine = story.some_machine()
    if machine is not None:
        machine.cut_off()
        await story.pass_time(story.random.choice((0.1, 3.0, 12.0)))
        machine.join_again()


async def end_a_session(story: ClusterStory) -> None:
    machine = story.some_machine()
    if machine is not None and machine.session is not None:
        story.world.zookeeper.expire(machine.session.session_id)


async def break_links(story: ClusterStory) -> None:
    for link in list(story.world.links.values()):
        if story.random.random() < 0.5:
            link.end()


async def idle(story: ClusterStory) -> None:
    await story.pass_time(10.0)


FAULTS: dict[str, Fault] = {
    "kill": kill, "kill the controller": kill_the_controller, "kill a leader": kill_a_leader,
    "clean stop": clean_stop, "cut off one way": cut_off_one_way, "cut off": cut_off,
    "lose ZooKeeper": lose_zookeeper, "end a session": end_a_session, "break links": break_links,
    "idle": idle,
}
