"""The faults of a run, by name. After a fault the broker serves again."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.admin import Admin
from tests.simulation.model import ACKED, LIVE
from tests.simulation.network import Broken
from tests.simulation.options import REFUSED
from tests.simulation.reading import Content, Missing, fetch, take
from tests.simulation.refusals import call_refused

if TYPE_CHECKING:
    from tests.log.faulty_disk import Inode
    from tests.simulation.story import Story

MADE_ANEW = (".index", ".timeindex", ".txnindex")
"""Files that can be rebuilt from the log."""

Tasks = list["asyncio.Task[None]"]
Fault = Callable[["Story", Tasks], Coroutine[Any, Any, None]]


async def kill(story: Story, tasks: Tasks) -> None:
    story.world.kill()
    await story.start()


async def die_in_a_call(story: Story, tasks: Tasks, calls: int = 80) -> None:
    disk = story.world.disk
    disk.stop_at = disk.operations + story.random.randrange(1, calls)
    end = story.world.now + 5
    while story.world.loop is not None and story.world.now < end:
        await asyncio.sleep(0.01)
        story.look_at(tasks)
    disk.stop_at = None
    story.world.kill()


async def kill_in_a_call(story: Story, tasks: Tasks) -> None:
    await die_in_a_call(story, tasks)
    await story.start()


async def power_cut(story: Story, tasks: Tasks) -> None:
    if story.random.random() < 0.5:
        await die_in_a_call(story, tasks)
    story.cut_power()
    await story.start()


async def hit_twice(story: Story, tasks: Tasks) -> None:
    """Kill the process, and cut the power while the next process recovers, serves and flushes the
    logs."""
    if story.options.transactions and story.apart.random() < 0.5:
        await hit_at_an_end(story, tasks)
        return
    await die_in_a_call(story, tasks)
    await story.start()
    await asyncio.sleep(story.random.expovariate(100.0))
    if story.random.random() < 0.5:
        await die_in_a_call(story, tasks)
    story.cut_power()
    await story.start()


async def hit_at_an_end(story: Story, tasks: Tasks) -> None:
    """Kill the process while a transaction ends. Cut the power while the next process completes the
    end of the transaction from its recovered logs."""
    world, chance = story.world, story.apart
    asked = asyncio.get_running_loop().create_future()
    story.offsets.on_end = lambda: asked.done() or asked.set_result(None)
    await asyncio.wait([asked], timeout=5.0)
    story.offsets.on_end = lambda: None
    await die_in_a_call(story, tasks, 15)
    if chance.random() < 0.5:
        await story.start()
    else:
        story.model.incarnation += 1
        world.begin_broker()
    await die_in_a_call(story, tasks, 60)
    story.cut_power()
    await story.start()


async def cut_at_an_answer(story: Story, tasks: Tasks) -> None:
    """Cut the power at the moment at which a client receives an answer."""
    world, left = story.world, story.random.randrange(1, 40)
    heard = asyncio.get_running_loop().create_future()

    def answer() -> None:
        nonlocal left
        left -= 1
        if not left:
            heard.set_result(None)

    world.on_answer = answer
    await asyncio.wait([heard], timeout=5.0)
    world.on_answer = lambda: None
    await asyncio.sleep(0)
    story.cut_power()
    await story.start()


async def stop_cut_short(story: Story, tasks: Tasks) -> None:
    """Stop the broker cleanly. The process may end in a call of the disk during the stop, and a
    power cut may follow."""
    world = story.world
    world.disk.stop_at = world.disk.operations + story.random.randrange(1, 120)
    await world.stop_cleanly()
    world.kill()
    if story.random.random() < 0.5:
        story.cut_power()
    await story.start()


async def clean_stop(story: Story, tasks: Tasks) -> None:
    await story.stop()
    if story.world.loop is None:
        await story.start()


async def disk_full(story: Story, tasks: Tasks) -> None:
    disk = story.world.disk
    disk.capacity = disk.used() + story.random.choice((0, 100, 3000))
    # In a longer time without space, abandoned transactions time out.
    longer = story.apart.choice((0.0, 1.0)) if story.options.abandons else 0.0
    await story.pass_time(story.options.rounds_seconds + longer, tasks)
    if story.random.random() < 0.5:
        await Admin(story, "room").delete_on_a_full_disk()
    if story.random.random() < 0.3:
        story.world.excused_end = "the disk is full"
        await end_somehow(story)
        await story.start()
        await story.pass_time(0.5, tasks)
    story.world.disk.capacity = None
    story.world.excused_end = None
    if story.world.loop is None:
        await story.start()
    await story.world.until(lambda: story.world.up, "the broker serves again", 60.0)
    # The broker fills its reserve again within five seconds.
    await pass_at_pace(story, story.options.relief_pace, 5.0, tasks)


async def directory_missing(story: Story, tasks: Tasks) -> None:
    world = story.world
    if story.random.random() < 0.5:
        await story.stop()
    else:
        world.kill()
    missing = story.random.choice(story.options.directories)
    world.disk.take_away(missing)
    world.excused_end = f"{missing} is missing"
    await story.start()
    await story.pass_time(story.options.rounds_seconds, tasks)
    if world.up and story.random.random() < 0.5:
        await story.stop()
    world.kill()
    world.disk.give_back(missing)
    world.excused_end = None
    await story.start()


async def io_error(story: Story, tasks: Tasks) -> None:
    """Have one kind of call fail in a log directory. After a restart, everything must be there
    again."""
    world, disk = story.world, story.world.disk
    disk.failing = story.random.choice(story.options.directories)
    disk.errors = {story.random.choice(("write", "sync", "truncate", "name")): errno.EIO}
    world.excused_end = "a directory has failed"
    await story.pass_time(story.options.rounds_seconds, tasks)
    await end_somehow(story)
    world.excused_end = None
    await story.start()


async def end_somehow(story: Story) -> None:
    """Stop or kill the process, or cut the power, while a disk does not work."""
    world, how = story.world, story.apart.random()
    if how < 0.3 and world.up:
        await world.stop_cleanly()
    world.kill()
    if how > 0.7:
        story.cut_power()


async def garbled(story: Story, tasks: Tasks) -> None:
    """After a clean stop, change or delete files that can be rebuilt from the log."""
    await story.stop()
    disk, random, spoiled = story.world.disk, story.random, set()
    names = sorted(
        name for name, inode in disk.names.items()
        if inode is not None and name.endswith(MADE_ANEW) and inode.content
    )
    for name in random.sample(names, min(len(names), random.choice((3, 10)))):
        inode, how = disk.inode(name), random.randrange(6)
        if how == 0:
            disk.names.pop(name)
            disk.durable_names.pop(name, None)
            continue
        if how == 1:
            kind = name[name.rindex(".") :]
            other = random.choice([each for each in names if each in disk.names
                                   and each.endswith(kind)])
            inode.content[:] = disk.inode(other).content
        else:
            misleads = name.endswith(".index") and story.apart.random() < 0.7
            spoil(inode, 5 if misleads else how, name, random)
            spoiled.add(name.rpartition("/")[0].rpartition("/")[2])
        inode.durable = bytearray(inode.content)
    await story.start()
    await read_by_indexes(story, spoiled)


async def read_by_indexes(story: Story, names: set[str]) -> None:
    """Read the partitions with these names from the middle of segments, before anything else
    notices that the indexes are wrong."""
    session, chance = story.session("reader by indexes"), story.apart
    for partition in [each for topic in story.model.live() for each in topic.partitions]:
        if f"{partition.topic.name}-{partition.index}" not in names:
            continue
        known = [each.base_offset for each in partition.batches if each.fate == ACKED]
        for offset in chance.sample(known, min(len(known), 4)):
            with contextlib.suppress(Broken, Missing):
                part = await fetch(session, partition, max(offset, 0), 0, chance)
                if part.error_code == 0 and partition.topic.state == LIVE:
                    take(Content(offset, offset), part, max(offset, 0), 0, partition)


def spoil(inode: Inode, how: int, name: str, random: Random) -> None:
    """Change the bytes of an index."""
    size = len(inode.content)
    if how == 2:
        inode.content[:] = random.randbytes(size)
    elif how == 3:
        del inode.content[random.randrange(size) :]
    elif how == 4 or not name.endswith(".index"):
        inode.content[:] = bytes(size)
    else:
        # Give each entry its neighbour's position: a batch begins there, but not the right one.
        step = random.choice((-1, 1))
        places = [bytes(inode.content[at + 4 : at + 8]) for at in range(0, size - 7, 8)]
        for at in range(len(places)):
            if 0 <= at + step < len(places):
                inode.content[8 * at + 4 : 8 * at + 8] = places[at + step]


async def clock_jump(story: Story, tasks: Tasks) -> None:
    hours = story.random.choice((-30, -3, -1, 1, 3, 30))
    story.model.wall_ms_most = max(story.model.wall_ms_most, story.world.wall_ms())
    story.world.jumped_ms += hours * 3_600_000
    if hours == 30:
        story.model.everywhere("delete.retention.ms", "0")      # by default tombstones stay a day


async def break_links(story: Story, tasks: Tasks) -> None:
    for link in list(story.world.links.values()):
        if story.random.random() < 0.7:
            link.end()


async def deaf_client(story: Story, tasks: Tasks) -> None:
    for link in list(story.world.links.values()):
        if story.random.random() < 0.3:
            link.deaf_until = story.world.now + story.random.choice((1.0, 20.0))


async def idle(story: Story, tasks: Tasks) -> None:
    await pass_at_pace(story, 5.0, story.random.choice(story.options.idle_seconds), tasks)


async def pass_at_pace(story: Story, pace: float, seconds: float, tasks: Tasks) -> None:
    """Let clients work at another pace for a while."""
    before, story.pace = story.pace, pace
    await story.pass_time(seconds, tasks)
    story.pace = before


async def hit_at_a_deletion(story: Story, tasks: Tasks) -> None:
    """Kill the process, or cut the power, while a topic is deleted and created again."""
    chance = story.apart
    asked = asyncio.get_running_loop().create_future()
    story.on_deletion = lambda: asked.done() or asked.set_result(None)
    recreating = asyncio.ensure_future(Admin(story, "again").recreate(0.0))
    await asyncio.wait([asked], timeout=5.0)
    story.on_deletion = lambda: None
    await die_in_a_call(story, tasks, chance.choice((10, 40, 150)))
    if chance.random() < 0.6:
        story.cut_power()
    await story.start()
    tasks.append(recreating)


async def settings_changed(story: Story, tasks: Tasks) -> None:
    """Stop or kill the broker, and start it with other settings, sometimes with another log
    directory or with its log directories in another order."""
    world, chance, options = story.world, story.apart, story.options
    if chance.random() < 0.5:
        await story.stop()
    world.kill()
    changes = {
        "log.segment.bytes": ("1024", "16384"),
        "log.index.interval.bytes": ("0", "256"),
        "log.segment.delete.delay.ms": ("0", "20000"),
        "log.retention.check.interval.ms": ("1000", "30000"),
        "log.flush.offset.checkpoint.interval.ms": ("500", "60000"),
        "log.cleaner.backoff.ms": ("500", "15000"),
        "compression.type": ("producer", "zstd"),
        "num.recovery.threads.per.data.dir": ("1", "3"),
        "offsets.topic.segment.bytes": ("2048", "16384"),
        "group.initial.rebalance.delay.ms": ("0", "1000"),
    }
    for name in chance.sample(sorted(changes), 3):
        options.settings[name] = chance.choice(changes[name])
    if options.settings["log.index.interval.bytes"] != "0":
        for topic in story.model.topics:
            topic.indexed_whole = False
    how = chance.random()
    if how < 0.3:
        options.directories = [*options.directories, f"/d{len(options.directories)}"]
    elif how < 0.6:
        options.directories = options.directories[::-1]
    await story.start()


FAULTS: dict[str, Fault] = {
    "kill": kill, "kill in a call": kill_in_a_call, "power cut": power_cut,
    "clean stop": clean_stop, "disk full": disk_full, "directory missing": directory_missing,
    "clock jump": clock_jump, "break links": break_links, "deaf client": deaf_client,
    "idle": idle, "io error": io_error, "garbled": garbled, "hit twice": hit_twice,
    "stop cut short": stop_cut_short, "cut at an answer": cut_at_an_answer,
    "hit at a deletion": hit_at_a_deletion, "settings changed": settings_changed,
    REFUSED: call_refused,
}

