"""What a newcomer is told to type once the broker serves."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ottla.broker import first_steps as steps
from ottla.broker.first_steps import first_steps
from ottla.wire.environment import pip_install

HINT = "puts ottla on the PATH"


def program(place: Path) -> Path:
    """Create a directory with an executable `ottla`; returns the directory."""
    place.mkdir(parents=True)
    (place / "ottla").touch(mode=0o755)
    return place


def test_a_second_terminal_is_told_to_activate_what_only_the_first_has_activated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, system = program(tmp_path / ".venv" / "bin"), program(tmp_path / "bin")
    monkeypatch.setattr(sys, "prefix", str(own.parent))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{own}{os.pathsep}/nowhere")
    monkeypatch.setenv("VIRTUAL_ENV", str(own.parent))
    assert ". .venv/bin/activate" in first_steps("localhost:9092")
    assert steps.program() == ".venv/bin/ottla"
    assert pip_install("kazoo") == f"{sys.executable} -m pip install kazoo"
    monkeypatch.setenv("PATH", f"{own}{os.pathsep}{system}")
    assert HINT not in first_steps("localhost:9092")
    assert steps.program() == "ottla"
    monkeypatch.delenv("VIRTUAL_ENV")
    monkeypatch.setenv("PATH", str(own))  # as in a container image, which sets it for every process
    assert HINT not in first_steps("localhost:9092")
