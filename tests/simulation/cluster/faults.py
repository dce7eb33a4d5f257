"""The faults of a cluster. `ClusterStory.heal` repairs what a fault has not repaired itself."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from tests.simulation.cluster.coincidences import COINCIDENCES
from tests.simulation.cluster.pairs import PAIRS
from tests.simulation.cluster.refused import refused_call
from tests.simulation.cluster.sequences import SEQUENCES
from tests.simulation.options import REFUSED

if TYPE_CHECKING:
    from tests.simulation.cluster.story import ClusterStory
    from tests.simulation.cluster.world import ClusterMachine

Fault = Callable[["ClusterStory"], Coroutine[Any, Any, None]]


def a_leader(story: ClusterStory) -> ClusterMachine | None:
    """The leader of a random partition, according to the newest known epoch."""
    part = story.random.choice(story.parts)
    node_id = story.leaders.of(part.topic, part.index)
    machine = None if node_id is None else story.world.broker(node_id)
    return machine if machine is not None and machine.loop is not None else None


async def kill(story: ClusterStory) -> None:
    machine = story.some_machine()
    if machine is not None:
        machine.kill()
        await story.restart_later(machine)


async def kill_in_a_call(story: ClusterStory) -> None:
    """Have a process end at one of its next calls of the disk, or kill it after five seconds."""
    machine = story.some_machine()
    if machine is not None:
        await story.die_in_a_call(machine)
        machine.kill()
        await story.restart_later(machine)


async def kill_the_controller(story: ClusterStory) -> None:
    machine = story.controller()
    if machine is not None:
        machine.kill()
        await story.restart_later(machine)


async def kill_a_leader(story: ClusterStory) -> None:
    machine = a_leader(story)
    if machine is not None:
        machine.kill()
        await story.restart_later(machine)


async def kill_two(story: ClusterStory) -> None:
    """Kill two brokers. Nothing may be acknowledged while fewer than min.insync.replicas are in
    sync."""
    chosen = story.random.sample(story.world.brokers, 2)
    for machine in chosen:
        machine.kill()
        await story.wait(story.random.choice((0.0, 0.01, 0.3, 8.0)))
    for machine in story.random.sample(chosen, 2):
        await story.restart_later(machine)


async def kill_all(story: ClusterStory) -> None:
    for machine in story.world.brokers:
        machine.kill()
    for machine in story.random.sample(story.world.brokers, len(story.world.brokers)):
        await story.wait(story.random.choice((0.0, 0.0, 0.5, 10.0)))
        if machine.loop is None:
            machine.begin_broker()


async def clean_stop(story: ClusterStory) -> None:
    machine = story.some_machine()
    if machine is not None:
        await machine.stop_cleanly()
        await story.restart_later(machine)


async def rolling_restart(story: ClusterStory) -> None:
    for machine in story.world.brokers:
        if machine.up:
            await machine.stop_cleanly()
            await story.wait(story.random.choice((0.01, 1.0)))
        if machine.loop is None:
            machine.begin_broker()
        await story.until_up(machine)


async def power_cut(story: ClusterStory) -> None:
    machine = story.some_machine()
    if machine is not None:
        if story.random.random() < 0.5:
            await story.die_in_a_call(machine)
        story.cut_power(machine)
        await story.restart_later(machine)


async def power_cut_of_a_leader(story: ClusterStory) -> None:
    machine = a_leader(story)
    if machine is not None:
        story.cut_power(machine)
        await story.restart_later(machine)


async def power_cuts_in_turn(story: ClusterStory) -> None:
    """Cut the power of each machine once, as soon as the other machines have its records."""
    for machine in story.world.brokers:
        if machine.up:
            await story.until_in_sync()
            story.cut_power(machine)
            await story.wait(story.random.choice((0.01, 1.0)))
        if machine.loop is None:
            machine.begin_broker()
        await story.until_up(machine)


async def power_cut_of_all(story: ClusterStory) -> None:
    for machine in story.world.brokers:
        story.cut_power(machine)
    for machine in story.random.sample(story.world.brokers, len(story.world.brokers)):
        await story.wait(story.random.choice((0.0, 0.0, 0.5, 10.0)))
        if machine.loop is None:
            machine.begin_broker()


async def left_alone(story: ClusterStory) -> None:
    """Stop all brokers but one, so that it is the only in-sync replica while clients continue to
    write. Then this broker stops, too, or loses its disks, and all come back in any order."""
    chance, machine = story.random, story.some_machine()
    if machine is None:
        return
    for other in story.world.brokers:
        if other is not machine:
            _stop(story, other)
            await story.wait(chance.choice((0.0, 0.5, 10.0)))
    await story.wait(chance.choice((0.5, 10.0)))
    if chance.random() < 0.3:
        story.wipe(machine)
    else:
        _stop(story, machine)
    for each in chance.sample(story.world.brokers, len(story.world.brokers)):
        await story.wait(chance.choice((0.0, 0.5, 10.0)))
        if each.loop is None:
            each.begin_broker()
    await story.insist(machine)


def _stop(story: ClusterStory, machine: ClusterMachine) -> None:
    if story.random.random() < 0.5:
        story.cut_power(machine)
    else:
        machine.kill()


async def wiped_disk(story: ClusterStory) -> None:
    """Replace a machine's disks by empty ones, and start the broker after its session has ended."""
    machine = story.some_machine()
    if machine is not None:
        story.wipe(machine)
        await story.wait(10.0)
        if machine.loop is None:
            machine.begin_broker()
        await story.until_up(machine)


