"""The adoption of a restored backup: there are no leaders and no new producer ids before all
brokers have reported their logs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.replication.controller import adoption
from ottla.replication.controller.adoption import (
    EPOCHS_SKIPPED,
    PRODUCER_IDS_SKIPPED,
    end_adoption,
    outdo_logs,
    report,
)
from ottla.replication.controller.brokers import (
    broker_registered,
    brokers_gone,
    repair,
    unregister_broker,
)
from ottla.replication.controller.elections import leaderless
from ottla.replication.controller.producer_ids import BackupBeingAdopted, take_producer_ids
from ottla.replication.metadata import (
    BackupAdopting,
    BrokerImage,
    Endpoint,
    Held,
    MetadataImage,
    PartitionState,
    TopicCreated,
)
from ottla.replication.records import decode_record, encode_record
from ottla.replication.standalone import snapshot_records

ALL = (1, 2, 3)
HELD = Held(3_000_001_000, 30_003)


def broker(node_id: int, epoch: int, incarnation: str) -> BrokerImage:
    endpoints, directories = (Endpoint("P", "h", 1),), (f"directory {node_id}",)
    return BrokerImage(node_id, epoch, endpoints, None, incarnation, directories)


def backup(count: int = 1) -> MetadataImage:
    """An image with a topic of `count` partitions on three brokers, all of which are gone."""
    image = MetadataImage.empty("c").apply([
        TopicCreated("t", b"t" * 16, (PartitionState(1, 5, ALL, ALL),) * count)
    ])
    image = replace(image, brokers={node: broker(node, 1, "old") for node in ALL})
    return image.apply(brokers_gone(image, dict.fromkeys(ALL, 1)).records)


def reported(image: MetadataImage, node_id: int, held: Held | None) -> MetadataImage:
    return image.apply(report(image, node_id, held).records)


def registered(image: MetadataImage, node_id: int, adopts: bool = True) -> MetadataImage:
    new = broker(node_id, 9, "new")
    return image.apply(broker_registered(image, new, "clean", (), adopts).records)


def ended(image: MetadataImage) -> MetadataImage:
    first, more = 0, True
    while more:
        decision = outdo_logs(image, "t", first)
        image, more = image.apply(decision.records), decision.result
        first += adoption.PARTITIONS_AT_A_TIME
    image = image.apply(end_adoption(image).records)
    return image.apply(repair(image).records)


def leaders(image: MetadataImage) -> set[int]:
    return {state.leader for state in image.topics["t"].partitions}


def test_nobody_leads_and_no_ids_are_given_before_all_brokers_have_reported() -> None:
    image = backup()
    for node_id in ALL:
        image = reported(image, node_id, Held(node_id, node_id))
        image = registered(image, node_id)
        assert leaders(image) == {-1} and not list(leaderless(image, True))
        with pytest.raises(BackupBeingAdopted):
            take_producer_ids(image)
        assert image.adopting == BackupAdopting(ALL[node_id:], node_id, node_id)
    image = ended(image)
    assert image.adopting is None
    assert [found[2] for found in leaderless(image, False)] == [ALL], "the longest log leads"
    assert take_producer_ids(image).result.start == 3 + PRODUCER_IDS_SKIPPED


def test_epochs_and_ids_go_on_above_the_highest_of_all_logs() -> None:
    """The same backup is restored several times. At each restore, the logs have the epoch and
    the ids that were assigned after the previous restore."""
    held, before = HELD, HELD
    for _ in range(3):
        image = backup()
        for node_id in ALL:
            image = registered(
                reported(image, node_id, held if node_id == 3 else Held()), node_id
            )
        image = ended(image)
        (state,) = image.topics["t"].partitions
        held = Held(take_producer_ids(image).result.stop, state.leader_epoch + 1)
        assert held.next_id > before.next_id and held.epoch > before.epoch
        before = held
    assert held.epoch == HELD.epoch + 3 * (EPOCHS_SKIPPED + 1)


def test_a_broker_that_does_not_return_is_given_up_by_an_operator() -> None:
    image = registered(reported(backup(), 1, HELD), 1)
    for node_id in (2, 3):
        image = image.apply(unregister_broker(image, node_id, 1).records)
    assert image.adopting == BackupAdopting((), *HELD)
    image = ended(image)
    assert take_producer_ids(image).result.start > HELD.next_id


def test_one_that_has_read_no_more_than_the_backup_has_nothing_to_report() -> None:
    image = registered(reported(backup(), 1, HELD), 1)
    image = registered(reported(image, 2, None), 2, adopts=False)
    assert image.adopting == BackupAdopting((3,), *HELD)
    assert reported(backup(), 1, None).adopting is None


def test_a_live_cluster_waits_for_nobody() -> None:
    """Broker 1 already works with the metadata. Broker 2 has lost its checkpoint, so it sends a
    report. Broker 3 is down, but is not awaited."""
    image = registered(backup(), 1, adopts=False)
    image = reported(image, 2, HELD)
    assert image.adopting == BackupAdopting((), *HELD)


def test_a_report_that_is_repeated_changes_nothing() -> None:
    image = reported(backup(), 1, HELD)
    assert report(image, 1, HELD).records == ()


def test_a_large_topic_outdoes_older_logs_in_several_entries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One entry could not hold all changes. If a controller stops in between, the next one
    continues."""
    monkeypatch.setattr(adoption, "PARTITIONS_AT_A_TIME", 2)
    image = replace(backup(5), adopting=BackupAdopting((), *HELD))
    more = []
    for first in (0, 2, 0, 2, 4):
        decision = outdo_logs(image, "t", first)
        more.append(decision.result)
        image = image.apply(decision.records)
    assert more == [True, True, True, True, False]
    epochs = [state.leader_epoch for state in image.topics["t"].partitions]
    assert epochs == [HELD.epoch + EPOCHS_SKIPPED] * 5
    assert outdo_logs(image, "missing").records == ()
    assert outdo_logs(image, "t").records == (), "once is enough"


def test_an_adoption_survives_its_controller() -> None:
    image = reported(backup(), 1, HELD)
    records = [decode_record(encode_record(each)) for each in snapshot_records(image)]
    assert MetadataImage.empty("c").apply(records).adopting == BackupAdopting((2, 3), *HELD)
    after = ended(reported(reported(image, 2, None), 3, None))
    records = [decode_record(encode_record(each)) for each in snapshot_records(after)]
    assert MetadataImage.empty("c").apply(records).adopting is None


def test_a_leader_epoch_that_is_raised_is_a_change_of_its_partition() -> None:
    """Otherwise leaders and followers could take an older state for the newer one."""
    image = reported(backup(), 1, HELD)
    before = image.topics["t"].partitions[0].partition_epoch
    image = image.apply(outdo_logs(image, "t", 0).records)
    assert image.topics["t"].partitions[0].partition_epoch == before + 1
