"""An image is built from its records, and never changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from ottla.replication.metadata import (
    BrokerGone,
    BrokerImage,
    BrokerRegistered,
    ConfigSet,
    Endpoint,
    FeatureSet,
    MetadataImage,
    MetadataRecord,
    PartitionChanged,
    PartitionsAdded,
    PartitionState,
    ProducerIdsTaken,
    TopicCreated,
    TopicDeleted,
)
from ottla.replication.principals import QuotaSet, ScramCredential, ScramSet
from ottla.replication.standalone import snapshot_records
from tests.replication.histories import histories
from tests.replication.images import brokers, with_topics

LED_BY_1 = PartitionState(1, 0, (1,), (1,))
LED_BY_2 = PartitionState(2, 1, (2,), (2,), 1)


@given(histories())
def test_a_snapshot_folds_to_the_image_that_it_was_taken_of(records: list[MetadataRecord]) -> None:
    image = MetadataImage.empty("c").apply(records)
    again = MetadataImage.empty("c").apply(snapshot_records(image))
    assert replace(again, offset=image.offset) == image


@given(histories())
def test_one_by_one_or_all_at_once_the_fold_is_the_same(records: list[MetadataRecord]) -> None:
    image = MetadataImage.empty("c")
    for record in records:
        image = image.apply([record])
    assert image == MetadataImage.empty("c").apply(records)
    assert image.offset == len(records)


@given(histories())
def test_an_image_does_not_change_when_the_next_one_is_made(records: list[MetadataRecord]) -> None:
    half = len(records) // 2
    image = MetadataImage.empty("c").apply(records[:half])
    before = repr(image)
    image.apply(records[half:])
    assert repr(image) == before


@given(histories())
def test_every_topic_is_found_by_its_id(records: list[MetadataRecord]) -> None:
    image = MetadataImage.empty("c").apply(records)
    assert {topic_id: name for name, topic_id in
            ((t.name, t.topic_id) for t in image.topics.values())} == image.names
    for topic in image.topics.values():
        assert image.topic_by_id(topic.topic_id) is topic
    assert image.topic_by_id(b"?" * 16) is None


def test_what_a_record_does_not_touch_is_shared_with_the_image_before() -> None:
    image = with_topics(brokers(1), a=1, b=1)
    after = image.apply([ConfigSet("topic", "a", "retention.ms", "5")])
    assert after.topics is image.topics
    assert after.brokers is image.brokers
    grown = image.apply([PartitionsAdded("a", (LED_BY_1,))])
    assert grown.topics["b"] is image.topics["b"]
    assert grown.configs is image.configs


def test_partitions_are_added_and_changed_one_by_one() -> None:
    image = MetadataImage.empty().apply([TopicCreated("t", b"1" * 16, (LED_BY_1, LED_BY_1))])
    image = image.apply([PartitionsAdded("t", (LED_BY_2,)), PartitionChanged("t", 0, LED_BY_2)])
    assert image.topics["t"].partitions == (LED_BY_2, LED_BY_1, LED_BY_2)


def test_a_deleted_topic_leaves_no_settings_to_the_next_of_its_name() -> None:
    created = TopicCreated("t", b"1" * 16, (LED_BY_1,))
    image = MetadataImage.empty().apply([created, ConfigSet("topic", "t", "retention.ms", "5")])
    image = image.apply([TopicDeleted("t"), created._replace(topic_id=b"2" * 16)])
    assert image.config_of("topic", "t") == {}
    assert image.names == {b"2" * 16: "t"}


def test_the_last_setting_taken_back_leaves_no_resource() -> None:
    set_it = ConfigSet("broker", "1", "log.retention.ms", "5")
    image = MetadataImage.empty().apply([set_it])
    assert image.config_of("broker", "1") == {"log.retention.ms": "5"}
    assert image.apply([set_it._replace(value=None)]).configs == {}


def test_brokers_come_and_go() -> None:
    broker = BrokerImage(3, 7, (Endpoint("A", "h", 1), Endpoint("B", "h", 2)))
    image = MetadataImage.empty().apply([BrokerRegistered(broker)])
    endpoint = image.brokers[3].endpoint("B")
    assert endpoint is not None and endpoint.port == 2
    assert image.brokers[3].endpoint("C") is None
    assert image.apply([BrokerGone(3)]).brokers == {}


def test_a_feature_at_level_0_is_remembered_as_not_wanted() -> None:
    image = MetadataImage.empty().apply([FeatureSet("group.version", 1)])
    assert image.features == {"group.version": 1}
    assert image.apply([FeatureSet("group.version", 0)]).features == {"group.version": 0}


def test_quotas_and_credentials_come_and_go() -> None:
    someone = (("client-id", None), ("user", "u"))
    credential = ScramCredential(4096, b"salt", b"stored", b"server")
    limit, key = QuotaSet(someone, "producer_byte_rate", 5.0), ScramSet("u", 1, credential)
    image = MetadataImage.empty().apply([limit, key])
    assert image.quotas == {someone: {"producer_byte_rate": 5.0}}
    assert image.credentials == {("u", 1): credential}
    emptied = image.apply([limit._replace(value=None), key._replace(credential=None)])
    assert (emptied.quotas, emptied.credentials) == ({}, {})
    assert image.quotas, "an image does not change"


def test_producer_ids_never_go_back() -> None:
    image = MetadataImage.empty().apply([ProducerIdsTaken(2000)])
    with pytest.raises(ValueError, match=r"sets the next producer id to .*, but it is .* already"):
        image.apply([ProducerIdsTaken(1000)])
