"""Error codes and their names are Kafka's, and an error says what was wrong."""

from __future__ import annotations

import kafka.errors as oracle

from ottla.wire.errors import MESSAGE_MAX, ErrorCode, ProtocolError, name_of

RENAMED = {-1, 0, 6, 10, 17, 39}
"""Codes whose names in kafka-python differ from those in newer versions of Apache Kafka."""


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


def test_an_error_says_what_was_wrong_with_or_without_a_code() -> None:
    plain, coded = ProtocolError("why"), ProtocolError("why", ErrorCode.NOT_CONTROLLER)
    assert (str(plain), plain.message) == (str(coded), coded.message) == ("why", "why")
    assert (plain.code, coded.code) == (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER)
    assert (str(ProtocolError()), ProtocolError().message) == ("", "")
    assert ProtocolError("x" * MESSAGE_MAX).message == "x" * MESSAGE_MAX
    assert ProtocolError("x" * (MESSAGE_MAX + 1)).message == "x" * MESSAGE_MAX + "..."


def test_an_error_that_is_kept_holds_no_frames() -> None:
    try:
        try:
            raise ValueError("first")
        except ValueError as cause:
            raise ProtocolError("why") from cause
    except ProtocolError as error:
        kept = error.kept()
    assert (kept.__traceback__, kept.__context__, kept.__cause__) == (None, None, None)
    assert kept.message == "why"
