"""Faults of several steps. Each step waits for the effect of the step before.

These sequences make rare coincidences likely: for example, a message arrives only after its sender
has restarted, or a second failure happens before the first one is repaired. Three of ten seeds draw
one of `options.SEQUENCES`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ottla.replication.cluster_store import entry_path
from tests.simulation.cluster.backups import restored_backup

if TYPE_CHECKING:
    from ottla.replication.metadata import PartitionState
    from tests.simulation.cluster.story import ClusterStory
    from tests.simulation.cluster.world import ClusterMachine

Sequence = Callable[["ClusterStory"], Coroutine[Any, Any, None]]
Place = tuple[str, int]

PLAIN = ("a", "b")
"""The topics with acks=all. A fault may pause their producers (`hushed`)."""
AT_ONCE_SECONDS = 0.002
"""The time between two checks of a condition, if the next step has to follow within
milliseconds."""


def state_of(story: ClusterStory, place: Place) -> PartitionState:
    """The state of a partition in ZooKeeper."""
    return story.truth.now().topics[place[0]].partitions[place[1]]


def led_by_all(story: ClusterStory, *names: str) -> list[Place]:
    """The partitions of these topics that have a leader and several replicas, all of them in
    sync."""
    return [
        (name, index) for name, index, state in story.truth.states()
        if name in names and state.leader > 0 and len(state.isr) == len(state.replicas) > 1
    ]


def machines(story: ClusterStory, nodes: tuple[int, ...]) -> list[ClusterMachine]:
    return [story.world.brokers[node - 1] for node in nodes]


async def until(
    story: ClusterStory, holds: Callable[[], bool], seconds: float, step: float = 0.05
) -> bool:
    """Wait until a condition holds. False if it does not hold within this time."""
    end = story.world.now + seconds
    while not holds():
        if story.world.now > end:
            return False
        await (asyncio.sleep(step) if step < 0.01 else story.pass_time(step))
    return True


async def come_back(story: ClusterStory, *gone: ClusterMachine) -> None:
    """Start these machines in random order, and wait until they serve."""
    for machine in story.random.sample(gone, len(gone)):
        if machine.loop is None:
            machine.begin_broker()
        await story.wait(story.random.choice((0.0, 0.5)))
    for machine in gone:
        await story.until_up(machine)


async def last_disk_lost(story: ClusterStory) -> None:
    """All brokers but one are suspended, and then killed. Then the last broker loses its disks. If
    it has wrongly acknowledged records without min.insync.replicas, these records are lost."""
    chance, last = story.random, story.some_machine()
    if last is None:
        return
    others = [machine for machine in story.world.brokers if machine is not last]
    for machine in others:
        machine.pause()
    await story.wait(chance.choice((8.0, 12.0)))
    for machine in others:
        machine.kill()
    story.wipe(last)
    await come_back(story, *others)
    await story.wait(10.0)
    await come_back(story, last)


async def late_fetch(story: ClusterStory) -> None:
    """A follower's fetch is delayed while the follower's machine loses power, starts and registers
    again. When the fetch arrives, the leader and all other brokers are killed."""
    chance, found = story.random, led_by_all(story, *PLAIN)
    if not found:
        return
    place = chance.choice(found)
    state = state_of(story, place)
    (leader,) = machines(story, (state.leader,))
    (follower,) = machines(story, (chance.choice([n for n in state.isr if n != state.leader]),))
    node = follower.node_id
    # Producers pause, so the delayed fetch shows that the follower has all records.
    story.hushed = True
    story.world.cut(follower, leader)
    await story.wait(1.0)
    story.cut_power(follower)
    await come_back(story, follower)
    story.world.heal()

    def joins() -> bool:
        return any(
            node in state.isr and state.leader == leader.node_id
            for name, _, state in story.truth.states() if name in PLAIN
        )

    await until(story, joins, 0.15, AT_ONCE_SECONDS)
    gone = [machine for machine in story.world.brokers if machine is not follower]
    for machine in gone:
        machine.kill()
    story.hushed = False
    await story.wait(chance.choice((1.0, 8.0)))
    await come_back(story, *gone)


async def successor_ahead(story: ClusterStory) -> None:
    """A coordinator dies. Its successor has records that the third broker lacks. The successor
    serves for a while, and dies before the third broker has copied these records."""
    chance, found = story.random, led_by_all(story, "__consumer_offsets")
    found = [place for place in found if len(state_of(story, place).replicas) == 3]
    if not found:
        return
    place = chance.choice(found)
    state = state_of(story, place)
    (first,) = machines(story, (state.leader,))
    second, third = machines(story, tuple(n for n in state.replicas if n != state.leader))
    for one in (first, second):
        story.world.cut(one, third)
        story.world.cut(third, one)
    await story.wait(chance.choice((0.3, 1.0)))
    first.kill()
    if await until(story, lambda: state_of(story, place).leader == second.node_id, 10.0):
        await story.wait(chance.choice((0.3, 1.0)))
        second.kill()
        await until(story, lambda: state_of(story, place).leader == third.node_id, 10.0)
        await story.wait(2.0)
    story.world.heal()
    await come_back(story, first, second)


async def killed_at_its_return(story: ClusterStory) -> None:
    """All machines lose power. The first broker that starts again is killed soon after. Only then
    do the others start."""
    chance = story.random
    for machine in story.world.brokers:
        story.cut_power(machine)
    first, *others = chance.sample(story.world.brokers, len(story.world.brokers))
    first.begin_broker()
    await until(story, lambda: first.up, 3.0)
    await story.wait(chance.choice((0.05, 0.5)))
    first.kill()
    await come_back(story, *others)
    await story.wait(chance.choice((0.5, 3.0)))
    await come_back(story, first)


async def back_one_by_one(story: ClusterStory) -> None:
    """All machines lose power. Then the brokers start one after the other: each waits until the one
    before serves."""
    chance = story.random
    for machine in story.world.brokers:
        story.cut_power(machine)
    for machine in chance.sample(story.world.brokers, len(story.world.brokers)):
        await come_back(story, machine)
        await story.wait(chance.choice((0.5, 3.0)))


async def power_cut_of_two(story: ClusterStory) -> None:
    """All machines but one lose power at the same moment, and with them all replicas of some
    partitions. The sessions of their brokers end one after the other. The brokers start one after
    the other, too, and each of them may be killed again."""
    chance, brokers = story.random, story.world.brokers
    gone = chance.sample(brokers, len(brokers) - 1)
    for machine in gone:
        story.cut_power(machine)
    await story.wait(chance.choice((0.0, 3.0, 8.0)))
    for machine in gone:
        await come_back(story, machine)
        await story.wait(chance.choice((0.5, 3.0)))
        if chance.random() < 0.3:
            machine.kill()
    await come_back(story, *gone)


async def two_leaders_die(story: ClusterStory) -> None:
    """A leader dies. Its successor dies as soon as it leads, while the third replica begins to
    follow it."""
    chance, found = story.random, led_by_all(story, *PLAIN)
    if not found:
        return
    place = chance.choice(found)
    (first,) = machines(story, (state_of(story, place).leader,))
    first.kill()

    def led() -> bool:
        return state_of(story, place).leader not in (first.node_id, -1)

    gone = [first]
    if await until(story, led, 10.0, AT_ONCE_SECONDS):
        await asyncio.sleep(chance.expovariate(500.0))
        gone += machines(story, (state_of(story, place).leader,))
        gone[1].kill()
    await story.wait(chance.choice((1.0, 8.0)))
    await come_back(story, *gone)


async def leader_dies_as_one_joins(story: ClusterStory) -> None:
    """A replica comes back. While it joins the in-sync set, it stops receiving records from the
    leader. Then all other brokers are killed."""
    chance, found = story.random, led_by_all(story, *PLAIN)
    if not found:
        return
    place = chance.choice(found)
    state = state_of(story, place)
    (leader,) = machines(story, (state.leader,))
    node = chance.choice([n for n in state.isr if n != state.leader])
    (joining,) = machines(story, (node,))
    joining.kill()
    if not await until(story, lambda: node not in state_of(story, place).isr, 10.0):
        return
    await story.wait(1.0)
    if joining.loop is None:
        joining.begin_broker()
    await until(story, lambda: joining.up, 20.0, AT_ONCE_SECONDS)
    await asyncio.sleep(chance.expovariate(200.0))
    story.world.cut(leader, joining)
    await until(story, lambda: node in state_of(story, place).isr, 1.0)
    gone = [machine for machine in story.world.brokers if machine is not joining]
    for machine in gone:
        machine.kill()
    story.world.heal()
    await story.wait(chance.choice((1.0, 8.0)))
    await come_back(story, *gone)


async def cut_while_it_moves(story: ClusterStory) -> None:
    """A leader that only clients reach is replaced. It moves its replica to another log directory.
    As soon as the copy has the records that no other replica has, the leader is connected again,
    and truncates its log."""
    chance, found = story.random, led_by_all(story, *PLAIN)
    if not found or len(story.options.directories) == 1:
        return
    place = chance.choice(found)
    (leader,) = machines(story, (state_of(story, place).leader,))
    if leader.server is None or not leader.up:
        return
    storage, partition = leader.server.storage, leader.server.replicas.partition(*place)
    if partition is None:
        return                                      # the leader does not know the topic yet
    leader.cut_off()
    for other in story.world.brokers:
        if other is not leader:
            story.world.cut(leader, other)
            story.world.cut(other, leader)
    await until(story, lambda: state_of(story, place).leader not in (leader.node_id, -1), 15.0)
    log = partition.log
    await until(story, lambda: log.log_end_offset > partition.high_watermark, 5.0)
    if storage.homes.get(place) is not None:
        paths = [each.path for each in storage.directories if each is not storage.homes[place]]
        await story.mover.move(leader, *place, paths[0])

    def copied() -> bool:
        move = storage.moves.get(place)
        return move is None or all(
            move.reached.get(each.base_offset) == each.size for each in log.segments
        )

    await until(story, copied, 15.0)
    story.world.heal()
    leader.join_again()
    await until(story, lambda: place not in storage.moves, 10.0)
    if chance.random() < 0.5 and leader.loop is not None:
        leader.kill()
        await come_back(story, leader)


async def deleted_past_a_snapshot(story: ClusterStory) -> None:
    """A broker does not hear of a deletion. When it reaches ZooKeeper again, a snapshot has
    replaced the metadata entries that it has not read. In the snapshot the topic is missing, or
    there is another topic of the same name."""
    chance, machine, deleter = story.random, story.some_machine(), story.deleter
    if machine is None or machine.server is None or deleter is None:
        return
    for name in list(deleter.there):
        await deleter.write(name)
    metadata = machine.server.metadata_log
    machine.cut_off()
    for name in list(deleter.there):
        await deleter.replace(name, again=chance.random() < 0.5)
    before = story.truth.now().entry

    def gone() -> bool:
        return entry_path(metadata.decided.entry + 1) not in story.world.zookeeper.nodes

    end = story.world.now + 8.0
    while story.world.now < end and not (gone() and story.truth.now().entry > before):
        await story.admin.act()
        await story.pass_time(0.3)
    machine.join_again()
    await story.wait(chance.choice((0.1, 1.0)))


SEQUENCES: dict[str, Sequence] = {
    "deleted past a snapshot": deleted_past_a_snapshot,
    "last disk lost": last_disk_lost, "late fetch": late_fetch,
    "successor ahead": successor_ahead, "killed at its return": killed_at_its_return,
    "back one by one": back_one_by_one, "two leaders die": two_leaders_die,
    "leader dies as one joins": leader_dies_as_one_joins, "power cut of two": power_cut_of_two,
    "cut while it moves": cut_while_it_moves, "restored backup": restored_backup,
}
