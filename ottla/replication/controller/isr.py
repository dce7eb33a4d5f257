"""The controller's decision about in-sync sets: AlterPartition (KIP-497, KIP-903).

A leader's proposal has the leader's broker epoch, the leader epoch and the partition epoch. Each
must equal the one in the image. The broker of a replica that joins must be registered, still
with the broker epoch that it sent in its fetches to the leader. It must not be shutting down, and
the replica's log directory must work.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.replication.controller.brokers import StaleBrokerEpoch, by_topic
from ottla.replication.controller.elections import available, min_isr, moved
from ottla.replication.controller.reassignment import completed
from ottla.replication.metadata import Decision, MetadataImage, PartitionState, TopicImage
from ottla.wire.errors import ErrorCode
from ottla.wire.marks import reached
from ottla.wire.messages import AlterPartitionRequest, AlterPartitionResponse

Proposal = AlterPartitionRequest.Topic.Partition
Answer = AlterPartitionResponse.Topic.Partition


def alter_partitions(
    image: MetadataImage, request: AlterPartitionRequest
) -> Decision[AlterPartitionResponse]:
    """Change in-sync sets as their leaders propose; each partition has its own result.

    Raises StaleBrokerEpoch if the requesting broker is not registered under its epoch.
    """
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        raise StaleBrokerEpoch(
            f"broker {request.broker_id} is not registered with broker epoch {request.broker_epoch}"
        )
    changes: list[tuple[str, int, PartitionState]] = []
    topics = []
    for each in request.topics:
        # Versions 0 and 1 use topic names; versions up to 2 lack the epochs of joining replicas.
        topic = image.topic_by_id(each.topic_id) or image.topics.get(each.topic_name)
        answers = []
        for proposal in each.partitions:
            state, code = _decide(image, topic, request.broker_id, proposal)
            if state is not None and topic is not None and code == 0:
                isr = tuple(member.broker_id for member in _members(proposal))
                if isr != state.isr:
                    least = min_isr(image, topic.name)
                    state = completed(image, moved(state, state.leader, isr, least), least)
                    changes.append((topic.name, proposal.partition_index, state))
            answers.append(_answer(proposal.partition_index, state, code))
        topics.append(AlterPartitionResponse.Topic(
            topic_name=each.topic_name, topic_id=each.topic_id, partitions=answers
        ))
    return Decision(list(by_topic(changes)), AlterPartitionResponse(topics=topics))


def _answer(index: int, state: PartitionState | None, code: int) -> Answer:
    answer = Answer(partition_index=index, error_code=code)
    if state is not None and code == 0:
        answer.leader_id, answer.leader_epoch = state.leader, state.leader_epoch
        answer.isr, answer.partition_epoch = list(state.isr), state.partition_epoch
    return answer


def _decide(
    image: MetadataImage, topic: TopicImage | None, broker_id: int, proposal: Proposal
) -> tuple[PartitionState | None, int]:
    """The partition's current state, and the error code for the proposal: 0 if it is accepted."""
    if topic is None:
        return None, int(ErrorCode.UNKNOWN_TOPIC_ID)
    if not 0 <= proposal.partition_index < len(topic.partitions):
        return None, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    state = topic.partitions[proposal.partition_index]
    leader_epoch = image.leader_epoch(topic, state)
    if proposal.leader_epoch > leader_epoch or proposal.partition_epoch > state.partition_epoch:
        # The leader knows decisions that are unknown here, so there is a newer controller.
        return state, int(ErrorCode.NOT_CONTROLLER)
    if proposal.leader_epoch < leader_epoch:
        return state, int(ErrorCode.FENCED_LEADER_EPOCH)
    if broker_id != state.leader:
        return state, int(ErrorCode.INVALID_REQUEST)
    if proposal.partition_epoch < state.partition_epoch:
        reached("a leader proposed an in-sync set from an old partition epoch")
        return state, int(ErrorCode.INVALID_UPDATE_VERSION)
    return state, _check_members(image, state, _members(proposal))


def _members(proposal: Proposal) -> Sequence[Proposal.NewIsrWithEpoch]:
    return proposal.new_isr_with_epochs or [
        Proposal.NewIsrWithEpoch(broker_id=node) for node in proposal.new_isr
    ]


def _check_members(
    image: MetadataImage, state: PartitionState, members: Sequence[Proposal.NewIsrWithEpoch]
) -> int:
    nodes = [member.broker_id for member in members]
    known = set(nodes) <= set(state.replicas) and len(set(nodes)) == len(nodes)
    if not known or state.leader not in nodes:
        return int(ErrorCode.INVALID_REQUEST)
    # Eligibility is checked last: on INELIGIBLE_REPLICA, the leader gives up its proposal. So a
    # proposal that was executed already, and is sent again, must get an error about its epochs.
    for member in members:
        node_id = member.broker_id
        if node_id in state.isr:
            continue
        if node_id in image.leaving or not available(image, state, (node_id,)) or (
            member.broker_epoch not in (-1, image.brokers[node_id].epoch)
        ):
            reached("a replica that was to join is ineligible")
            return int(ErrorCode.INELIGIBLE_REPLICA)
    return 0
