"""Client quotas: set, removed and found; bad ones refused as by Apache Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.replication.controller.quotas import (
    Component,
    LimitChange,
    Match,
    QuotaAlteration,
    alter_quotas,
    matching_quotas,
)
from ottla.replication.metadata import MetadataImage
from ottla.wire.errors import InvalidRequest, ProtocolError, UnsupportedVersion

A, B, EVERY_USER = ("user", "a"), ("user", "b"), ("user", None)
C, EVERY_CLIENT = ("client-id", "c"), ("client-id", None)
HERE, EVERYWHERE = ("ip", "127.0.0.1"), ("ip", None)
RATE, SHARE, CONNECTIONS = "producer_byte_rate", "request_percentage", "connection_creation_rate"


def limit(*entity: tuple[str, str | None], **limits: float | None) -> QuotaAlteration:
    return QuotaAlteration(entity, [LimitChange(key, value) for key, value in limits.items()])


def after(image: MetadataImage, *alterations: QuotaAlteration) -> MetadataImage:
    decision = alter_quotas(image, alterations)
    assert decision.result == [None] * len(alterations)
    return image.apply(decision.records)


@pytest.fixture
def image() -> MetadataImage:
    """An image with a limit for each kind of entity."""
    return after(
        MetadataImage.empty(),
        *(limit(*each, producer_byte_rate=1.0) for each in ([A], [B], [EVERY_USER], [C])),
        *(limit(*each, request_percentage=0.5) for each in ([A, C], [EVERY_CLIENT, A])),
        *(limit(each, connection_creation_rate=3.0) for each in (HERE, EVERYWHERE)),
    )


def test_limits_are_set_and_taken_away_one_by_one(image: MetadataImage) -> None:
    image = after(image, limit(A, producer_byte_rate=7.0, request_percentage=12.5))
    assert image.quotas[A,] == {RATE: 7.0, SHARE: 12.5}
    image = after(image, limit(A, producer_byte_rate=None))
    assert image.quotas[A,] == {SHARE: 12.5}
    image = after(image, limit(A, request_percentage=None))
    assert (A,) not in image.quotas


def test_an_entity_is_the_same_in_any_order_of_its_parts(image: MetadataImage) -> None:
    assert image.quotas[C, A] == {SHARE: 0.5}
    assert (A, C) not in image.quotas
    assert after(image, limit(C, A, request_percentage=9.0)).quotas[C, A] == {SHARE: 9.0}


def test_what_is_not_there_can_be_taken_away(image: MetadataImage) -> None:
    decision = alter_quotas(image, [limit(("user", "z"), unheard_of=None)])
    assert decision.result == [None]
    assert image.apply(decision.records).quotas == image.quotas


@pytest.mark.parametrize(
    "bad",
    [
        limit(producer_byte_rate=1.0),
        limit(("nobody", "a"), producer_byte_rate=1.0),
        limit(("", "a"), producer_byte_rate=1.0),
        limit(("user", ""), producer_byte_rate=1.0),
        limit(A, HERE, producer_byte_rate=1.0),
        limit(("ip", "no address"), connection_creation_rate=1.0),
        limit(A, connection_creation_rate=1.0),
        limit(HERE, producer_byte_rate=1.0),
        limit(A, unheard_of=1.0),
        limit(A, producer_byte_rate=0.0),
        limit(A, producer_byte_rate=-1.0),
        limit(A, producer_byte_rate=1.5),
        limit(HERE, connection_creation_rate=8.5),
        limit(A, producer_byte_rate=1e30),
        limit(HERE, connection_creation_rate=2.0**31),
        limit(A, producer_byte_rate=float("inf")),
        limit(A, request_percentage=float("nan")),
        QuotaAlteration([A], [LimitChange(RATE, 1.0), LimitChange(RATE, 2.0)]),
    ],
)
def test_a_bad_limit_is_refused_and_changes_nothing(
    image: MetadataImage, bad: QuotaAlteration
) -> None:
    good = limit(B, producer_byte_rate=77.0)
    decision = alter_quotas(image, [bad, good])
    assert [type(error) for error in decision.result] == [InvalidRequest, type(None)]
    assert image.apply(decision.records).quotas == {**image.quotas, (B,): {RATE: 77.0}}


def test_an_entity_that_a_request_has_twice_is_not_changed(image: MetadataImage) -> None:
    twice = [limit(A, producer_byte_rate=5.0), limit(A, request_percentage=5.0)]
    decision = alter_quotas(image, twice)
    assert all(isinstance(error, InvalidRequest) for error in decision.result)
    assert not decision.records


def test_validate_only_tells_what_would_happen(image: MetadataImage) -> None:
    decision = alter_quotas(image, [limit(A, producer_byte_rate=5.0)], validate_only=True)
    assert (decision.records, decision.result) == ([], [None])


def found(image: MetadataImage, *components: Component, strict: bool = False) -> set[Any]:
    return {entity for entity, _ in matching_quotas(image, components, strict)}


def test_a_filter_finds_entities_that_have_all_of_its_components(image: MetadataImage) -> None:
    a, any_user = Component("user", Match.EXACT, "a"), Component("user", Match.SPECIFIED, None)
    of_a = {(A,), (C, A), (EVERY_CLIENT, A)}
    assert found(image) == set(image.quotas)
    assert found(image, strict=True) == set()
    assert found(image, a) == of_a
    assert found(image, a, strict=True) == {(A,)}
    assert found(image, any_user, strict=True) == {(A,), (B,), (EVERY_USER,)}
    assert found(image, any_user) == of_a | {(B,), (EVERY_USER,)}
    assert found(image, Component("user", Match.DEFAULT, None)) == {(EVERY_USER,)}
    default_client = Component("client-id", Match.DEFAULT, None)
    assert found(image, a, default_client) == {(EVERY_CLIENT, A)}
    assert found(image, Component("ip", Match.SPECIFIED, None)) == {(HERE,), (EVERYWHERE,)}


@pytest.mark.parametrize(
    ("components", "refusal"),
    [
        ([Component("", Match.SPECIFIED, None)], InvalidRequest),
        ([Component("nobody", Match.SPECIFIED, None)], UnsupportedVersion),
        ([Component("user", 5, None)], InvalidRequest),
        ([Component("user", Match.EXACT, None)], InvalidRequest),
        ([Component("user", Match.DEFAULT, "a")], InvalidRequest),
        ([Component("user", Match.SPECIFIED, "a")], InvalidRequest),
        ([Component("user", Match.EXACT, "a")] * 2, InvalidRequest),
        (
            [Component("user", Match.EXACT, "a"), Component("ip", Match.DEFAULT, None)],
            InvalidRequest,
        ),
    ],
)
def test_what_is_no_filter_is_refused(
    image: MetadataImage, components: list[Component], refusal: type[ProtocolError]
) -> None:
    with pytest.raises(refusal):
        found(image, *components)
