"""Sequences of faults that exercise two features together: reassignments with kills, unclean
elections with replicas that were behind, truncations with open transactions, and restarts with
other settings."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from ottla.replication.metadata import NO_LEADER
from ottla.wire.errors import ErrorCode
from ottla.wire.marks import reached
from tests.simulation.cluster.checker import partitions_of
from tests.simulation.cluster.deleting import NAMES
from tests.simulation.cluster.losses import NOTHING, log_on_disk
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
from tests.simulation.logs import check_log_transactions
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from ottla.replication.metadata import MetadataImage, PartitionState, TopicImage
    from ottla.replication.partition import Partition
    from tests.simulation.cluster.story import ClusterStory
    from tests.simulation.cluster.world import ClusterMachine

TRANSACTIONAL = ("t", "u")
CHANGES = {
    "log.segment.bytes": ("1024", "16384"),
    "log.index.interval.bytes": ("0", "256"),
    "log.flush.offset.checkpoint.interval.ms": ("500", "60000"),
    "compression.type": ("producer", "zstd"),
    "num.recovery.threads.per.data.dir": ("1", "3"),
    "replica.fetch.max.bytes": ("300", "1048576"),
    "replica.fetch.wait.max.ms": ("100", "500"),
}
UNCLEAN = "unclean.leader.election.enable"


async def killed_as_it_moves(story: ClusterStory) -> None:
    """Reassign a partition to other replicas. Meanwhile a broker that takes part, or the
    controller, is killed. Then the reassignment may be cancelled or replaced by another one."""
    chance = story.random
    for _ in range(chance.choice((1, 2, 3))):
        every = [each for each in story.truth.states() if each[0] not in NAMES]
        # If every broker had a replica, a reassignment could only change the order or remove one.
        some = [each for each in every if len(each[2].replicas) < len(story.world.brokers)]
        name, index, before = chance.choice(some or every)
        await story.admin.move(name, index)
        await asyncio.sleep(chance.expovariate(20.0))
        state = state_of(story, (name, index))
        extra = state.extra or NOTHING
        nodes = {*extra.adding, *extra.removing, before.leader, state.leader} - {NO_LEADER}
        controller = story.controller()
        part = [*machines(story, tuple(sorted(nodes))), *([controller] if controller else [])]
        machine = chance.choice(part or story.world.brokers)
        machine.kill()
        if chance.random() < 0.5:
            await story.wait(chance.choice((0.0, 0.1, 3.0)))
            await change_again(story, (name, index), before)
        await story.restart_later(machine)


async def change_again(story: ClusterStory, place: Place, before: PartitionState) -> None:
    """Cancel a reassignment that began from the state `before`, or request another one."""
    cancels = story.random.random() < 0.5
    code = await story.admin.move(*place, cancels=cancels)
    state = state_of(story, place)
    done = cancels and code is ErrorCode.NONE and before.extra is None
    if done and {*state.replicas} != {*before.replicas}:
        raise Violation(
            f"partition {place[0]}-{place[1]} was {before} before a cancelled reassignment, and is"
            f" {state}"
        )


async def nobody_in_sync(story: ClusterStory) -> None:
    """Allow unclean elections for a topic, and kill the in-sync replicas of a partition, so that a
    replica that was behind becomes leader. All records that this replica has at that moment must
    stay, also after the other brokers are back."""
    chance = story.random
    found = led_by_all(story, *PLAIN)
    if not found:
        return
    place = chance.choice(found)
    state = state_of(story, place)
    (behind,) = machines(story, (chance.choice([n for n in state.isr if n != state.leader]),))
    await story.admin.configure(place[0], UNCLEAN, "true")
    story.elections.unclean.add(place[0])
    behind.kill()
    if await until(story, lambda: behind.node_id not in state_of(story, place).isr, 10.0):
        await story.wait(chance.choice((0.5, 3.0)))
        gone = [each for each in story.world.brokers if each is not behind]
        for machine in chance.sample(gone, len(gone)):
            machine.kill()
        await story.insist(behind)

        def leads() -> bool:
            return state_of(story, place).leader == behind.node_id

        if await until(story, leads, 20.0):
            await story.wait(chance.choice((0.05, 0.5, 3.0)))
        await come_back(story, *gone)
    else:
        await come_back(story, behind)
    await story.admin.configure(place[0], UNCLEAN, None)
    await story.wait(1.0)
    story.elections.unclean.discard(place[0])


async def cut_amid_a_transaction(story: ClusterStory) -> None:
    """Cut the leader of a partition with transactions off from ZooKeeper and the other brokers, so
    that another replica becomes leader. In half of the runs, the first leader still receives the
    other brokers' messages: it writes the transaction markers that they request, but no follower
    copies the markers. Then the connections are restored. The first leader truncates the records
    that no other replica has. As soon as it is in sync, the second leader is killed, so that the
    first may lead again."""
    chance, found = story.random, led_by_all(story, *TRANSACTIONAL)
    hears = Random(f"one way {story.world.seed}").random() < 0.5
    if not found:
        return
    place = chance.choice(found)
    (leader,) = machines(story, (state_of(story, place).leader,))
    node = leader.node_id
    leader.cut_off()
    for other in story.world.brokers:
        if other is not leader:
            story.world.cut(leader, other)
            if not hears:
                story.world.cut(other, leader)
    replaced = await until(
        story, lambda: state_of(story, place).leader not in (node, NO_LEADER), 15.0
    )
    await story.wait(chance.choice((0.05, 0.5)))
    for partition in partitions_of(leader) if story.promises.unspoilt else ():
        if partition.topic == place[0]:
            check_log_transactions(partition)       # clients may read from this broker
    story.world.heal()
    leader.join_again()
    back = replaced and await until(
        story, lambda: node in state_of(story, place).isr, 10.0, AT_ONCE_SECONDS
    )
    successor = state_of(story, place).leader
    if not back or successor in (node, NO_LEADER):
        return
    reached("a leader that was cut off is in sync again")
    await asyncio.sleep(chance.expovariate(20.0))
    (machine,) = machines(story, (successor,))
    machine.kill()
    await story.restart_later(machine)


async def other_settings(story: ClusterStory) -> None:
    """Stop or kill one broker after the other, and start it again on the same disk with other
    settings, or with its log directories in another order."""
    chance, options = story.random, story.options
    for name in chance.sample(sorted(CHANGES), 3):
        options.settings[name] = chance.choice(CHANGES[name])
    if options.settings["log.index.interval.bytes"] != "0":
        for topic in story.model.topics:
            topic.indexed_whole = False
    if chance.random() < 0.3:
        options.directories = options.directories[::-1]
    for machine in chance.sample(story.world.brokers, len(story.world.brokers)):
        if machine.up and chance.random() < 0.5:
            await machine.stop_cleanly()
        machine.kill()
        await story.wait(chance.choice((0.0, 0.3)))
        if machine.loop is None:
            machine.begin_broker()
        await story.until_up(machine)


class Elections:
    """Checks which replicas join the in-sync set, and which become leader.

    A replica may join only if it has all committed records. A replica may be elected if it is in
    sync, eligible or awaited (`PartitionExtra`), or if the decision that completes a reassignment
    also lets it join the in-sync set. In these cases, it must have all committed records. Another
    replica may be elected only if a replica of the partition is doubtful or lost, if an operator
    has requested an unclean election, or if the topic allows unclean elections. In the last case
    the records that the new leader lacks are lost, and no others.
    """

    def __init__(self, story: ClusterStory) -> None:
        self.story, self.unclean = story, set[str]()
        """The topics that allow unclean elections."""
        self.asked: set[tuple[str, int]] = set()
        """Partitions for which an operator has requested an unclean election."""

    def follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """Check the elections and in-sync sets of a metadata record, which changes the image `old`
        to `new`."""
        if old.topics is new.topics:
            return
        for name, topic in new.topics.items():
            before = old.topics.get(name)
            if before is topic or before is None or before.topic_id != topic.topic_id:
                continue
            for index, (was, state) in enumerate(
                zip(before.partitions, topic.partitions, strict=False)
            ):
                if state.leader not in (was.leader, NO_LEADER):
                    self._elected(name, index, was, state)
                elif len(state.isr) > 1 and state.isr is not was.isr:
                    for node in {*state.isr} - {*was.isr, state.leader}:
                        self._joined(topic, index, state, node)

    def _joined(self, topic: TopicImage, index: int, state: PartitionState, node: int) -> None:
        """Check that a replica has all that is committed when the controller lets it join the
        in-sync set."""
        leading, joining = self._replica(topic, index, state.leader), self._replica(
            topic, index, node)
        if leading is None or joining is None or not leading.led_here:
            return
        committed = leading.high_watermark
        if topic.name in PLAIN and not self._lost(topic.name, index):
            known = self.story.leaders.committed.get((topic.topic_id, index), 0)
            committed = max(committed, known)
        if joining.log.log_end_offset < committed:
            raise Violation(
                f"partition {topic.name}-{index}: broker {node} joins the in-sync set, but its log"
                f" ends at offset {joining.log.log_end_offset}, below the committed offset"
                f" {committed}"
            )

    def _replica(self, topic: TopicImage, index: int, node: int) -> Partition | None:
        """A broker's replica of this topic's partition; None if the broker does not serve, or the
        replica is missing or offline."""
        machine = self.story.world.broker(node)
        if machine is None or machine.server is None or not machine.up:
            return None
        found = machine.server.replicas.partition(topic.name, index)
        if found is None or found.topic_id != topic.topic_id or found.log.offline is not None:
            return None
        return found

    def _lost(self, name: str, index: int) -> bool:
        """Whether promises about the partition's records were given up in this run
        (`Part.lose`)."""
        return any(
            (part.topic, part.index) == (name, index) and part.lost_at >= 0
            for part in self.story.parts
        )

    def _elected(
        self, name: str, index: int, was: PartitionState, state: PartitionState
    ) -> None:
        extra, machine = was.extra or NOTHING, self.story.world.broker(state.leader)
        assert machine is not None
        after = state.extra or NOTHING
        completed = (extra.adding or extra.removing) and not (after.adding or after.removing)
        joins = completed and state.leader in state.isr
        if joins or state.leader in {*was.isr, *extra.elr, *extra.awaited}:
            self._has_everything(name, index, machine)
            return
        if name not in self.unclean:
            if (name, index) in self.asked or extra.doubtful or extra.lost:
                return
            raise Violation(
                f"partition {name}-{index}: broker {state.leader} leads, though it was not in sync:"
                f" {was}"
            )
        reached("a replica leads that was not in sync")
        self.story.world.note(f"{name}-{index}: {state.leader} leads uncleanly")
        left = log_on_disk(machine.disk, name, index)[2]
        for part in self.story.parts:
            if (part.topic, part.index) == (name, index):
                epoch = self.story.truth.epoch(name, index)
                part.lose(self.story.world.now, epoch, left, ())


    def _has_everything(self, name: str, index: int, machine: ClusterMachine) -> None:
        """Check that a new leader has all committed records. Partitions that may have lost records
        are left out."""
        if self._lost(name, index) or name not in PLAIN or self.story.promises.harmed:
            return
        if machine.server is None or not machine.up:
            return                          # the broker is starting: it has no partitions yet
        own = machine.server.replicas.partition(name, index)
        if own is None:
            return
        committed = self.story.leaders.committed.get((own.topic_id, index), 0)
        if own.log.log_end_offset < committed:
            raise Violation(
                f"partition {name}-{index}: {machine.name} leads, but its log ends at offset"
                f" {own.log.log_end_offset}, below the committed offset {committed}"
            )


PAIRS: dict[str, Sequence] = {
    "killed as it moves": killed_as_it_moves, "nobody in sync": nobody_in_sync,
    "cut amid a transaction": cut_amid_a_transaction, "other settings": other_settings,
}
