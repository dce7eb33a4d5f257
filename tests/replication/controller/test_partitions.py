"""Elections and reassignments: decided as in Apache Kafka, one partition at a time."""

from __future__ import annotations

import pytest

from ottla.replication.controller.elections import LogEnd
from ottla.replication.controller.isr import alter_partitions
from ottla.replication.controller.partitions import (
    ElectionType,
    elect_leaders,
    elect_longest,
    to_elect,
)
from ottla.replication.controller.reassignment import (
    Reassignment,
    complete_reassignments,
    completed,
    reassign_partitions,
)
from ottla.replication.metadata import (
    BrokerLeaving,
    ConfigSet,
    Decision,
    MetadataImage,
    PartitionExtra,
    PartitionsAdded,
    PartitionState,
    TopicCreated,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import AlterPartitionRequest
from tests.replication.images import brokers

TOPIC = "t"


def image_of(*states: PartitionState) -> MetadataImage:
    """An image with brokers 1 and 2, and a topic with these partitions."""
    return brokers(1, 2).apply([TopicCreated(TOPIC, b"\1" * 16, states)])


LED_BY_1 = PartitionState(1, 4, (1, 2), (1, 2), 7)
LED_BY_2 = PartitionState(2, 4, (1, 2), (1, 2), 7)
BEHIND = PartitionState(2, 4, (1, 2), (2,), 7)
LEADERLESS = PartitionState(-1, 4, (9, 2), (9,), 7)
HOPELESS = PartitionState(-1, 4, (9,), (9,), 7)


def elected(kind: int, *states: PartitionState) -> tuple[list[object], MetadataImage]:
    image = image_of(*states)
    decision = elect_leaders(image, kind, [(TOPIC, index) for index in range(len(states))])
    return [error and error.code for error in decision.result], image.apply(decision.records)


def test_the_preferred_replica_leads_where_it_is_in_sync() -> None:
    codes, image = elected(ElectionType.PREFERRED, LED_BY_1, LED_BY_2, BEHIND)
    assert codes == [
        ErrorCode.ELECTION_NOT_NEEDED, None, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    ]
    assert image.topics[TOPIC].partitions == (
        LED_BY_1, PartitionState(1, 5, (1, 2), (1, 2), 8), BEHIND
    )


def test_a_preferred_replica_that_is_shutting_down_is_not_elected() -> None:
    """Its broker has handed over its partitions, and may be gone before it hears that it leads
    again."""
    image = image_of(LED_BY_2).apply([BrokerLeaving(1)])
    decision = elect_leaders(image, ElectionType.PREFERRED, [(TOPIC, 0)])
    [error] = decision.result
    assert error is not None and error.code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert not decision.records


def test_an_unclean_election_takes_whoever_is_there() -> None:
    codes, image = elected(ElectionType.UNCLEAN, LED_BY_2, LEADERLESS, HOPELESS)
    assert codes == [
        ErrorCode.ELECTION_NOT_NEEDED, None, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    ]
    assert image.topics[TOPIC].partitions[1] == PartitionState(2, 5, (9, 2), (2,), 8)


def test_what_does_not_exist_has_no_election() -> None:
    image = image_of(LED_BY_2)
    wanted = [(TOPIC, 1), (TOPIC, -1), ("nix", 0), (TOPIC, 0), (TOPIC, 0)]
    decision = elect_leaders(image, ElectionType.PREFERRED, wanted)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [error and error.code for error in decision.result] == [
        unknown, unknown, unknown, None, ErrorCode.ELECTION_NOT_NEEDED
    ]
    assert len(decision.records) == 1
    [error] = elect_leaders(image, 5, [(TOPIC, 0)]).result
    assert error is not None and error.code == ErrorCode.INVALID_REQUEST


def test_an_election_of_all_is_one_of_those_that_need_it() -> None:
    image = image_of(LED_BY_1, LED_BY_2, BEHIND, LEADERLESS)
    assert list(to_elect(image, ElectionType.PREFERRED)) == [(TOPIC, 1), (TOPIC, 2), (TOPIC, 3)]
    assert list(to_elect(image, ElectionType.UNCLEAN)) == [(TOPIC, 3)]


def reassigned(
    state: PartitionState, replicas: tuple[int, ...] | None, may_change_factor: bool = True
) -> PartitionState | ErrorCode:
    image = image_of(state)
    wanted = [Reassignment(TOPIC, 0, replicas)]
    decision = reassign_partitions(image, wanted, may_change_factor)
    [error] = decision.result
    assert error is None or not decision.records
    return error.code if error else image.apply(decision.records).topics[TOPIC].partitions[0]


def test_a_reassignment_to_replicas_that_are_there_is_finished_at_once() -> None:
    assert reassigned(LED_BY_1, (1, 2)) == LED_BY_1
    assert reassigned(LED_BY_1, (2, 1)) == PartitionState(1, 4, (2, 1), (1, 2), 8)
    assert reassigned(LED_BY_1, (1,)) == PartitionState(1, 5, (1,), (1,), 8)
    assert reassigned(LED_BY_1, (2,)) == PartitionState(2, 5, (2,), (2,), 8)


@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 77), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((-1,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_replicas_that_cannot_be_are_refused(
    replicas: tuple[int, ...] | None, code: ErrorCode
) -> None:
    assert reassigned(LED_BY_1, replicas) == code


ALONE = PartitionState(1, 0, (1,), (1,))


def test_a_new_replica_is_waited_for_and_the_old_one_stays_until_then() -> None:
    grows = reassigned(ALONE, (1, 2))
    assert grows == PartitionState(1, 1, (1, 2), (1,), 1, PartitionExtra(adding=(2,)))
    moves = reassigned(ALONE, (2,))
    extra = PartitionExtra(adding=(2,), removing=(1,))
    assert moves == PartitionState(1, 1, (2, 1), (1,), 1, extra)
    assert isinstance(moves, PartitionState)
    assert completed(image_of(moves), moves, 1) is moves
    image = image_of(moves)
    joined = moves._replace(isr=(1, 2))
    assert completed(image, joined, 1) == PartitionState(2, 2, (2,), (2,), 2)
    assert reassigned(moves, (2,)) == moves, "it is in progress already"


def test_a_replica_that_is_away_may_stay_and_no_other_absent_broker_may_come() -> None:
    """Otherwise nothing of a partition could move while one of its brokers is restarted."""
    away = PartitionState(1, 4, (1, 9), (1,), 7)
    assert reassigned(away, (9, 1)) == PartitionState(1, 4, (9, 1), (1,), 8)
    grows = reassigned(away, (2, 9))
    assert isinstance(grows, PartitionState)
    assert (grows.replicas, grows.extra) == (
        (2, 9, 1), PartitionExtra(adding=(2,), removing=(1,))
    )
    assert reassigned(away, (1, 8)) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassigned(away, (9,)) == ErrorCode.INVALID_REPLICA_ASSIGNMENT, "it has not everything"


def test_a_wanted_replica_that_is_away_does_not_hold_up_the_others() -> None:
    """The replicas 1, 2, 9 become 2, 3, 9 while broker 9 is down. As in Apache Kafka, only replica
    3 is waited for."""
    image = brokers(1, 2, 3)
    moves = PartitionState(
        1, 4, (2, 3, 9, 1), (1, 2), 7, PartitionExtra(adding=(3,), removing=(1,))
    )
    assert completed(image, moves, 2) is moves, "the new one has to be in sync"
    joined = moves._replace(isr=(1, 2, 3))
    assert completed(image, joined, 2) == PartitionState(2, 5, (2, 3, 9), (2, 3), 8)


def test_a_reassignment_leaves_as_many_in_sync_as_acks_all_needs() -> None:
    """The replicas 1, 2, 9 become 3, 9 while broker 9 is down."""
    image = brokers(1, 2, 3)
    moves = PartitionState(
        1, 4, (3, 9, 1, 2), (1, 2, 3), 7, PartitionExtra(adding=(3,), removing=(1, 2))
    )
    assert completed(image, moves, 2) is moves
    assert completed(image, moves, 1) == PartitionState(3, 5, (3, 9), (3,), 8)
    back = brokers(1, 2, 3, 9)
    both = moves._replace(isr=(1, 2, 3, 9))
    assert completed(back, both, 2) == PartitionState(3, 5, (3, 9), (3, 9), 8)


def test_a_reassignment_waits_for_a_replica_that_is_known_to_have_everything() -> None:
    image = brokers(1, 2, 3)
    doubtful = PartitionExtra(adding=(3,), removing=(1,), doubtful=(2, 3))
    moves = PartitionState(1, 4, (2, 3, 9, 1), (1, 2, 3), 7, doubtful)
    assert completed(image, moves, 2) is moves


def test_a_reassignment_in_progress_is_cancelled_or_replaced() -> None:
    moves = PartitionState(1, 1, (2, 1), (1,), 1, PartitionExtra(adding=(2,), removing=(1,)))
    assert reassigned(moves, None) == PartitionState(1, 2, (1,), (1,), 2)
    assert reassigned(moves, (1,)) == PartitionState(1, 2, (1,), (1,), 2)
    led_by_new = moves._replace(leader=2, isr=(1, 2))
    assert reassigned(led_by_new, None) == PartitionState(1, 2, (1,), (1,), 2)
    only_new = moves._replace(leader=2, isr=(2,))
    assert reassigned(only_new, None) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_reassignment_that_min_insync_replicas_holds_up_ends_once_that_is_lowered() -> None:
    """The replica 1 becomes 2, 9 while broker 9 is down. With min.insync.replicas=2, the
    reassignment has to wait. If it is requested again with min.insync.replicas=1, it ends."""
    waits = PartitionState(1, 1, (2, 9, 1), (1, 2), 1, PartitionExtra(adding=(2,), removing=(1,)))
    assert completed(image_of(waits), waits, 2) is waits
    assert reassigned(waits, (2, 9)) == PartitionState(2, 2, (2, 9), (2,), 2)
    lowered = image_of(waits)
    for topic in (TOPIC, None):
        done = complete_reassignments(lowered, topic)
        assert not done.result
        after = lowered.apply(done.records).topics[TOPIC].partitions[0]
        assert after == PartitionState(2, 2, (2, 9), (2,), 2)
    assert complete_reassignments(lowered, "gone") == Decision([], False)
    held = lowered.apply([ConfigSet("broker", "", "min.insync.replicas", "2")])
    assert complete_reassignments(held, None) == Decision([], False)


def test_a_replica_that_joins_completes_the_reassignment() -> None:
    moves = PartitionState(1, 1, (2, 1), (1,), 1, PartitionExtra(adding=(2,), removing=(1,)))
    image = image_of(moves)
    made = AlterPartitionRequest.Topic
    answer = alter_partitions(image, AlterPartitionRequest(
        broker_id=1, broker_epoch=1,
        topics=[made(topic_id=b"\1" * 16, partitions=[made.Partition(
            partition_index=0, leader_epoch=1, partition_epoch=1,
            new_isr_with_epochs=[
                made.Partition.NewIsrWithEpoch(broker_id=node, broker_epoch=1) for node in (1, 2)
            ],
        )])],
    ))
    after = image.apply(answer.records).topics[TOPIC].partitions[0]
    assert (after.leader, after.replicas, after.isr, after.extra) == (2, (2,), (2,), None)
    assert answer.result.topics[0].partitions[0].leader_id == 2


@pytest.mark.parametrize("by_setting", [False, True])
def test_an_unclean_election_of_the_only_wanted_replica_completes_the_reassignment(
    by_setting: bool,
) -> None:
    """Nothing else would complete it: the replica that is removed will not return, and no other
    replica joins the in-sync set."""
    extra = PartitionExtra(adding=(2,), removing=(9,))
    state = PartitionState(-1, 4, (2, 9), (9,), 7, extra)
    image, ends = image_of(state), {2: LogEnd(1, 3, 10)}
    records = (
        elect_longest(image, [(TOPIC, 0, ends, True)]).records if by_setting else
        elect_leaders(image, ElectionType.UNCLEAN, [(TOPIC, 0)], {(TOPIC, 0): ends}).records
    )
    [after] = image.apply(records).topics[TOPIC].partitions
    assert (after.leader, after.replicas, after.isr, after.extra) == (2, (2,), (2,), None)
    assert after.leader_epoch > 4


LED_SINCE = LEADERLESS._replace(leader_epoch=6, partition_epoch=9)


@pytest.mark.parametrize(("state", "topic_id"), [(LED_SINCE, b"\1"), (LEADERLESS, b"\2")])
def test_what_replicas_have_reported_is_not_of_a_partition_that_has_changed_since(
    state: PartitionState, topic_id: bytes
) -> None:
    """After the replicas reported the ends of their logs, another replica led the partition, or the
    topic was created again. So the logs may have changed."""
    asked = image_of(LEADERLESS)
    image = brokers(1, 2).apply([TopicCreated(TOPIC, topic_id * 16, (state,))])
    ends = {2: LogEnd(image.brokers[2].epoch, 4, 100)}
    assert elect_longest(asked, [(TOPIC, 0, ends, True)], asked).result == 1
    assert elect_longest(image, [(TOPIC, 0, ends, True)], asked).result == 0
    wanted = [(TOPIC, 0)]
    of_all = {(TOPIC, 0): ends}
    assert elect_leaders(asked, ElectionType.UNCLEAN, wanted, of_all, asked).result == [None]
    (error,) = elect_leaders(image, ElectionType.UNCLEAN, wanted, of_all, asked).result
    assert error is not None and error.code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_the_last_replica_in_sync_is_not_dropped() -> None:
    assert reassigned(BEHIND, (1,)) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


DOUBTFUL = PartitionState(-1, 4, (1, 2), (1, 2), 7, PartitionExtra(doubtful=(1, 2)))
"""The power of both has failed, and the longer log is not known yet."""


@pytest.mark.parametrize("replicas", [(1,), (2,)])
def test_no_replica_is_dropped_that_may_be_the_only_one_with_everything(
    replicas: tuple[int, ...],
) -> None:
    assert reassigned(DOUBTFUL, replicas) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    offline = LED_BY_2._replace(leader=-1, extra=PartitionExtra(doubtful=(1,), offline=(2,)))
    assert reassigned(offline, replicas) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_an_absent_eligible_leader_is_not_dropped_for_a_doubtful_replica() -> None:
    extra = PartitionExtra(doubtful=(2,), elr=(9,))
    state = PartitionState(-1, 4, (9, 2), (2,), 7, extra)
    assert reassigned(state, (2,)) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    awaited = state._replace(extra=PartitionExtra(doubtful=(2,), awaited=(9,)))
    assert isinstance(reassigned(awaited, (2,)), PartitionState), "an operator gives it up"


def test_a_reassignment_that_drops_nobody_does_not_wait_for_the_longest_log() -> None:
    after = reassigned(DOUBTFUL, (2, 1))
    assert isinstance(after, PartitionState)
    assert (after.leader, after.replicas, after.isr) == (-1, (2, 1), (1, 2))


@pytest.mark.parametrize("replicas", [None, (1,)])
def test_a_new_replica_is_not_dropped_while_its_log_may_be_the_longest(
    replicas: tuple[int, ...] | None,
) -> None:
    moves = DOUBTFUL._replace(extra=PartitionExtra(adding=(2,), removing=(1,), doubtful=(1, 2)))
    assert reassigned(moves, replicas) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_the_number_of_replicas_stays_where_the_client_says_so() -> None:
    assert reassigned(LED_BY_1, (1,), False) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassigned(LED_BY_1, (2, 1), False) == PartitionState(1, 4, (2, 1), (1, 2), 8)


def test_partitions_that_do_not_exist_are_not_reassigned() -> None:
    missing = [("nix", 0, (1,)), (TOPIC, 9, (1,)), (TOPIC, 9, None)]
    wanted = [Reassignment(*each) for each in missing]
    decision = reassign_partitions(image_of(LED_BY_1), wanted)
    assert [error and error.code for error in decision.result] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ] * 3


def test_what_is_reported_of_a_partition_that_was_not_there_before_does_not_count() -> None:
    before = image_of(LEADERLESS)
    after = before.apply([PartitionsAdded(TOPIC, (LEADERLESS,))])
    ends = {2: LogEnd(after.brokers[2].epoch, 4, 100)}
    assert elect_longest(after, [(TOPIC, 1, ends, True)], before).result == 0
    assert elect_longest(after, [(TOPIC, 1, ends, True)], after).result == 1
    assert elect_longest(after, [(TOPIC, 2, ends, True)]).result == 0


def test_a_cancellation_without_a_former_replica_in_sync_says_why() -> None:
    moves = PartitionState(2, 1, (2, 1), (2,), 1, PartitionExtra(adding=(2,), removing=(1,)))
    decision = reassign_partitions(image_of(moves), [Reassignment(TOPIC, 0, None)])
    assert "none of the original replicas, [1], is in sync" in str(decision.result[0])
