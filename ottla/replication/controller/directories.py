"""The controller's decision about log directories: AssignReplicasToDirs (KIP-858).

If a log directory fails while a broker runs, the broker reports the directory's replicas with the
directory id LOST. If the broker can open a replica again later, it reports the replica with another
id. The image keeps only whether a replica is offline: no other broker needs to know its directory.
"""

from __future__ import annotations

from ottla.replication.controller.brokers import StaleBrokerEpoch, by_topic
from ottla.replication.controller.elections import back_state, min_isr, offline_state
from ottla.replication.metadata import Decision, MetadataImage, PartitionState, TopicImage
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse

MIGRATING, UNASSIGNED, LOST = (n.to_bytes(16, "big") for n in range(3))
"""The reserved directory ids."""

Answer = AssignReplicasToDirsResponse.Directory.Topic.Partition


def assign_replicas(
    image: MetadataImage, request: AssignReplicasToDirsRequest
) -> Decision[AssignReplicasToDirsResponse]:
    """Record which replicas of a broker are offline; each partition has its own result.

    A replica that goes offline no longer leads, and leaves the in-sync set if another trusted
    member is live. A replica that works again becomes the leader if the partition was waiting for
    it. Raises StaleBrokerEpoch if the broker is not registered under its epoch.
    """
    node_id = request.broker_id
    broker = image.brokers.get(node_id)
    if broker is None or broker.epoch != request.broker_epoch:
        raise StaleBrokerEpoch(
            f"broker {node_id} is not registered with broker epoch {request.broker_epoch}"
        )
    changes: list[tuple[str, int, PartitionState]] = []
    made = AssignReplicasToDirsResponse.Directory
    directories = []
    named: set[tuple[bytes, int]] = set()
    for directory in request.directories:
        topics = []
        for each in directory.topics:
            topic = image.topic_by_id(each.topic_id)
            answers = []
            for item in each.partitions:
                index = item.partition_index
                state, code = _replica(topic, index, node_id)
                if (each.topic_id, index) in named:
                    state, code = None, int(ErrorCode.INVALID_REQUEST)
                named.add((each.topic_id, index))
                answers.append(Answer(partition_index=index, error_code=code))
                if state is None or topic is None:
                    continue
                to_state = offline_state if directory.id == LOST else back_state
                after = to_state(image, state, node_id, min_isr(image, topic.name))
                if after is not state:
                    changes.append((topic.name, index, after))
            topics.append(made.Topic(topic_id=each.topic_id, partitions=answers))
        directories.append(made(id=directory.id, topics=topics))
    changes.sort(key=lambda change: change[0])
    return Decision(list(by_topic(changes)), AssignReplicasToDirsResponse(directories=directories))


def _replica(
    topic: TopicImage | None, index: int, node_id: int
) -> tuple[PartitionState | None, int]:
    """Return a partition's state and the error code 0 if the partition has a replica on the broker
    `node_id`; otherwise None and the code of the error."""
    if topic is None:
        return None, int(ErrorCode.UNKNOWN_TOPIC_ID)
    if not 0 <= index < len(topic.partitions) or (
        node_id not in topic.partitions[index].replicas
    ):
        return None, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic.partitions[index], 0
