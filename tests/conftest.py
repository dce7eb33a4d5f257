"""Options that several folders of tests share."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says something of the machine, and nothing of what is tested.
settings.register_profile("ottla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ottla")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record", action="store_true", help="write what happens into the scenario files"
    )
