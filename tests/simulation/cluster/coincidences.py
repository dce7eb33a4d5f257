"""Sequences in which one message is late or lost at the only moment at which that matters.

The steps depend on what brokers are about to do. So for a short time a sequence looks at the
brokers' state every fraction of a millisecond. All these sequences need partitions with three
replicas, and min.insync.replicas 2.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from ottla.wire.marks import reached
from ottla.wire.messages import IncrementalAlterConfigsRequest
from tests.simulation.cluster.checker import partitions_of
from tests.simulation.cluster.links import End
from tests.simulation.cluster.losses import log_on_disk
from tests.simulation.cluster.sequences import (
    AT_ONCE_SECONDS,
    PLAIN,
    Place,
    Sequence,
    come_back,
    led_by_all,
    machines,
    state_of,
    until,
)
from tests.simulation.network import Broken

if TYPE_CHECKING:
    from ottla.replication.partition import Partition
    from tests.simulation.cluster.story import ClusterStory
    from tests.simulation.cluster.world import ClusterMachine

SOONER_SECONDS = 0.0002
"""The time between two checks of a condition, if the next step has to happen while a message is on
its way. Most messages take longer than this."""


def replica(machine: ClusterMachine, place: Place) -> Partition | None:
    """A broker's replica of a partition; None if the broker does not serve or has no replica."""
    server = machine.server
    return None if server is None or not machine.up else server.replicas.partition(*place)


def proposed(leader: ClusterMachine, node_id: int) -> list[Place]:
    """The partitions for which a leader has proposed that a broker joins the in-sync set, without
    having heard of a decision yet."""
    return [
        (each.topic, each.index) for each in partitions_of(leader)
        if node_id in (each.role.proposed or ()) and node_id not in each.isr
    ]


def cut_apart(story: ClusterStory, one: ClusterMachine, other: ClusterMachine) -> None:
    story.world.cut(one, other)
    story.world.cut(other, one)


def mend(story: ClusterStory, one: ClusterMachine, other: ClusterMachine) -> None:
    """Let the messages of two machines reach each other again."""
    story.world.mend(one, other)
    story.world.mend(other, one)


def hang_up(story: ClusterStory, machine: ClusterMachine, other: ClusterMachine) -> None:
    """End a broker's connections with another broker, which notices that later."""
    for link in list[Any](story.world.links.values()):
        if isinstance(link, End) and (link.machine, link.other.machine) == (machine, other):
            link.end()


async def three(
    story: ClusterStory, controller_leads: bool = True
) -> tuple[Place, list[ClusterMachine]] | None:
    """A random partition with three replicas in sync, and their machines, the leader first. None if
    there is none. The leader may be the controller only if `controller_leads` is true."""
    await story.until_in_sync()
    controller = story.controller()
    found = [
        place for place in led_by_all(story, *PLAIN)
        if len(state_of(story, place).replicas) == 3
        and (controller_leads or (
            controller is not None and state_of(story, place).leader != controller.node_id))
    ]
    if not found:
        return None
    place = story.random.choice(found)
    state = state_of(story, place)
    others = [node for node in state.replicas if node != state.leader]
    return place, machines(story, (state.leader, *story.random.sample(others, 2)))


async def out_of_sync_and_back(
    story: ClusterStory, place: Place, leader: ClusterMachine, follower: ClusterMachine
) -> bool:
    """Kill a follower, wait until it has left the in-sync set, and start it again while no message
    passes between it and the leader. Returns whether it left the set and the leader has heard of
    its new registration."""
    node = follower.node_id
    follower.kill()
    left = await until(story, lambda: node not in state_of(story, place).isr, 10.0)
    await story.wait(1.0)
    cut_apart(story, leader, follower)
    await come_back(story, follower)

    def heard() -> bool:
        server, broker = leader.server, story.truth.now().brokers.get(node)
        known = None if server is None else server.metadata_log.image.brokers.get(node)
        return broker is not None and known is not None and known.epoch == broker.epoch

    return left and await until(story, heard, 5.0)


