"""Each API has its handler in the file that its schema names."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.broker import api
from ottla.broker.dispatch import HANDLERS, handles
from ottla.broker.security.decisions import everybody
from ottla.wire.apis import APIS, ApiKey

IMPORTED_BY_A_START = """
import sys, ottla.broker.server
print(*(name for name in sys.modules if name.startswith("ottla.")))
"""


def test_every_api_has_its_handler_in_the_file_that_its_schema_names() -> None:
    api.load()
    for key, handler in HANDLERS.items():
        function = handler.function
        assert function is not None
        assert function.__module__ == f"ottla.broker.api.{APIS[key].served_by}"
    assert HANDLERS.keys() == {api.key for api in APIS.values() if api.served_by}


@pytest.mark.parametrize("key", [ApiKey.HEARTBEAT, ApiKey.SHARE_FETCH])
def test_a_handler_in_another_file_than_the_schema_names_is_refused(key: ApiKey) -> None:
    with pytest.raises(AssertionError, match=f"has to say `served {__name__}`"):
        handles(key, access=everybody)(
            test_a_handler_in_another_file_than_the_schema_names_is_refused
        )


def test_a_handler_serves_what_is_told_of_it_once() -> None:
    api.load()

    def again() -> None:
        """Pretends to be a handler in the file of heartbeats."""

    again.__module__ = HANDLERS[ApiKey.HEARTBEAT].module
    with pytest.raises(AssertionError, match="handled twice"):
        handles(ApiKey.HEARTBEAT, access=everybody)(again)


def test_an_api_without_a_decision_about_access_is_refused() -> None:
    api.load()
    with pytest.raises(TypeError, match="access"):
        handles(ApiKey.HEARTBEAT)       # type: ignore[call-arg]
    assert all(handler.access is not None for handler in HANDLERS.values())


def test_a_start_imports_no_handlers_and_no_coordinators() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", IMPORTED_BY_A_START], capture_output=True, text=True, check=True
    ).stdout.split()
    early = [name for name in printed if name.startswith("ottla.broker.api.")]
    assert not [name for name in early if not name.startswith("ottla.broker.api.records")]
    groups = {name for name in printed if name.startswith("ottla.groups.")}
    assert groups <= {"ottla.groups.settings"}      # where the coordinators' defaults are declared
