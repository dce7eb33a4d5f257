"""Runs pipelines that are refused, for the tests of `preflight`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.spark_interop.pipelines import command


def refusal(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    status = command.main(["pipeline", *map(str, words)])
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1, told.err
    name = f"ottla pipeline {words[0]}"
    text = told.err.strip()
    if status == 2:         # the command line is wrong, whatever the cluster has
        assert text.startswith(f"{name}: ") and text.endswith(f"; see {name} --help"), text
        return text.removeprefix(f"{name}: ").removesuffix(f"; see {name} --help")
    assert status == 1 and text.startswith(f"{name}: "), text
    return text.removeprefix(f"{name}: ")


def archive_at(path: Path, partitions: int) -> Path:
    """Write the description and one commit of an archive with this many partitions; returns its
    path."""
    commits = path / "_ottla" / "commits"
    commits.mkdir(parents=True)
    about = {"kind": "archive", "layout": 1, "topic": "six"}
    (path / "_ottla" / "table.json").write_text(json.dumps(about))
    entry = {"bytes": 1, "ranges": {str(p): [0, 1, 2] for p in range(partitions)}}
    commit = {"add": {"data/f": entry}, "remove": [], "batches": {}}
    (commits / "00000000.json").write_text(json.dumps(commit))
    return path