async def silent_in_an_election(story: ClusterStory) -> None:
    """All machines lose power. The broker that has the longest logs registers again, but the
    controller, which looks for the longest log, does not reach it for a while."""
    brokers = story.world.brokers
    for machine in brokers:
        story.cut_power(machine)
    places = [(part.topic, part.index) for part in story.parts]
    ends = {
        each: [log_on_disk(each.disk, *place)[:2] for place in places] for each in brokers
    }

    def ahead(machine: ClusterMachine) -> int:
        others = [ends[each] for each in brokers if each is not machine]
        return sum(own > max(rest) for own, *rest in zip(ends[machine], *others, strict=True))

    silent = max(brokers, key=ahead)
    others = [each for each in brokers if each is not silent]
    await come_back(story, *others)             # one of them is the controller
    for other in others:
        cut_apart(story, silent, other)
    await come_back(story, silent)
    await story.wait(9.0)
    story.world.heal()
    await story.wait(3.0)


async def proposal_comes_late(story: ClusterStory) -> None:
    """A leader proposes that a replica that has all records joins the in-sync set. The proposal
    reaches the controller only after the replica's machine has lost power and its broker has
    registered again (KIP-903)."""
    found = await three(story, controller_leads=False)
    controller = story.controller()
    if found is None or controller is None:
        return
    place, (leader, *others) = found
    follower = next(each for each in others if each is not controller)
    node = follower.node_id
    if await out_of_sync_and_back(story, place, leader, follower):
        mend(story, leader, follower)
        if await until(story, lambda: place in proposed(leader, node), 2.0, SOONER_SECONDS):
            story.world.cut(leader, controller)
            reached("a proposed in-sync set is on its way while a replica restarts")
            cut_apart(story, leader, follower)
            story.cut_power(follower)
            await come_back(story, follower)
            story.world.mend(leader, controller)
            await story.wait(1.0)
    story.world.heal()
    await story.wait(story.random.choice((0.5, 3.0)))


async def join_is_not_heard_of(story: ClusterStory) -> None:
    """The controller lets a replica join the in-sync set. The leader does not hear of this: the
    controller's answer is lost, and the leader does not reach ZooKeeper. The replica gets no more
    records from the leader. The leader must nevertheless commit nothing that the replica lacks."""
    found = await three(story, controller_leads=False)
    controller = story.controller()
    if found is None or controller is None:
        return
    place, (leader, *others) = found
    follower = next(each for each in others if each is not controller)
    node = follower.node_id
    if await out_of_sync_and_back(story, place, leader, follower):
        mend(story, leader, follower)
        if await until(story, lambda: place in proposed(leader, node), 2.0, SOONER_SECONDS):
            leader.cut_off()
            cut_apart(story, leader, follower)
            story.world.cut(controller, leader)
            if await until(
                story, lambda: node in state_of(story, place).isr, 1.0, AT_ONCE_SECONDS
            ):
                reached("a leader has not heard that a replica is in sync")
                hang_up(story, leader, controller)
            story.world.mend(controller, leader)
            await story.wait(6.0)               # until the leader's session ends
    leader.join_again()
    story.world.heal()
    await story.wait(story.random.choice((0.5, 3.0)))


async def behind_the_start_of_an_epoch(story: ClusterStory) -> None:
    """A leader dies as soon as it has committed a record. Its successor has the record, but does
    not know yet that the record is committed. The third replica, which was out of sync, lacks the
    record. It becomes leader after it has joined the in-sync set."""
    found = await three(story)
    if found is None:
        return
    place, (first, second, third) = found
    story.hushed = True
    left = await out_of_sync_and_back(story, place, first, third)
    story.hushed = False
    logs = [replica(each, place) for each in (first, second, third)]
    led, successor, behind = logs
    if left and led is not None and successor is not None and behind is not None:
        end = behind.log.log_end_offset
        await until(story, lambda: successor.log.log_end_offset > end, 3.0, SOONER_SECONDS)
        story.world.cut(first, second)
        await until(story, lambda: led.high_watermark > end, 0.1, SOONER_SECONDS)
        if led.high_watermark > end >= successor.high_watermark:
            reached("the next leader does not know what is committed")
            story.look()
            await asyncio.sleep(AT_ONCE_SECONDS)
            await killed_before_it_catches_up(story, place, [first, second, third])
    story.world.heal()
    await come_back(story, first, second)


