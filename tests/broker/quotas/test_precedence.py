"""The most specific quota applies, a user's before a client id's, as in Kafka (KIP-55)."""

from __future__ import annotations

import itertools

import pytest

from ottla.broker.quotas.precedence import Scope, quota_of
from ottla.replication.principals import Entity

KEY = "producer_byte_rate"
ORDER: list[tuple[Entity, Scope]] = [
    ((("client-id", "c"), ("user", "u")), ("u", "c")),
    ((("client-id", None), ("user", "u")), ("u", "c")),
    ((("user", "u"),), ("u", "")),
    ((("client-id", "c"), ("user", None)), ("u", "c")),
    ((("client-id", None), ("user", None)), ("u", "c")),
    ((("user", None),), ("u", "")),
    ((("client-id", "c"),), ("", "c")),
    ((("client-id", None),), ("", "c")),
]
PAIRS = list(itertools.combinations(range(len(ORDER)), 2))


@pytest.mark.parametrize(("stronger", "weaker"), PAIRS)
def test_the_more_specific_of_two_counts(stronger: int, weaker: int) -> None:
    quotas = {ORDER[weaker][0]: {KEY: 2.0}, ORDER[stronger][0]: {KEY: 1.0}}
    assert quota_of(quotas, KEY, "u", "c") == (1.0, ORDER[stronger][1])


def test_quotas_of_others_and_of_other_kinds_do_not_count() -> None:
    quotas: dict[Entity, dict[str, float]] = {
        (("user", "other"),): {KEY: 1.0},
        (("client-id", "other"),): {KEY: 1.0},
        (("user", "u"),): {"consumer_byte_rate": 1.0},
        (("ip", None),): {"connection_creation_rate": 1.0},
    }
    assert quota_of(quotas, KEY, "u", "c") is None
