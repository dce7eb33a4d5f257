"""Levels of features: all updates of a request are made, or none is; a level of 0 is remembered."""

from __future__ import annotations

import pytest

from ottla.replication.controller.access import (
    NETWORKS_FROM,
    Operation,
    Pattern,
    Permission,
    Resource,
)
from ottla.replication.controller.brokers import unregister_broker
from ottla.replication.controller.features import (
    FeatureUpdate,
    UpgradeType,
    finalise_features,
    update_features,
)
from ottla.replication.metadata import FeatureSet, MetadataImage
from ottla.replication.principals import AccessRule, RuleSet
from ottla.wire.errors import ErrorCode, InvalidRequest, ProtocolError
from tests.replication.images import brokers

SUPPORTED = {"old": (3, 3), "used": (0, 2)}
IMAGE = MetadataImage.empty().apply([FeatureSet("old", 3), FeatureSet("used", 2)])


def test_a_downgrade_says_that_it_is_one() -> None:
    for kind in (UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE):
        decision = update_features(IMAGE, [FeatureUpdate("used", 1, kind)], SUPPORTED)
        assert IMAGE.apply(decision.records).features == {"old": 3, "used": 1}
    with pytest.raises(ProtocolError, match="downgrade"):
        update_features(IMAGE, [FeatureUpdate("used", 1)], SUPPORTED)


@pytest.mark.parametrize(
    "bad",
    [
        FeatureUpdate("unheard", 1),
        FeatureUpdate("used", 3),
        FeatureUpdate("used", -1),
        FeatureUpdate("used", 2, 0),
        FeatureUpdate("used", 2, 9),
        FeatureUpdate("old", 2, UpgradeType.UNSAFE_DOWNGRADE),
        FeatureUpdate("old", 0, UpgradeType.UNSAFE_DOWNGRADE),
    ],
)
def test_one_update_that_cannot_be_stops_all(bad: FeatureUpdate) -> None:
    good = FeatureUpdate("used", 0, UpgradeType.SAFE_DOWNGRADE)
    with pytest.raises(ProtocolError) as refused:
        update_features(IMAGE, [good, bad], SUPPORTED)
    assert refused.value.code == ErrorCode.INVALID_UPDATE_VERSION


def test_a_refused_feature_names_those_that_there_are() -> None:
    with pytest.raises(ProtocolError, match=r"It supports old 3-3, used 0-2\.$"):
        update_features(IMAGE, [FeatureUpdate("unheard", 1)], SUPPORTED)


def test_no_level_is_set_whose_brokers_would_ignore_an_acl_that_exists() -> None:
    """Such a broker would ignore the DENY, so clients in its network would have access."""
    name = "metadata.version"
    supported = {name: (NETWORKS_FROM - 2, NETWORKS_FROM + 1)}
    image = MetadataImage.empty().apply([FeatureSet(name, NETWORKS_FROM + 1)])

    def rule(host: str) -> AccessRule:
        return AccessRule(
            Resource.TOPIC, Pattern.LITERAL, "t", "User:eve", host, Operation.READ, Permission.DENY
        )

    def lower(image: MetadataImage, level: int) -> list[object]:
        update = FeatureUpdate(name, level, UpgradeType.UNSAFE_DOWNGRADE)
        return list(update_features(image, [update], supported).records)

    one, other = RuleSet(rule("10.0.0.0/8"), True), RuleSet(rule("2001:db8::/32"), True)
    both = image.apply([RuleSet(rule("192.0.2.1"), True), one, other])
    with pytest.raises(ProtocolError, match=r"these hosts first: 10\.0\.0\.0/8 and 1 more\.$"):
        lower(both, NETWORKS_FROM - 1)
    assert lower(both, NETWORKS_FROM) == [FeatureSet(name, NETWORKS_FROM)]
    left = both.apply([one._replace(present=False), other._replace(present=False)])
    assert lower(left, NETWORKS_FROM - 1) == [FeatureSet(name, NETWORKS_FROM - 1)]


def test_the_level_that_a_feature_has_is_no_change_and_validate_only_changes_nothing() -> None:
    assert update_features(IMAGE, [FeatureUpdate("used", 2)], SUPPORTED).records == []
    down = FeatureUpdate("used", 0, UpgradeType.SAFE_DOWNGRADE)
    assert update_features(IMAGE, [down], SUPPORTED, validate_only=True).records == []


def test_a_start_does_not_undo_a_downgrade_to_0() -> None:
    down = FeatureUpdate("used", 0, UpgradeType.SAFE_DOWNGRADE)
    image = IMAGE.apply(update_features(IMAGE, [down], SUPPORTED).records)
    new = finalise_features(image, {"used": 2, "newer": 1})
    assert new.records == [FeatureSet("newer", 1)]


def test_a_broker_that_is_gone_can_be_forgotten_and_one_that_runs_cannot() -> None:
    image = brokers(0, 5)
    assert image.apply(unregister_broker(image, 5, 0).records).brokers.keys() == {0}
    with pytest.raises(InvalidRequest):
        unregister_broker(image, 0, 0)
    with pytest.raises(ProtocolError) as refused:
        unregister_broker(image, 7, 0)
    assert refused.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize(("levels", "said"), [
    ({"old": (3, 3), "used": (0, 1)}, "Broker 2 only supports versions 0-1"),
    ({"old": (3, 3)}, "Broker 2 does not support this feature."),
])
def test_a_level_is_raised_once_every_broker_supports_it(
    levels: dict[str, tuple[int, int]], said: str
) -> None:
    image = MetadataImage.empty().apply([FeatureSet("used", 1)])
    up, off = FeatureUpdate("used", 2), FeatureUpdate("used", 0, UpgradeType.SAFE_DOWNGRADE)
    with pytest.raises(ProtocolError, match=said):
        update_features(image, [up], SUPPORTED, members={1: SUPPORTED, 2: levels})
    both = {1: SUPPORTED, 2: SUPPORTED}
    assert update_features(image, [up], SUPPORTED, members=both).records == [FeatureSet("used", 2)]
    assert update_features(image, [off], SUPPORTED, members={2: levels}).records == [
        FeatureSet("used", 0)
    ]


@pytest.mark.parametrize(("levels", "accepted"), [
    ((1, 1), True), ((0, 1), True), ((1, 2), True), ((2, 2), False), ((0, 0), False),
])
def test_a_level_is_one_that_every_broker_supports(
    levels: tuple[int, int], accepted: bool
) -> None:
    update = FeatureUpdate("used", 1, UpgradeType.SAFE_DOWNGRADE)
    if accepted:
        assert update_features(IMAGE, [update], SUPPORTED, members={2: {"used": levels}}).records
        return
    with pytest.raises(ProtocolError, match=f"Broker 2 only supports versions {levels[0]}-"):
        update_features(IMAGE, [update], SUPPORTED, members={2: {"used": levels}})
