"""One run: clients that work at the same time, faults meanwhile, and the final checks."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import FindCoordinatorRequest
from tests.simulation.abandoned import abandon
from tests.simulation.admin import Admin
from tests.simulation.checker import (
    check_disk,
    check_forgotten,
    check_groups,
    check_live,
    check_partition,
    check_settings,
    check_soundness,
    check_transactions,
)
from tests.simulation.contenders import contend, read_at_last
from tests.simulation.faults import FAULTS
from tests.simulation.following import Follower
from tests.simulation.groups import (
    Offsets,
    be_classic,
    be_new,
    check_offset,
    commit_simply,
)
from tests.simulation.guarded import Guard
from tests.simulation.histories.check import check_histories
from tests.simulation.logs import BeforeAKill, check_started
from tests.simulation.looking import look_around
from tests.simulation.members import be_static, classic_members, sharers
from tests.simulation.model import ABORTED, GONE, LIVE, Model
from tests.simulation.network import Broken
from tests.simulation.options import REFUSED, SETTLED_SECONDS
from tests.simulation.producers import produce_idempotently, produce_plainly
from tests.simulation.reading import Content, Missing, fetch, read_as_of_old, take
from tests.simulation.session import Session
from tests.simulation.transactional_producers import produce_transactions
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from ottla.replication.metadata import MetadataImage
    from tests.simulation.world import World

SESSION_SECONDS = 25.0


class Story:
    """The clients of one run, and what they share."""

    coordinators_stay = True            # in a cluster they move, and lose what no log has

    def __init__(self, world: World) -> None:
        self.world, self.options = world, world.options
        self.random = random.Random(f"story {world.seed}")
        self.apart = random.Random(f"apart {world.seed}")       # for features that were added later
        self.dear = random.Random(f"dear checks {world.seed}")
        self.refusing = random.Random(f"refused calls {world.seed}")
        self.model = Model()
        self.offsets = Offsets(self)
        self.busy: set[str] = set()
        self.over = False               # if true, clients finish what they have begun
        self.finished = False           # if true, followers finish too; until then they read on
        self.followers: list[Follower] = []
        self.pace = 0.02
        self.waters: dict[tuple[bytes, int], tuple[int, int, int]] = {}
        """By partition, at the last check: the incarnation of the broker, the high watermark and
        the log start."""
        self.followed: MetadataImage | None = None
        """The image with which the broker's partitions were last compared."""
        self.guard = Guard(world, lambda: self.pace * 5, lambda: self.over, self.newest_image)
        self.before = BeforeAKill()
        if not {"disk full", REFUSED} & {*self.options.faults}:     # they may lose snapshots
            world.on_kill = self.before.note
        self.on_deletion: Callable[[], object] = lambda: None
        """Called when the deletion of a topic is requested."""

    # Called by clients

    def session(self, name: str) -> Session:
        """A client's connection that reconnects."""
        return Session(self.world, name)

    def member_lost(self, name: str, code: ErrorCode, heard_at: float) -> None:
        """Note that a member was removed. Raises Violation if its session cannot have expired."""
        if self.is_heard(heard_at):
            raise Violation(
                f"member {name!r} is answered {code.name}, though its session has not expired"
            )

    def is_heard(self, heard_at: float) -> bool:
        """Whether the session of a member certainly lasts, if the coordinator heard the member at
        this time."""
        return self.world.now - heard_at < SESSION_SECONDS

    def newest_image(self) -> MetadataImage | None:
        """The metadata image of the newest decision; None while the broker does not serve."""
        server = self.world.server
        return server.metadata_log.decided if server is not None and self.world.up else None

    def partitions_of(self, names: Iterable[str]) -> int:
        """How many partitions the topics with these names have."""
        there = [each for each in self.model.topics if each.state != GONE and each.name in names]
        return sum(len(each.partitions) for each in there)

    @property
    def calm(self) -> bool:
        """Whether little happens, so that rare checks are enough."""
        return self.pace >= 1 or (self.over and not self.options.thorough)

    # The run

    async def run(self) -> None:
        world, options = self.world, self.options
        await self.start()
        admin = self.admin = Admin(self, "first")
        for name in ("a", "b"):
            await admin.create(name)
        await self.find_coordinators()
        tasks = self.begin_clients()
        watcher = asyncio.ensure_future(self.watch())
        for fault in options.faults:
            await self.pass_time(options.rounds_seconds, tasks)
            world.note(f"fault: {fault}")
            await FAULTS[fault](self, tasks)
        await self.pass_time(options.rounds_seconds, tasks)
        self.over = True
        await self.ended(tasks)
        await self.settle()
        for follower in self.followers:
            await follower.catch_up()
        self.finished = True
        if options.guarded:
            await self.guard.reckon()
        await self.reckon("at the end", options.thorough or not options.endings)
        for at, ending in enumerate(options.endings):
            if ending == "kill":
                world.kill()
            elif ending == "power cut":
                self.cut_power()
            else:
                await self.stop()
            await self.start()
            if options.thorough or at == len(options.endings) - 1:
                await self.reckon(f"after a {ending}")
            else:
                await asyncio.sleep(self.apart.choice((0.0, 1.0, 6.0)))
        watcher.cancel()
        check_histories(self)

    async def find_coordinators(self) -> None:
        """Send the requests with which every client begins; they create the internal topics."""
        session = self.session("first")
        for kind, keys in ((0, ["s0", "s1"]), (1, ["t0", "t1"])):
            while True:
                answer = await session.call(
                    FindCoordinatorRequest(key_type=kind, coordinator_keys=keys), 4
                )
                if all(each.error_code == 0 for each in answer.coordinators):
                    break
                await asyncio.sleep(0.1)

    def begin_clients(self) -> list[asyncio.Task[None]]:
        options, made = self.options, []
        for at in range(options.producers):
            kind = produce_plainly if at % 2 else produce_idempotently
            made.append(kind(self, f"p{at}"))
        made += [produce_transactions(self, f"t{at}") for at in range(options.transactions)]
        made += [Admin(self, f"admin{at}").work() for at in range(options.admins)]
        made += [read_along(self, f"r{at}") for at in range(options.readers)]
        if options.groups:
            made.append(commit_simply(self, "offsets"))
            made.append(be_new(self, "new"))
        if options.groups > 1:
            made.append(be_classic(self, "classic"))
        if options.members:
            made += [each.work() for each in classic_members(self)]
            made.append(be_static(self, "static"))
            made += [each.work() for each in sharers(self)]
        if options.contenders:
            made.append(contend(self))
        if options.abandons:
            made.append(abandon(self))
        if options.guarded:
            made.append(self.guard.work())
        made += [look_around(self, f"look{at}") for at in range(options.lookers)]
        if options.readers:
            self.followers.append(Follower(self, "follower"))
        self.last = [asyncio.ensure_future(each.follow()) for each in self.followers]
        return [asyncio.ensure_future(each) for each in made]

    async def pass_time(self, seconds: float, tasks: list[asyncio.Task[None]]) -> None:
        """Let the clients work; a violation that one of them finds ends the run."""
        end = self.world.now + seconds
        while self.world.now < end:
            await asyncio.sleep(min(0.1, seconds))
            self.look_at(tasks)

    def look_at(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in [*tasks, *self.last]:
            if task.done() and task.exception() is not None:
                task.result()

    async def ended(self, tasks: list[asyncio.Task[None]]) -> None:
        def done() -> bool:
            self.look_at(tasks)
            return all(task.done() for task in tasks)

        try:
            every = 0.02 if self.options.thorough else 0.1
            await self.world.until(done, "every client ends", 400.0, every)
        except Violation as violation:
            left = [_places(task) for task in tasks if not task.done()]
            raise Violation(f"{violation}: {'; '.join(left)}") from None

    async def watch(self) -> None:
        """Check the broker's own objects regularly."""
        while True:
            await asyncio.sleep(2.0 if self.calm else 0.05)
            self.model.wall_ms_most = max(self.model.wall_ms_most, self.world.wall_ms())
            with self.world.disk.willing():
                check_live(self)

    # The broker

    def cut_power(self) -> None:
        """Cut the machine's power: only promises about flushed data remain."""
        self.world.cut_power()
        self.before.known.clear()
        self.model.power_was_cut()

    async def start(self) -> None:
        """Start the broker, again and again until it serves or may refuse to start. Sometimes it is
        killed while it recovers."""
        for attempt in range(4):
            self.model.incarnation += 1
            self.world.begin_broker()
            if attempt < 3 and self.random.random() < 0.15:
                self.world.disk.stop_at = self.world.disk.operations + self.random.randrange(1, 40)
            await self.world.until(
                lambda: self.world.up or self.world.loop is None, "the broker starts", 300.0
            )
            self.world.disk.stop_at = None
            if self.world.up and self.world.server is not None:
                with self.world.disk.willing():
                    check_started(self.world.server)
                self.before.check(self.world.server, self.world.wall_ms())
            if self.world.up or self.world.excused_end is not None:
                return

    async def stop(self) -> None:
        acked = [batch for batch in self.model.batches() if batch.fate == "acked"]
        await self.world.stop_cleanly()
        for batch in acked:
            batch.durable = True

    async def settle(self) -> None:
        """Wait until the broker must have aborted open transactions and removed deleted files. Note
        the fates of transactions that are certain by then."""
        self.pace = 1.0
        for transaction in self.model.transactions:
            if transaction.offsets and transaction.fate not in ("committed", ABORTED):
                self.offsets.decided(transaction)
            if transaction.fate == "to abort":
                transaction.fate = ABORTED
        await asyncio.sleep(self.options.settled_seconds)

    # The final checks

    async def reckon(self, when: str, whole: bool = True) -> None:
        """Check every promise, while no client writes. If not `whole`, only the checks that read no
        partition are made; they find some defects that a restart would hide."""
        try:
            for link in list(self.world.links.values()):
                link.deaf_until = 0.0
            session = self.session("checker")
            if whole:
                await self.check_all(session)
            check_live(self)
            if when == "at the end":
                await self.check_disk()
                check_forgotten(self)
                if self.options.settled_seconds >= SETTLED_SECONDS:
                    await again(lambda: check_groups(session))
                await again(lambda: check_transactions(session))
        except Violation as violation:
            raise Violation(f"{when}: {violation}") from violation

    async def check_all(self, session: Session) -> None:
        """Check partitions, settings and committed offsets."""
        for topic in self.model.live():
            for partition in topic.partitions:
                await self.check(session, partition)
        for topic in self.model.live():
            await again(lambda topic=topic: check_settings(session, topic))
            groups = {"s0", "s1"} | {group for group, _, _ in self.model.offsets}
            for group in sorted(groups):
                for index in range(len(topic.partitions)):
                    key = group, topic, index
                    await again(lambda key=key: check_offset(self, session, key))
        if self.options.contenders:
            await again(lambda: read_at_last(self, session))

    async def check_disk(self) -> None:
        """Check that the broker removes leftovers within two minutes, now that no client writes.
        Offsets expire in the first minute, and compaction removes them after that."""
        end = self.world.now + 120
        while True:
            try:
                check_disk(self)
                return
            except Violation:
                if self.world.now > end:
                    raise
            await asyncio.sleep(1.0)

    async def check(self, session: Session, partition: Any) -> None:
        for _ in range(5):
            try:
                await check_partition(self, session, partition)
                return
            except Missing as answer:
                raise Violation(f"partition {partition!r} cannot be read: {answer}") from answer
            except Broken:
                continue
        raise Violation(f"partition {partition!r} cannot be read: five links broke in turn")


async def again(check: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a check, and repeat it up to four times if a link broke meanwhile."""
    for _ in range(5):
        try:
            await check()
            return
        except Broken:
            continue
    raise Violation("a check at the end cannot run: five links broke in turn")


def _places(task: asyncio.Task[None]) -> str:
    """The places in the code at which a client waits, the innermost last."""
    places, awaited = [], task.get_coro()
    while awaited is not None and hasattr(awaited, "cr_frame") and awaited.cr_frame is not None:
        places.append(f"{awaited.cr_code.co_name}:{awaited.cr_frame.f_lineno}")
        awaited = awaited.cr_await
    return " > ".join(places)


async def read_along(story: Story, name: str) -> None:
    """A consumer that reads while clients write: every record that it sees must be right."""
    session, chance = story.session(name), story.random
    while not story.over:
        await asyncio.sleep(chance.expovariate(0.5 / story.pace))
        topics = story.model.live()
        if not topics:
            continue
        partition = chance.choice(chance.choice(topics).partitions)
        if chance.random() < 0.15:
            with contextlib.suppress(Broken, Missing):
                await read_as_of_old(session, partition, chance)
            continue
        known = [batch.base_offset for batch in partition.batches if batch.base_offset >= 0]
        offset = chance.choice([0, *known])
        isolation = chance.choice((0, 1))
        try:
            part = await fetch(session, partition, offset, isolation, chance)
        except (Broken, Missing):
            continue
        if part.error_code == 0 and partition.topic.state == LIVE:
            seen = Content(offset, offset)
            take(seen, part, offset, isolation, partition)
            check_soundness(partition, seen)
            for record in seen.data:
                batch, _ = partition.topic.by_value[record.value or b""]
                if batch.acks == -1 and batch.incarnation == story.model.incarnation:
                    batch.durable = True
                if isolation and batch.transaction and batch.transaction.fate == ABORTED:
                    raise Violation(
                        f"partition {partition!r}: an aborted record was read with read_committed:"
                        f" {record}"
                    )
