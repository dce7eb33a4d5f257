"""One run of several brokers: clients, faults between them, and the final checks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from ottla.wire.errors import ErrorCode
from tests.simulation.abandoned import abandon
from tests.simulation.cluster.afterwards import commit_everywhere
from tests.simulation.cluster.checker import (
    Leaders,
    check_contents,
    differences,
    partitions_of,
    unsettled,
)
from tests.simulation.cluster.clients import Admin, Consumer, Part, Producer
from tests.simulation.cluster.damage import Damage
from tests.simulation.cluster.deleting import Deleter, check_own_records, not_forgotten
from tests.simulation.cluster.faults import happen
from tests.simulation.cluster.follower_reads import FollowerRouter, NearConsumer
from tests.simulation.cluster.losses import Truth, has_good_copy, remains
from tests.simulation.cluster.moving import Mover, unfinished
from tests.simulation.cluster.options import ClusterOptions
from tests.simulation.cluster.pairs import Elections
from tests.simulation.cluster.promises import Promises
from tests.simulation.cluster.reckoning import (
    COMMITTERS,
    Ascending,
    check_coordinators,
    check_transactional,
    commit_ascending,
    read_along,
    read_ascending,
)
from tests.simulation.cluster.refused import willing
from tests.simulation.cluster.router import Router
from tests.simulation.cluster.settings import Settings
from tests.simulation.cluster.tempo import BUSY, Tempo
from tests.simulation.contenders import contend
from tests.simulation.groups import Offsets, be_classic, be_new, commit_simply
from tests.simulation.guarded import Guard
from tests.simulation.histories.check import check_histories
from tests.simulation.members import be_static, classic_members, sharers
from tests.simulation.model import Model
from tests.simulation.replay import check_producers
from tests.simulation.transactional_producers import produce_transactions
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterMachine, ClusterWorld

TOPICS = {"a": 3, "b": 1}
TRANSACTIONAL = {"t": 2, "u": 1}
SETTLED_SECONDS = 120.0
PATIENCE_SECONDS = 120.0
MEMBER_SECONDS = 10.0
OPERATOR_SECONDS = 30.0


class ClusterStory:
    """The clients of one run, and what they share.

    Some clients produce and consume records with acks=all (`clients.py`). The others come from the
    one-broker simulation, and use a Router: transactions, groups and readers.
    """

    coordinators_stay = False

    def __init__(self, world: ClusterWorld) -> None:
        self.world, self.options = world, cast(ClusterOptions, world.options)
        self.random = random.Random(f"cluster story {world.seed}")
        self.refusing = random.Random(f"cluster refused calls {world.seed}")
        self.parts = [Part(name, index) for name, count in TOPICS.items() for index in range(count)]
        self.producer_ids: set[int] = set()
        self.leaders = Leaders(world)
        self.truth = Truth(world.zookeeper)
        self.elections = Elections(self)
        self.truth.on_record = self.elections.follow
        self.tempo, self.damage = Tempo(world, self.truth), Damage(world, self.truth)
        self.promises = Promises(self)
        self.deleter: Deleter | None = None
        self.over = False
        self.cancelled = False          # whether the `fragile` clients were cancelled
        self.hushed = False             # whether clients that call `rest` pause
        self.tasks: list[asyncio.Task[None]] = []
        self.fragile: list[asyncio.Task[None]] = []
        """The clients of transactions and groups. They are cancelled when an internal topic, or a
        topic with transactions, may have lost records."""
        self.model = Model()
        self.waiting: dict[asyncio.Future[Any], tuple[float, str, str, int]] = {}
        """Requests without an answer, the oldest first: when it was sent, its name, the client, the
        broker."""
        self.resting: dict[asyncio.Future[None], None] = {}
        """The futures of clients that wait between two steps."""
        self.offsets = Offsets(self)            # type: ignore[arg-type]
        self.guard = Guard(world, lambda: self.pace, lambda: self.over, self.truth.now)
        self.good: dict[tuple[str, int], bool] = {}
        """By partition, whether it had a good copy at the last look."""

    # Called by clients

    @property
    def pace(self) -> float:
        """The mean time between two steps of a client: short at the end, when clients only
        finish."""
        return BUSY if self.over else self.tempo.pace

    async def rest(self, steps: float) -> None:
        """Wait between two steps of a client, for a random time of about `steps` times the pace. In
        the final phase clients do not wait."""
        seconds = self.random.expovariate(1 / (steps * self.pace))
        waits = self.world.clients.create_future()
        timer = self.world.clients.call_later(seconds, _end, waits)
        self.resting[waits] = None
        try:
            if not self.over:
                await waits
            while self.hushed:
                await asyncio.sleep(0.1)
        finally:
            timer.cancel()
            del self.resting[waits]

    def session(self, name: str) -> Router:
        """The connections of a client that comes from the one-broker simulation."""
        return Router(self, name)

    def watch(self) -> None:
        """Raise a Violation if a request is not answered in time. Calls itself again regularly."""
        now = self.world.now
        for asked_at, request, name, node_id in self.waiting.values():
            if now - asked_at > PATIENCE_SECONDS:
                raise Violation(
                    f"{request} of client {name!r} is not answered by broker {node_id} within"
                    f" {PATIENCE_SECONDS:g} s"
                )
            break
        self.world.at(now + PATIENCE_SECONDS / 8, self.watch)

    def member_lost(self, name: str, code: ErrorCode, heard_at: float) -> None:
        """Note that a member was removed. Raises Violation if its session cannot have expired."""
        if self.is_heard(heard_at):
            raise Violation(
                f"member {name!r} is answered {code.name}, though its session has not expired"
            )

    def is_heard(self, heard_at: float) -> bool:
        """Whether a member's session certainly lasts, if its last answered request was sent
        then."""
        return self.world.now - heard_at < MEMBER_SECONDS

    def partitions_of(self, names: Iterable[str]) -> int:
        """How many partitions the topics with these names have."""
        known = TOPICS | TRANSACTIONAL
        return sum(known.get(each, 0) for each in names)

    # The run

    async def run(self) -> None:
        world, options = self.world, self.options
        self.watch()
        for machine in world.brokers:
            machine.begin_broker()
        await world.until(
            lambda: all(machine.up for machine in world.brokers), "every broker serves", 60.0
        )
        admin = self.admin = Admin(self, "admin")
        self.mover = Mover(self, "mover")
        for name, count in {**TOPICS, **TRANSACTIONAL}.items():
            topic_id = await admin.create(name, count)
            if name in TRANSACTIONAL:
                topic = self.model.new_topic(name, topic_id, count)
                topic.indexed_whole = options.settings["log.index.interval.bytes"] == "0"
        self.begin_clients()
        for fault, (at, hours) in zip(options.faults, options.clock_jumps, strict=False):
            await self.pass_time(options.rounds_seconds)
            if hours:
                world.note(f"{world.brokers[at].name}: its wall clock jumps by {hours} hours")
                world.brokers[at].jumped_ms += hours * 3_600_000
            world.note(f"fault: {fault}")
            self.model.incarnation += 1
            await happen(self, fault)
        await self.pass_time(options.rounds_seconds)
        self.over, self.hushed = True, False
        for waits in self.resting:
            _end(waits)
        self.heal()
        await self.settle()
        if options.transactions and not self.cancelled:
            await commit_everywhere(self)
            await self.settle()
        if options.guarded:
            await self.guard.reckon()
        check_contents(world, self.parts)
        check_own_records(world)
        for machine in world.brokers:
            for partition in partitions_of(machine):
                check_producers(partition)
        if not self.cancelled:
            await check_transactional(self)
            await check_coordinators(self)
            check_histories(self)

    def begin_clients(self) -> None:
        options = self.options
        clients: list[Any] = [Producer(self, f"p{at}") for at in range(options.producers)]
        clients += [Consumer(self, "reader"), self.admin]
        if options.follower_reads:
            clients.append(NearConsumer(self, "near"))
        if options.directory_moves:
            clients.append(self.mover)
        if options.settings_change:
            clients.append(Settings(self, "settings"))
        if options.deletions:
            self.deleter = Deleter(self, "deleter")
            clients.append(self.deleter)
        if options.guarded:
            clients.append(self.guard)
        self.tasks = [asyncio.ensure_future(client.work()) for client in clients]
        self.fragile = [asyncio.ensure_future(client) for client in fragile_clients(self)]

    async def pass_time(self, seconds: float) -> None:
        """Let the clients work. A violation that one of them finds ends the run."""
        end = self.world.now + seconds
        with self.tempo.until(end):
            while self.world.now < end:
                await asyncio.sleep(min(self.pace / 2, 0.1, end - self.world.now))
                self.look()

    async def wait(self, seconds: float) -> None:
        """Let the clients work. In short lives, a time of more than a second is shortened in the
        same ratio as ZooKeeper's session timeout."""
        await self.pass_time(seconds * self.options.haste if seconds > 1 else seconds)

    def look(self) -> None:
        """Raise the violation that a client has found, if any, and check the brokers' objects."""
        for task in [*self.tasks, *([] if self.cancelled else self.fragile)]:
            if task.done() and task.exception() is not None:
                task.result()
        with willing(self.world.brokers):
            self.leaders.look()
            self._judge()
            self.promises.look()
            self.tempo.look()

    def heal(self) -> None:
        """Have all brokers run again, connected to each other."""
        self.world.note("everything is healed")
        self.world.heal()
        for machine in self.world.brokers:
            machine.resume()
            machine.excuse = None
            machine.join_again()
            if machine.disk.absent:
                machine.kill()
                machine.find_directories()
            if machine.loop is None:
                machine.begin_broker()

    async def settle(self) -> None:
        """Let the clients finish, and wait until all replicas are equal. Raises Violation after a
        while."""
        end, last = self.world.now + SETTLED_SECONDS, ""
        every = OPERATOR_SECONDS * self.options.haste
        operator_at = self.world.now + every
        while True:
            if self.world.now > operator_at:
                operator_at += every
                await self.operate()
            self.look()
            left = [task for task in [*self.tasks, *self.fragile] if not task.done()]
            problem = f"{len(left)} clients do not end" if left else unsettled(self.world)
            cleaned = TRANSACTIONAL if self.options.settings_change else ()
            problem = problem or differences(self.world, self.damage.nodes(), cleaned)
            problem = problem or unfinished(self.world) or not_forgotten(self.world)
            if not problem:
                return
            if problem != last:
                self.world.note(f"not yet: {problem}")
                last = problem
            if self.world.now > end:
                raise Violation(f"{SETTLED_SECONDS:g} s after everything was healed: {problem}")
            await asyncio.sleep(0.2)

    async def operate(self) -> None:
        """Do what an operator does for a partition without a leader: if a replica is lost, elect
        any replica; otherwise make unreadable files readable again, and restart their brokers. Also
        restart leaders with a damaged copy, so that they find the damage, and brokers with an
        offline log directory."""
        harmed = self.damage.nodes()
        offline = set[int]()
        for name, index, state in list(self.truth.states()):
            offline.update(() if state.extra is None else state.extra.offline)
            machine = self.world.broker(state.leader)
            if machine is None and state.extra is not None and state.extra.lost:
                self.world.note(f"an operator gives {name}-{index} a leader: {state}")
                self.elections.asked.add((name, index))
                await self.admin.elect_anyone(name, index)
            elif machine is None and (nodes := self.damage.recover(name, index)):
                self.world.note(f"the disks of {nodes} read {name}-{index} again")
                for each in self.world.brokers:
                    if each.node_id in nodes:
                        each.kill()
                        each.begin_broker()
            elif machine is not None and state.leader in harmed.get((name, index), ()):
                self.world.note(f"an operator restarts the damaged leader of {name}-{index}")
                # Other replicas may lack the records that this one cannot read.
                self.damage.recover(name, index)
                machine.kill()
                machine.begin_broker()
        for machine in self.world.brokers:
            if machine.node_id in offline:
                self.world.note(f"an operator restarts {machine.name}: a log directory is offline")
                machine.kill()
                machine.begin_broker()

    # What is still promised

    def alone(self, part: Part) -> tuple[int, int] | None:
        """The node id of the only in-sync replica, and the partition's epoch, if this replica knows
        that it is the only one: then it flushes records before it acknowledges them. Otherwise
        None."""
        found = self.truth.alone(part)
        machine = None if found is None else self.world.broker(found[0])
        if found is None or machine is None or machine.server is None or not machine.up:
            return None
        led = machine.server.replicas.partition(part.topic, part.index)
        return found if led is not None and led.partition_epoch == found[1] else None

    def cut_power(self, machine: ClusterMachine) -> None:
        """Cut a machine's power. Records that are not on its disk are lost, unless other replicas
        have them."""
        machine.cut_power()
        self._loses(machine)

    def wipe(self, machine: ClusterMachine) -> None:
        """Stop a machine, and give it empty disks."""
        machine.wipe()
        for part in self.parts:
            part.flushed = {v: at for v, at in part.flushed.items() if at != machine.node_id}
        self._loses(machine)

    def hide(self, machine: ClusterMachine, directory: str) -> None:
        """Hide one of the log directories of a stopped machine."""
        machine.hide(directory)
        for part in self.parts:
            part.flushed = {v: at for v, at in part.flushed.items() if at != machine.node_id}
        self._loses(machine)

    def _loses(self, machine: ClusterMachine) -> None:
        machine.dark, machine.cut_at = True, self.world.now
        self._judge(was_cut=True)

    def _judge(self, was_cut: bool = False) -> None:
        """Give up promises about partitions without a good copy, as `losses.py` describes. A
        partition loses its last good copy if machines lose power or disks, if bytes change, or if
        this copy leaves the in-sync set while replicas without power stay in it. If the partition
        belongs to an internal topic or a topic with transactions, all checks of transactions and
        groups end. They continue only if partitions have had a single replica from the start, and
        no disk was lost: such a replica has flushed all that it acknowledged."""
        dark = {each.node_id: each for each in self.world.brokers if each.dark}
        harmed = self.damage.nodes()
        for name, index, state in self.truth.states() if dark or harmed else ():
            damaged = harmed.get((name, index), set())
            good = has_good_copy(state, {*dark, *damaged})
            had = self.good.get((name, index), True)
            self.good[name, index] = good
            if good or not (had or was_cut or damaged):
                continue
            self.world.note(f"{name}-{index} may lose what is not on a disk: {state}")
            for part in self.parts:
                if (part.topic, part.index) == (name, index):
                    # If copies are damaged, nothing is promised: any of them may become leader.
                    left = {} if damaged else remains(self.world, name, index, state)
                    flushed_by = () if damaged else state.isr
                    part.lose(self.world.now, self.truth.epoch(name, index), left, flushed_by)
            coordinated = name.startswith("__") or name in TRANSACTIONAL
            wiped = any(each.wiped for each in dark.values())
            if coordinated and (len(state.replicas) > 1 or self.options.factor > 1 or wiped):
                self._cancel()
        if not dark and not harmed:
            self.good.clear()

    def _cancel(self) -> None:
        self.cancelled = True
        for task in self.fragile:
            task.cancel()

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

    async def die_in_a_call(self, machine: ClusterMachine) -> None:
        """Have a process end in one of its next calls of the disk, if it makes enough of them in 5
        s."""
        machine.disk.stop_at = machine.disk.operations + self.random.randrange(1, 80)
        end = self.world.now + 5
        while machine.loop is not None and self.world.now < end:
            await self.pass_time(0.01)
        machine.disk.stop_at = None

    async def restart_later(self, machine: ClusterMachine) -> None:
        """Restart a process soon, or after its session with ZooKeeper has ended."""
        await self.wait(self.random.choice((0.01, 0.5, 3.0, 10.0)))
        if machine.loop is None:
            machine.begin_broker()
        if self.random.random() < 0.7:
            await self.until_up(machine)

    async def insist(self, machine: ClusterMachine) -> None:
        """Start a broker again and again until it serves. It may be refused as long as the session
        of its former process lasts."""
        end = self.world.now + 60
        while not machine.up:
            if machine.loop is None:
                machine.begin_broker()
            if self.world.now > end:
                raise Violation(f"{machine.name} does not begin to serve")
            await self.pass_time(0.2)

    async def until_up(self, machine: ClusterMachine) -> None:
        end = self.world.now + 60
        while not machine.up and machine.loop is not None:
            if self.world.now > end:
                raise Violation(f"{machine.name} does not begin to serve")
            await self.pass_time(0.1)

    async def until_in_sync(self) -> None:
        """Wait at most 30 s until every replica is in sync, as an operator does between
        restarts."""
        end = self.world.now + 30
        while unsettled(self.world) and self.world.now < end:
            await self.pass_time(0.1)


