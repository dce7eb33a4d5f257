"""Restores ZooKeeper from a backup, and has all brokers accept the backup, as an operator does.

The brokers' logs also have the records that were acknowledged after the backup, with later leader
epochs and producer ids. These records must stay. They would be lost if the backup lacked a topic or
named other replicas than there are now, so a backup like that is not restored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.cluster.metadata_checkpoint import MARK, remove_mark

if TYPE_CHECKING:
    from ottla.replication.metadata import MetadataImage
    from tests.simulation.cluster.story import ClusterStory
    from tests.simulation.cluster.world import ClusterMachine


ADMIN = "admin-"


def places(image: MetadataImage) -> set[tuple[bytes, int, tuple[int, ...], bool]]:
    """For each partition: its topic id and index, its replicas, and whether it is being reassigned.
    Topics that an administrator creates during the run are left out, because no client writes to
    them."""
    return {
        (topic.topic_id, index, tuple(sorted(state.replicas)),
         state.extra is not None and bool(state.extra.adding or state.extra.removing))
        for topic in image.topics.values() if not topic.name.startswith(ADMIN)
        for index, state in enumerate(topic.partitions)
    }


def accept_backup(story: ClusterStory, machine: ClusterMachine) -> None:
    """Do what `ottla cluster accept-backup` does to the log directories of a stopped broker."""
    machine.disk = machine.disk.reopened()
    for directory in story.options.directories:
        if machine.disk.exists(f"{directory}/{MARK}"):
            remove_mark(machine.disk, directory)


async def restored_backup(story: ClusterStory) -> None:
    """Restore the same backup up to three times. Before each time, brokers may be killed, so that
    other leaders are elected."""
    chance, world = story.random, story.world
    await story.until_in_sync()
    before = story.truth.now()
    backup = world.zookeeper.backup()
    for _ in range(chance.choice((1, 2, 3))):
        for _ in range(chance.choice((0, 1, 2))):
            machine = story.some_machine()
            if machine is not None:
                machine.kill()
                await story.wait(chance.choice((0.0, 8.0)))
                if machine.loop is None:
                    machine.begin_broker()
                await story.until_up(machine)
        await story.wait(chance.choice((0.1, 0.5, 3.0)))
        end = world.now + 30
        # Wait for the topic that the administrator is creating: the backup may lack it.
        while story.admin.busy and world.now < end:
            await story.pass_time(0.1)
        if story.admin.busy or places(story.truth.now()) != places(before):
            return
        for machine in world.brokers:
            machine.kill()
        world.note("ZooKeeper is restored from a backup")
        world.zookeeper.restore(backup)
        story.truth.restored(before)
        for machine in world.brokers:
            accept_backup(story, machine)
        for machine in chance.sample(world.brokers, len(world.brokers)):
            machine.begin_broker()
            await story.wait(chance.choice((0.0, 0.01, 0.5, 8.0)))
        for machine in world.brokers:
            await story.insist(machine)
        await story.wait(chance.choice((0.5, 8.0)))
