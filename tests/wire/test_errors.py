"""Error codes as people read them."""

from __future__ import annotations

import kafka.errors as oracle

from ottla.wire.errors import ErrorCode, name_of

RENAMED = {-1, 0, 6, 10, 17, 39}
"""Codes that kafka-python names in another way than Apache Kafka's newer versions."""


def test_an_error_is_logged_by_its_name_also_one_of_a_later_version() -> None:
    assert name_of(41) == name_of(ErrorCode.NOT_CONTROLLER) == "NOT_CONTROLLER"
    assert name_of(-1) == "UNKNOWN_SERVER_ERROR"
    assert name_of(9999) == "error 9999"


def test_error_codes_are_kafkas() -> None:
    assert sorted(ErrorCode) == list(range(-1, 137)), "none is missing, none is there twice"
    known = {code: each for code, each in oracle.kafka_errors.items() if code is not None}
    assert len(known) > 120
    differing = {code for code in known if known[code].message != ErrorCode(code).name}
    assert differing == RENAMED
