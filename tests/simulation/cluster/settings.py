"""An administrator that changes topics' settings and deletes records while the other clients work.

In topics with acks=all, only DeleteRecords may remove records, because the checker expects every
other record. Topics with transactions use the model of the one-broker simulation, which knows what
retention and compaction may remove.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import DeleteRecordsRequest, IncrementalAlterConfigsRequest
from tests.simulation.cluster.clients import Client, Part
from tests.simulation.network import Broken
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster.story import ClusterStory
    from tests.simulation.model import PartitionModel

OF_ALL = (
    ("segment.bytes", "1000"), ("segment.bytes", "8192"), ("flush.messages", "1"),
    ("flush.messages", "3"), ("index.interval.bytes", "4096"), ("segment.index.bytes", "36"),
    ("file.delete.delay.ms", "0"), ("flush.ms", "100"),
)
TOO_SMALL = ("max.message.bytes", "500")
"""A setting with which brokers refuse some batches. Followers must still copy larger batches that
are already in the leader's log."""
OF_TRANSACTIONS = (
    ("retention.ms", "1000"), ("retention.ms", "3600000"), ("retention.ms", "-1"),
    ("retention.bytes", "2000"), ("cleanup.policy", "compact"), ("cleanup.policy", "delete"),
    ("cleanup.policy", "compact,delete"), ("segment.ms", "500"),
    ("min.cleanable.dirty.ratio", "0.0"), ("delete.retention.ms", "0"),
    ("min.compaction.lag.ms", "0"),
)
MIN_ISR = "min.insync.replicas"
HINDERS = (MIN_ISR, TOO_SMALL[0])
"""Settings that may stop producers. They are removed at the end."""
UNBOUND = 1 << 62
REFUSED = {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.POLICY_VIOLATION}
"""Errors of DeleteRecords requests that delete nothing: the offset is above the high watermark, or
the topic is compacted."""


class Settings(Client):
    """The administrator. Each of its requests changes one setting, or deletes records of one
    partition."""

    def __init__(self, story: ClusterStory, name: str) -> None:
        super().__init__(story, name)
        self.hindered: dict[tuple[str, str], None] = {}

    async def work(self) -> None:
        random = self.story.random
        while not self.story.over:
            await self.story.rest(1.0)
            try:
                await random.choice((self._configure, self._configure, self._delete, self._delete,
                                     self._delete_of_model))()
            except Broken:
                pass
        for topic, name in self.hindered:
            await self._remove(topic, name)

    # Settings

    async def _configure(self) -> None:
        story, random = self.story, self.story.random
        topic = random.choice([part.topic for part in story.parts]
                              + [each.name for each in story.model.live()])
        choices = [*OF_ALL, (MIN_ISR, str(random.randint(1, story.options.factor)))]
        model = next((each for each in story.model.live() if each.name == topic), None)
        if model is None:
            choices += [TOO_SMALL, (MIN_ISR, str(random.randint(1, story.options.factor)))]
        else:
            choices += OF_TRANSACTIONS
        name, value = random.choice(choices)
        if name in HINDERS:
            self.hindered[topic, name] = None
        removed = random.random() < 0.2
        if model is not None:
            model.may_follow(name, "default" if removed else value)
        node_ids = [each.node_id for each in self.world.brokers if each.up]
        if node_ids:
            await self._set(random.choice(node_ids), topic, name, None if removed else value)

    async def _set(self, node_id: int, topic: str, name: str, value: str | None) -> ErrorCode:
        """Send one change of a setting. If the answer is an error, the change may take effect
        later, or never."""
        made = IncrementalAlterConfigsRequest
        answer = await self.call(node_id, made(resources=[made.Resource(
            resource_type=2, resource_name=topic, configs=[made.Resource.Config(
                name=name, config_operation=int(value is None), value=value,
            )],
        )]), 1)
        code = ErrorCode(answer.responses[0].error_code)
        if code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST):
            raise Violation(f"topic {topic}: the setting {name}={value} is answered {code.name}")
        return code

    async def _remove(self, topic: str, name: str) -> None:
        """Remove a setting. Repeats the request until it succeeds."""
        while True:
            for machine in self.world.brokers:
                try:
                    code = await self._set(machine.node_id, topic, name, None)
                except Broken:
                    continue
                if code is ErrorCode.NONE:
                    return
            await self.back_off()

    # DeleteRecords

    async def _delete(self) -> None:
        """Delete the records before a random offset that was acknowledged or read, or all committed
        records."""
        random = self.story.random
        part = random.choice(self.story.parts)
        known = sorted({*part.seen, *(at for at in part.acked.values() if at >= 0)})
        if not known:
            return
        # Mostly choose one of the older records, so that many records remain to be checked.
        offset = random.choice(known[: len(known) // 2 + 1]) + random.choice((0, 1))
        if random.random() < 0.1:
            offset = max(known) + random.choice((0, 1))
        every = random.random() < 0.05
        asked_at = self.world.now
        deletion = part.deletion(UNBOUND if every else offset)
        found, binds = await self._ask(part, -1 if every else offset)
        if found is None:
            return
        code = ErrorCode(found.error_code)
        if code is ErrorCode.NONE:
            if not every and found.low_watermark < offset:
                raise Violation(
                    f"partition {part}: DeleteRecords up to offset {offset} is answered with log"
                    f" start {found.low_watermark}"
                )
            part.deletions[deletion] = found.low_watermark if every else offset
            if asked_at > part.lost_at and binds:
                epoch = self.story.truth.epoch(part.topic, part.index)
                part.deleted(found.low_watermark, epoch)
        elif code in REFUSED:
            part.deletions[deletion] = 0

    def _eligible_are_in_sync(self, part: Part) -> bool:
        """Whether only in-sync replicas may lead. As in Apache Kafka, a deletion waits only for
        live replicas. So a replica that is down and eligible to lead (KIP-966) still has the
        deleted records."""
        topic = self.story.truth.now().topics[part.topic]
        extra = topic.partitions[part.index].extra
        return extra is None or not extra.elr

    async def _ask(self, part: Part, offset: int) -> tuple[Any | None, bool]:
        """Send DeleteRecords once. Returns the partition's part of the answer, and whether the
        deletion applies to all replicas that may become leader."""
        made, binds = DeleteRecordsRequest, self._eligible_are_in_sync(part)

        def request() -> DeleteRecordsRequest:
            return made(topics=[made.Topic(name=part.topic, partitions=[
                made.Topic.Partition(partition_index=part.index, offset=offset)
            ])], timeout_ms=self.story.random.choice((1000, 10_000)))

        answer = await self.at_leader(part, request, 2)
        if answer is None:
            return None, False
        self.attempts = 0
        found = answer.topics[0].partitions[0]
        if found.error_code:
            self.lost(part)
        return found, binds and self._eligible_are_in_sync(part)

    async def _delete_of_model(self) -> None:
        """Delete records of a topic with transactions."""
        random = self.story.random
        model: PartitionModel = random.choice(random.choice(self.story.model.live()).partitions)
        known = [batch.base_offset for batch in model.batches if batch.base_offset >= 0]
        if not known:
            return
        offset = random.choice(known[: len(known) // 2 + 1])
        model.delete_asked = max(model.delete_asked, offset)
        found, binds = await self._ask(Part(model.topic.name, model.index), offset)
        if found is not None and not found.error_code and binds:
            model.delete_acked = max(model.delete_acked, found.low_watermark)