def fragile_clients(story: ClusterStory) -> list[Any]:
    """The clients of transactions and groups."""
    options = story.options
    fragile: list[Any] = [
        produce_transactions(story, f"t{at}")        # type: ignore[arg-type]
        for at in range(options.transactions)
    ]
    if options.transactions:
        fragile.append(read_along(story, story.session("committed")))
        if options.follower_reads:
            fragile.append(read_along(story, FollowerRouter(story, "committed near")))
    if options.groups:
        fragile += [
            commit_simply(story, COMMITTERS),        # type: ignore[arg-type]
            be_new(story, "new"),                    # type: ignore[arg-type]
        ]
    if "successor ahead" in options.faults:
        for group, known in {f"ascending{at}": Ascending() for at in range(3)}.items():
            fragile += [
                commit_ascending(story, group, known), read_ascending(story, group, known)
            ]
    if options.groups > 1:
        fragile.append(be_classic(story, "classic"))     # type: ignore[arg-type]
    if options.members:
        fragile += [each.work() for each in classic_members(story)]  # type: ignore[arg-type]
        fragile.append(be_static(story, "static"))       # type: ignore[arg-type]
        fragile += [each.work() for each in sharers(story)]      # type: ignore[arg-type]
    if options.contenders:
        fragile.append(contend(story))                   # type: ignore[arg-type]
    if options.abandons:
        fragile.append(abandon(story))                   # type: ignore[arg-type]
    return fragile


def _end(waits: asyncio.Future[None]) -> None:
    if not waits.done():
        waits.set_result(None)
