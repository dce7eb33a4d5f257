"""Error codes as people read them."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode, name_of


def test_an_error_is_logged_by_its_name_also_one_of_a_later_version() -> None:
    assert name_of(41) == name_of(ErrorCode.NOT_CONTROLLER) == "NOT_CONTROLLER"
    assert name_of(-1) == "UNKNOWN_SERVER_ERROR"
    assert name_of(9999) == "error 9999"
