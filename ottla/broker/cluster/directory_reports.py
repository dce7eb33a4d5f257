"""Reports to the controller which replicas of this broker are in failed log directories
(AssignReplicasToDirs, KIP-858).

What has to be reported is the difference between the image and the replicas, so nothing is
remembered here: a report that is lost, or made to a controller that has ended, is made again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from ottla.replication.controller.directories import LOST, UNASSIGNED, assign_replicas
from ottla.replication.controller.elections import NONE
from ottla.replication.metadata import MetadataImage, PartitionState
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext

log = logging.getLogger("ottla.directories")

VERSION = 0
ATTEMPT_SECONDS = 5.0
AGAIN_SECONDS = 1.0
PARTITIONS_MAX = 2000
"""Partitions that one request names."""

Key = tuple[str, int]


class DirectoryReports:
    """The reports of one broker; `broker_epoch` is this process's, -1 while it has none."""

    def __init__(
        self, broker: BrokerContext, broker_epoch: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.broker, self.broker_epoch, self.loop = broker, broker_epoch, loop
        self.marked: set[Key] = set()
        """Replicas of this broker that the image has as offline."""
        self.task: asyncio.Task[None] | None = None
        self.closed = False

    def follow(self, old: MetadataImage, new: MetadataImage, topics: Collection[str]) -> None:
        """The image has changed, and the replicas have followed it."""
        node_id = self.broker.node_id
        for name in topics:
            self.marked -= {(name, index) for index in range(len(_states(old, name)))}
            self.marked |= {
                (name, index) for index, state in enumerate(_states(new, name))
                if node_id in (state.extra or NONE).offline
            }
        self.look()

    def look(self) -> None:
        """A log directory has failed, or a log could be opened after all."""
        if self.task is None and not self.closed and (self.broker.replicas.offline or self.marked):
            self.task = self.loop.create_task(self._send())

    def close(self) -> None:
        """Send nothing more."""
        self.closed = True
        if self.task is not None:
            self.task.cancel()

    async def _send(self) -> None:
        await asyncio.sleep(0)                      # the image of this turn is in place
        try:
            while (request := self._request()) is not None:
                try:
                    answer = await self._ask(request)
                    refused = ErrorCode(answer.error_code)
                except (ProtocolError, TimeoutError) as error:
                    log.info("failed log directories could not be reported: %s", error)
                    refused = ErrorCode.REQUEST_TIMED_OUT
                if refused:
                    await asyncio.sleep(AGAIN_SECONDS)
                else:
                    # The image shows the outcome; what it does not show is reported again.
                    await self._seen()
        except Exception:
            log.exception("reports of log directories failed")
        finally:
            self.task = None

    async def _seen(self) -> None:
        forwarding = self.broker.forwarding
        if forwarding is not None:
            await forwarding.caught_up()
        if self._request() is not None:
            await asyncio.sleep(AGAIN_SECONDS)

    def _request(self) -> AssignReplicasToDirsRequest | None:
        """A request for the replicas that are in another state than in the image; None if there are
        none."""
        image, offline, epoch = self.broker.image, self.broker.replicas.offline, self.broker_epoch()
        if epoch < 0:
            return None
        lost = [
            key for key in sorted(offline - self.marked)
            if key[1] < len(_states(image, key[0]))
            and self.broker.node_id in _states(image, key[0])[key[1]].replicas
        ]
        found = sorted(self.marked - offline)
        if not lost and not found:
            return None
        made = AssignReplicasToDirsRequest.Directory
        return AssignReplicasToDirsRequest(
            broker_id=self.broker.node_id,
            broker_epoch=epoch,
            directories=[
                made(id=directory_id, topics=_by_topic(image, keys[:PARTITIONS_MAX]))
                for directory_id, keys in ((LOST, lost), (UNASSIGNED, found)) if keys
            ],
        )

    async def _ask(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        broker = self.broker
        for directory in request.directories:
            log.info(
                "%d replicas are %s in working log directories",
                sum(len(topic.partitions) for topic in directory.topics),
                "not" if directory.id == LOST else "again",
            )
        if broker.forwarding is None or broker.forwarding.deciding():
            return await broker.metadata_log.decide(assign_replicas, request)
        answer: AssignReplicasToDirsResponse = await broker.forwarding.ask(
            request, VERSION, ATTEMPT_SECONDS
        )
        return answer


def _states(image: MetadataImage, name: str) -> tuple[PartitionState, ...]:
    topic = image.topics.get(name)
    return () if topic is None else topic.partitions


def _by_topic(
    image: MetadataImage, keys: Iterable[Key]
) -> list[AssignReplicasToDirsRequest.Directory.Topic]:
    made = AssignReplicasToDirsRequest.Directory.Topic
    topics: dict[str, list[AssignReplicasToDirsRequest.Directory.Topic.Partition]] = {}
    for name, index in keys:
        topics.setdefault(name, []).append(made.Partition(partition_index=index))
    return [
        made(topic_id=image.topics[name].topic_id, partitions=partitions)
        for name, partitions in topics.items() if name in image.topics
    ]
