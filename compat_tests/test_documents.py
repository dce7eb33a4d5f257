"""The commands of README.md and of six pages of docs/ run unchanged in a fresh clone with a fresh
HOME."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

import pytest

from compat_tests.fresh_clone import FreshClone
from compat_tests.requirements import program, zookeeper
from ottla.tools.zookeeper.local import jars
from tests.developer_commands import (
    WITH_SPARK,
    developer_commands,
    module_of,
    parsed,
    words_of,
)
from tests.documents import ELSEWHERE, LONG, commands

COMPILES = "OTTLA_COMPILE_CLONE" in os.environ
"""Whether the clone is compiled, as `make newcomer` does. Otherwise compiled modules are copied."""
LEFT_OUT = {*ELSEWHERE} if COMPILES else {*ELSEWHERE} | LONG


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FreshClone]:
    with FreshClone(tmp_path_factory.mktemp("clone")) as made:
        if not COMPILES:
            made.keep_what_is_compiled()
        yield made


@pytest.fixture
def printed_by(clone: FreshClone) -> Iterator[Callable[..., str]]:
    """A function that runs the commands of documents, and returns what they printed."""

    def run(*documents: str) -> str:
        found = [block for document in documents for block in commands(document)]
        run_here = [block for block in found if block.key not in LEFT_OUT]
        return "".join(map(clone.run_block, run_here))

    yield run
    clone.forget_data()


def test_every_command_of_the_readme_works_in_a_fresh_clone(
    clone: FreshClone, printed_by: Callable[..., str]
) -> None:
    program("kcat")
    printed = printed_by("README.md")
    assert "\nhello\n" in printed and "\ngreetings\n" in printed
    assert "hello from kcat\n" in printed and "\n127.0.0.1:" in printed
    assert "data in other-data" in clone.printed()


def test_a_newcomer_gets_through_the_quick_start(
    clone: FreshClone, printed_by: Callable[..., str]
) -> None:
    program("kcat")
    printed = printed_by("docs/quick_start.md")
    assert "0 b'key 0' b'hello 0'\n1 b'key 1' b'hello 1'\n2 b'key 2' b'hello 2'\n" in printed
    assert "hello from kcat" in printed
    assert '"value": "hello from ottla"' in printed and "Topic: letters\tTopicId: " in printed
    assert printed.count("payload: hello") == 5


def test_make_run_ends_with_what_to_type_next(clone: FreshClone) -> None:
    clone.start("make run")
    shown = clone.printed().partition("ottla ready: ")[2]
    lines = [line.strip() for line in shown.splitlines() if line.startswith("    ")]
    assert lines[0].startswith(". .venv/bin/activate")
    for times in (1, 2):
        assert clone.run("\n".join(lines)).splitlines()[-times:] == ["hello"] * times
    clone.forget_data()


def test_a_backup_is_taken_and_put_back_as_the_page_about_operations_says(
    clone: FreshClone, printed_by: Callable[..., str]
) -> None:
    clone.start("make run")
    clone.activated = ". .venv/bin/activate\n"
    clone.run(f"{clone.activated}echo kept | ottla produce kept")
    printed = printed_by("docs/operations.md")
    assert "backup/kept-0: 1 segment, 1 batch, first offset 0, next offset 1, " in printed
    assert clone.run(f"{clone.activated}ottla consume kept --exit") == "kept\n"
    assert (clone.directory / "data-before").is_dir()


def test_the_page_about_tests_is_true_in_a_fresh_clone(printed_by: Callable[..., str]) -> None:
    printed = printed_by("docs/testing.md")
    assert " passed in " in printed and "→ Metadata v" in printed


def test_the_commands_for_a_cluster_work_in_their_order(
    clone: FreshClone, printed_by: Callable[..., str]
) -> None:
    """Both pages: the commands start a cluster, restart a broker, check and maintain the cluster,
    and raise a feature level."""
    zookeeper()
    clone.variables = {"OTTLA_ZOOKEEPER_JARS": str(jars())}
    clone.run("make build && .venv/bin/ottla install-kafka-scripts .venv/bin")
    clone.activated = ". .venv/bin/activate\n"
    printed = printed_by("docs/cluster.md", "docs/cluster_operations.md")
    assert printed.count("controller ") >= 2 and "stopped process" in printed
    assert "removed ottla-metadata-checkpoint from 3 log directories" in printed
    assert printed.splitlines()[-1] == "there are no partitions yet", "nothing created a topic"


def test_commands_for_developers_whose_modules_import_spark_have_their_options() -> None:
    """`tests/test_documents.py` checks the commands of the other modules. It runs without Spark."""
    told = {(module, command) for _, command in developer_commands()
            if (module := module_of(command)) in WITH_SPARK}
    assert {module for module, _ in told} == WITH_SPARK
    wrong = [why for module, command in told for why in parsed(module, words_of(command)[1][3:])]
    assert not wrong


def test_the_ways_to_install_work_in_a_fresh_clone(printed_by: Callable[..., str]) -> None:
    versions = re.findall(r"^0\.1\.0$", printed_by("docs/install.md"), re.MULTILINE)
    assert len(versions) >= (2 if COMPILES else 1)