async def disk_full(story: ClusterStory) -> None:
    machine = story.some_machine()
    if machine is None:
        return
    machine.excuse = "the disk is full"
    machine.disk.capacity = machine.disk.used() + story.random.choice((0, 100, 3000))
    await story.wait(story.random.choice((1.0, 8.0)))
    if story.random.random() < 0.3:
        machine.kill()
        if machine.loop is None:
            machine.begin_broker()
        await story.wait(1.0)
    machine.disk.capacity = None
    await story.wait(1.0)
    machine.excuse = None


async def io_error(story: ClusterStory) -> None:
    """Have one kind of call fail in a log directory. A broker with a single directory ends; a
    broker with two continues with the other one."""
    machine, directories = story.some_machine(), story.options.directories
    if machine is None:
        return
    if len(directories) == 1:
        machine.excuse = "its directory has failed"
    machine.disk.failing = story.random.choice(directories)
    machine.disk.errors = {story.random.choice(("write", "sync", "truncate", "name")): errno.EIO}
    await story.wait(story.random.choice((0.5, 8.0)))
    machine.kill()
    machine.excuse = None
    await story.restart_later(machine)


async def missing_directory(story: ClusterStory) -> None:
    """Start a broker without one of its two log directories. At a later start the directory is back
    with its former content."""
    machine, chance = story.some_machine(), story.random
    if machine is None or len(story.options.directories) == 1:
        return
    if chance.random() < 0.5:
        await machine.stop_cleanly()
    machine.kill()
    directory = chance.choice(story.options.directories)
    if not machine.disk.holds(directory):
        return          # its disks were replaced meanwhile, so the broker accepts empty directories
    machine.excuse = "its former process is registered with other directories"
    story.hide(machine, directory)
    await story.insist(machine)
    await story.wait(chance.choice((0.1, 1.0, 8.0)))
    machine.kill()
    machine.find_directories()
    await story.insist(machine)
    machine.excuse = None


async def damaged_bytes(story: ClusterStory) -> None:
    """Once or twice, change a byte on a disk or make a file unreadable. The broker repairs the
    replica from the others, now or during later faults."""
    for _ in range(story.random.choice((1, 1, 2))):
        story.damage.strike(story.random)
    await story.wait(story.random.choice((0.1, 8.0, 30.0)))


async def pause(story: ClusterStory) -> None:
    """Suspend a process for a while (SIGSTOP); its connections stay open."""
    await _pause(story, story.some_machine())


async def pause_a_leader(story: ClusterStory) -> None:
    await _pause(story, a_leader(story))


async def _pause(story: ClusterStory, machine: ClusterMachine | None) -> None:
    if machine is not None:
        machine.pause()
        await story.wait(story.random.choice((0.3, 3.0, 12.0)))
        machine.resume()


