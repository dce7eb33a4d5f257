"""Delegation tokens: how long they are valid, who may renew them, when they are forgotten."""

from __future__ import annotations

import pytest

from ottla.replication.controller.tokens import (
    ExpiredToken,
    ForeignToken,
    TokenTimes,
    UnknownToken,
    create_token,
    expire_token,
    has_expired_tokens,
    remove_expired_tokens,
    renew_token,
)
from ottla.replication.metadata import MetadataImage
from ottla.replication.principals import TokenSet
from ottla.replication.records import NUMBER_MAX

TIMES = TokenTimes(lifetime_ms_max=1000, renewal_ms=100)
OWNER, REQUESTER, RENEWER = "User:owner", "User:requester", "User:renewer"
BORN_MS = 5000


@pytest.fixture
def image() -> MetadataImage:
    """An image with a token that is valid until 5100 and can be renewed until 6000."""
    return created(MetadataImage.empty(), "t", -1)


def created(image: MetadataImage, token_id: str, lifetime_ms: int) -> MetadataImage:
    decision = create_token(
        image, token_id, OWNER, REQUESTER, [RENEWER], lifetime_ms, TIMES, BORN_MS)
    return image.apply(decision.records)


@pytest.mark.parametrize(("lifetime_ms", "max_ms", "expires_ms"), [
    (-1, 6000, 5100), (0, 6000, 5100), (1, 5001, 5001), (100, 5100, 5100), (999, 5999, 5100),
    (1000, 6000, 5100), (1001, 6000, 5100),
])
def test_a_token_lives_as_long_as_it_was_asked_for_and_is_allowed(
    lifetime_ms: int, max_ms: int, expires_ms: int
) -> None:
    token = created(MetadataImage.empty(), "t", lifetime_ms).tokens["t"]
    assert (token.owner, token.requester, token.renewers) == (OWNER, REQUESTER, (RENEWER,))
    assert (token.issued_ms, token.max_ms, token.expires_ms) == (BORN_MS, max_ms, expires_ms)


def test_a_token_for_ever_has_times_that_fit_into_64_bits(image: MetadataImage) -> None:
    """delegation.token.max.lifetime.ms and delegation.token.expiry.time.ms may be 2^63-1."""
    latest = TokenTimes(NUMBER_MAX, NUMBER_MAX)
    for lifetime_ms in (-1, NUMBER_MAX, NUMBER_MAX - 1):
        token = create_token(image, "t", OWNER, OWNER, [], lifetime_ms, latest, BORN_MS).result
        assert (token.issued_ms, token.expires_ms, token.max_ms) == (
            BORN_MS, NUMBER_MAX, NUMBER_MAX)
    for_ever = image.apply([TokenSet("t", token)])
    for period_ms in (-1, NUMBER_MAX):
        decision = renew_token(for_ever, "t", OWNER, period_ms, latest, BORN_MS + 1)
        assert decision.result == NUMBER_MAX
    assert expire_token(for_ever, "t", OWNER, NUMBER_MAX, BORN_MS).result == NUMBER_MAX


@pytest.mark.parametrize("who", [OWNER, REQUESTER, RENEWER])
@pytest.mark.parametrize(("period_ms", "now_ms", "expires_ms"), [
    (-1, 5050, 5150), (0, 5050, 5050), (7, 5100, 5107), (10_000, 5100, 6000),
])
def test_a_renewal_counts_from_now_up_to_the_end_of_the_lifetime(
    image: MetadataImage, who: str, period_ms: int, now_ms: int, expires_ms: int
) -> None:
    decision = renew_token(image, "t", who, period_ms, TIMES, now_ms)
    assert decision.result == expires_ms
    token = image.apply(decision.records).tokens["t"]
    assert token == image.tokens["t"]._replace(expires_ms=expires_ms)


@pytest.mark.parametrize(("period_ms", "expires_ms"), [(0, 5050), (7, 5057), (10_000, 6000)])
def test_an_expiry_can_be_set(image: MetadataImage, period_ms: int, expires_ms: int) -> None:
    decision = expire_token(image, "t", RENEWER, period_ms, 5050)
    assert decision.result == expires_ms
    assert image.apply(decision.records).tokens["t"].expires_ms == expires_ms


@pytest.mark.parametrize("now_ms", [5050, 9999])
def test_a_token_can_be_ended_at_once_even_if_it_has_expired(
    image: MetadataImage, now_ms: int
) -> None:
    decision = expire_token(image, "t", OWNER, -1, now_ms)
    assert decision.result == now_ms
    assert not image.apply(decision.records).tokens


@pytest.mark.parametrize("period_ms", [-1, 0])
def test_others_can_neither_renew_nor_end_a_token(image: MetadataImage, period_ms: int) -> None:
    with pytest.raises(ForeignToken):
        renew_token(image, "t", "User:other", period_ms, TIMES, BORN_MS)
    with pytest.raises(ForeignToken):
        expire_token(image, "t", "User:other", period_ms, BORN_MS)
    for unknown in (None, "u"):
        with pytest.raises(UnknownToken):
            renew_token(image, unknown, OWNER, period_ms, TIMES, BORN_MS)
        with pytest.raises(UnknownToken):
            expire_token(image, unknown, OWNER, period_ms, BORN_MS)


def test_an_expired_token_is_not_renewed(image: MetadataImage) -> None:
    with pytest.raises(ExpiredToken):
        renew_token(image, "t", OWNER, -1, TIMES, 5101)
    with pytest.raises(ExpiredToken):
        expire_token(image, "t", OWNER, 0, 5101)


def test_expired_tokens_are_forgotten_with_the_next_one_or_by_themselves(
    image: MetadataImage,
) -> None:
    image = created(image, "shorter", 50)                # valid until 5050
    assert not has_expired_tokens(image, 5050) and not remove_expired_tokens(image, 5050).records
    assert has_expired_tokens(image, 5051)
    removal = remove_expired_tokens(image, 5051)
    assert removal.result == 1 and list(image.apply(removal.records).tokens) == ["t"]
    decision = create_token(image, "new", OWNER, OWNER, [], -1, TIMES, 5101)
    assert list(image.apply(decision.records).tokens) == ["new"]