async def killed_before_it_catches_up(
    story: ClusterStory, place: Place, brokers: list[ClusterMachine]
) -> None:
    """Kill the first broker, so that the second leads. Suspend the third as soon as the second has
    proposed it for the in-sync set. Kill the second, too, after the third has joined the set, and
    resume the third."""
    first, second, third = brokers
    node = third.node_id
    first.kill()

    def led() -> bool:
        return state_of(story, place).leader == second.node_id

    if await until(story, led, 10.0, AT_ONCE_SECONDS) and await until(
        story, lambda: place in proposed(second, node), 1.0, SOONER_SECONDS
    ):
        third.pause()
        await until(story, lambda: node in state_of(story, place).isr, 1.0, AT_ONCE_SECONDS)
        second.kill()
        third.resume()
        await until(story, lambda: state_of(story, place).leader == node, 10.0)


async def request_is_lost(story: ClusterStory) -> None:
    """The controller's connection with ZooKeeper breaks while a decision is on its way to
    ZooKeeper. No other broker reaches ZooKeeper until the controller is elected again. So it reads
    no decision of another controller. The client that waits for the lost decision must get an
    answer."""
    await story.until_in_sync()
    machine = story.controller()
    if machine is None or machine.session is None:
        return
    made, session = IncrementalAlterConfigsRequest, machine.session
    value = str(story.random.randrange(1 << 40, 1 << 41))
    request = made(resources=[made.Resource(
        resource_type=2, resource_name=PLAIN[0], configs=[made.Resource.Config(
            name="flush.ms", config_operation=0, value=value,
        )],
    )])
    others = [each for each in story.world.brokers if each is not machine]
    for other in others:
        other.cut_off()
    session.lose_writes = 1
    asked = asyncio.ensure_future(story.admin.call(machine.node_id, request, 1))
    await until(story, lambda: not session.lose_writes, 1.0, AT_ONCE_SECONDS)
    await asyncio.sleep(AT_ONCE_SECONDS)
    session.lose_writes = 0
    machine.join_again()
    await until(story, lambda: story.controller() is machine, 0.5, AT_ONCE_SECONDS)
    for other in others:
        other.join_again()
    with contextlib.suppress(Broken):
        await asked
    await story.wait(0.5)


async def removed_as_it_registers(story: ClusterStory) -> None:
    """A broker refuses a connection, so the controller declares it gone. The broker's own
    connection with ZooKeeper has broken, too, and it reads the controller's decision while it
    registers again."""
    await story.until_in_sync()
    controller = story.controller()
    others = [each for each in story.world.brokers if each.up and each is not controller]
    if controller is None or controller.to_zookeeper is None or not others:
        return
    machine, way = story.random.choice(others), controller.to_zookeeper
    session = machine.session
    assert session is not None
    machine.refuses = True
    way.hold()
    hang_up(story, controller, machine)
    await asyncio.sleep(0.3)                    # the decision is on its way to ZooKeeper
    machine.cut_off()
    await asyncio.sleep(AT_ONCE_SECONDS)
    looks = session.looks
    machine.join_again()
    # The second look-up in ZooKeeper is the last one before it checks its registration.
    await until(story, lambda: session.looks >= looks + 2, 0.5, SOONER_SECONDS)
    way.go_on()
    machine.refuses = False
    await story.wait(story.random.choice((0.5, 3.0)))


COINCIDENCES: dict[str, Sequence] = {
    "silent in an election": silent_in_an_election,
    "proposal comes late": proposal_comes_late,
    "join is not heard of": join_is_not_heard_of,
    "behind the start of an epoch": behind_the_start_of_an_epoch,
    "request is lost": request_is_lost, "removed as it registers": removed_as_it_registers,
}