async def cut_off_one_way(story: ClusterStory) -> None:
    one, other = story.random.sample(story.world.brokers, 2)
    story.world.cut(one, other)
    await story.wait(story.random.choice((0.2, 3.0, 15.0)))
    story.world.heal()


async def cut_off(story: ClusterStory) -> None:
    one = story.random.choice(story.world.brokers)
    for other in story.world.brokers:
        if other is not one:
            story.world.cut(one, other)
            story.world.cut(other, one)
    await story.wait(story.random.choice((0.2, 3.0, 15.0)))
    story.world.heal()


async def lose_zookeeper(story: ClusterStory) -> None:
    machine = story.some_machine()
    if machine is not None:
        machine.cut_off()
        await story.wait(story.random.choice((0.1, 3.0, 12.0)))
        machine.join_again()


async def alone_in_the_dark(story: ClusterStory) -> None:
    """Cut a broker off from the other brokers and ZooKeeper, while clients still reach it."""
    machine = story.some_machine()
    if machine is None:
        return
    machine.cut_off()
    for other in story.world.brokers:
        if other is not machine:
            story.world.cut(machine, other)
            story.world.cut(other, machine)
    await story.wait(story.random.choice((0.5, 5.0, 15.0)))
    story.world.heal()
    machine.join_again()


async def lose_answers(story: ClusterStory) -> None:
    """Have ZooKeeper execute a request of the controller, and break the connection before the
    answer."""
    machine = story.controller()
    if machine is not None and machine.session is not None:
        machine.session.lose_answers = story.random.choice((1, 2))
        await story.wait(story.random.choice((0.5, 3.0)))
        machine.session.lose_answers = 0
        machine.join_again()


async def end_a_session(story: ClusterStory) -> None:
    machine = story.some_machine()
    if machine is not None and machine.session is not None:
        story.world.zookeeper.expire(machine.session.session_id)


async def break_links(story: ClusterStory) -> None:
    for link in list(story.world.links.values()):
        if story.random.random() < 0.5:
            link.end()


async def move(story: ClusterStory) -> None:
    """Reassign a partition to other, fewer or more replicas (KIP-455). The next fault may happen
    before the reassignment is complete."""
    await story.admin.move(*story.random.choice(
        [(name, index) for name, index, _ in story.truth.states() if not name.startswith("__")]
    ))
    await story.wait(story.random.choice((0.0, 0.05, 0.5)))


async def cut_between_two(story: ClusterStory) -> None:
    """Cut two brokers off from each other. Both still reach the third broker and ZooKeeper."""
    one, other = story.random.sample(story.world.brokers, 2)
    story.world.cut(one, other)
    story.world.cut(other, one)
    await story.wait(story.random.choice((0.2, 3.0, 15.0)))
    story.world.heal()


async def idle(story: ClusterStory) -> None:
    await story.wait(10.0)


AND = " & "


async def happen(story: ClusterStory, name: str) -> None:
    """Run one fault, or two at the same time, such as "move & power cut of all"."""
    await asyncio.gather(*(FAULTS[each](story) for each in name.split(AND)))


FAULTS: dict[str, Fault] = {
    "kill": kill, "kill in a call": kill_in_a_call, "kill the controller": kill_the_controller,
    "kill a leader": kill_a_leader, "kill two": kill_two, "kill all": kill_all,
    "clean stop": clean_stop, "rolling restart": rolling_restart, "power cut": power_cut,
    "power cut of a leader": power_cut_of_a_leader, "power cuts in turn": power_cuts_in_turn,
    "power cut of all": power_cut_of_all, "left alone": left_alone,
    "wiped disk": wiped_disk, "disk full": disk_full, "io error": io_error,
    "missing directory": missing_directory, "damaged bytes": damaged_bytes,
    "pause": pause, "pause a leader": pause_a_leader,
    "cut off one way": cut_off_one_way, "cut off": cut_off, "lose ZooKeeper": lose_zookeeper,
    "alone in the dark": alone_in_the_dark, "lose answers": lose_answers,
    "move": move, "cut between two": cut_between_two,
    "end a session": end_a_session, "break links": break_links, "idle": idle,
    REFUSED: refused_call, **SEQUENCES, **PAIRS, **COINCIDENCES,
}
