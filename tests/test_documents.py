"""What documents tell their readers to type: every block of commands has a test that runs it."""

from __future__ import annotations

import codeop
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.broker.settings.config import BrokerConfig
from ottla.broker.settings.topic import TopicConfig
from ottla.tools.cli.grammar import parser_of
from ottla.tools.kafka_names.grammar import parse
from tests import developer_commands
from tests.developer_commands import OTHERS, RUN, WITH_SPARK, module_of, problems
from tests.documents import (
    COMMANDS,
    DOCUMENTS,
    ELSEWHERE,
    LONG,
    OTHER_LANGUAGES,
    ROOT,
    blocks,
    commands,
    shown_lines,
    tracked_texts,
    unclear_blocks,
    without_blocks,
)
from tests.tools import command_lines

TYPED = re.compile(
    r"^ {4,}\$? ?((?:ottla|kafka-[a-z-]+(?:\.sh)?|make|pip|python3?|kcat|systemctl|echo) .*)$",
    re.MULTILINE,
)
PAGES = {str(path.relative_to(ROOT)) for path in tracked_texts() if path.suffix == ".md"}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_stand_in_blocks_of_sh(document: str) -> None:
    if document != "docs/commands.md":      # the tests of the commands run its examples
        typed = TYPED.findall(without_blocks(document))
        assert not typed, f"{document}: commands outside a block of sh, which no test runs"


def test_every_block_says_whether_it_is_run() -> None:
    unclear = [place for page in PAGES for place in unclear_blocks(page)]
    assert not unclear, f"a block is one of {COMMANDS | OTHER_LANGUAGES}"


@pytest.mark.parametrize("block", [
    "```\nmake nonsense\n```", "```bash\nmake nonsense\n```", "~~~sh\nmake nonsense\n~~~",
    "```sh -x\nmake nonsense\n```", "````\nmake nonsense\n````",
])  # fmt: skip
def test_a_block_that_does_not_say_whether_it_is_run_is_found(tmp_path: Path, block: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{block}\n")
    assert f"{page}:3" in unclear_blocks(str(page))


def test_every_document_with_commands_has_a_test_that_runs_it() -> None:
    for document, test in DOCUMENTS.items():
        if any(block.key not in ELSEWHERE for block in commands(document)):
            name = Path(document).name
            assert name in (ROOT / test).read_text(encoding="utf-8"), f"{test} runs {document}"
    keys = {block.key for document in DOCUMENTS for block in commands(document)}
    assert ELSEWHERE.keys() | LONG <= keys, "blocks that are no longer there"


SIGNATURES = {"docs/spark_reference.md"}
"""Pages whose blocks of Python are declarations that `make generate` makes from the code."""


def test_no_document_has_commands_that_nobody_runs() -> None:
    forgotten = {page for page in PAGES - {*DOCUMENTS} - SIGNATURES if commands(page)}
    assert not forgotten, "add them to DOCUMENTS, and to a test that runs their commands"


BY_ITSELF = ("log", "pipeline", "server")
"""Groups of commands with parsers of their own."""


@pytest.mark.parametrize(("page", "line"), shown_lines())
def test_a_command_line_that_a_page_shows_is_one(page: str, line: str) -> None:
    """This test parses the lines; tests/tools/test_shown_lines.py runs them."""
    name, *words = re.split(r"[|<>#]", line, maxsplit=1)[0].replace("\\\n", " ").split()
    if name == "ottla" and words[0] not in BY_ITSELF:
        known = command_lines.COMMANDS
        command = next(known[" ".join(words[:n])] for n in (2, 1) if " ".join(words[:n]) in known)
        parser_of(command).parse_args(words[len(command.words.split()):])
    elif name != "ottla":
        parse(command_lines.COMMANDS[name], words)


TOLD = developer_commands.developer_commands()
"""What developers are told to type, each command with its page."""


@pytest.mark.parametrize("page", sorted({page for page, _ in TOLD}))
def test_a_command_that_developers_are_told_to_type_exists(page: str) -> None:
    """The test checks that the command's target, variables, module, options and files exist. Most
    of these commands take too long to be run."""
    wrong = [f"{command}: {why}" for its_page, command in TOLD if its_page == page
             for why in problems(page, command)]
    assert not wrong, "or tests/developer_commands.py says what checks it, or why nothing does"


@pytest.mark.parametrize("command", sorted(RUN))
def test_a_cheap_command_for_developers_works(command: str) -> None:
    assert command in {told for _, told in TOLD}
    done = subprocess.run([sys.executable, *command.split()[1:]], cwd=ROOT,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "every promise kept" in done.stdout, done


@pytest.mark.parametrize("command", [
    "make compat-all", "make chaos SEEDS=9", "python -m tests.simulations", "ruff check ottla",
    "python -m tests.simulation --sed 7", "python -m tests.simulation --seed x",
    "python -m compat_tests.answers.matrix --recrd", "OTTLA_KILS=9 pytest tests/broker",
    "pytest tests/broker/test_nothing.py", "pytest compat_tests --brooker kafka", ".ci/runs",
    "python -m compat_tests.chaos --faults nonsense", ".venv/bin/ruff check ottla",
    "python -m compat_tests.answers --scene nonsense", "python nothing.py",
    "python -m compat_tests.tool_chaos --scenes mirror,nonsense", "OTTLA_NONSENSE=1 make test",
    "OTTLA_KILS=9 make test", "bash compat_tests/nothing.sh",
])
def test_a_command_that_does_not_exist_is_found(command: str) -> None:
    assert [*problems("CONTRIBUTING.md", command)]


@pytest.mark.parametrize("line", [
    "make nonsense", "make test\nmake nonsense", "  $ make nonsense", "A=1 make nonsense",
    "`make nonsense`", "    make nonsense", ".venv/bin/python -m nonsense", "bash nonsense",
    "python -m nonsense",
])  # fmt: skip
def test_a_line_that_is_a_command_is_found(tmp_path: Path, line: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\nA sentence that says\nmake sense of it.\n\n{line}\n\nThe end.\n")
    found = developer_commands.quoted(str(page))
    assert "make sense of it." not in found and any("nonsense" in each for each in found)


def test_what_is_said_about_commands_for_developers_is_about_some() -> None:
    for page in OTHERS:
        assert developer_commands.quoted(page), page
    assert {module_of(command) for _, command in TOLD} >= WITH_SPARK
    spark = (ROOT / "compat_tests" / "test_documents.py").read_text(encoding="utf-8")
    assert "WITH_SPARK" in spark


def test_the_page_of_the_walk_through_has_the_code_that_is_run() -> None:
    """A test runs walkthrough.py; `make walkthrough` makes the page from it."""
    script = (ROOT / "examples" / "flights" / "walkthrough.py").read_text(encoding="utf-8")
    cells = re.split(r"^# %%(.*)\n", script, flags=re.MULTILINE)[1:]
    run = [text.strip() for kind, text in zip(cells[::2], cells[1::2], strict=True) if not kind]
    assert run == [block.text.strip() for block in commands("docs/spark_walkthrough.md")]


PASTED = ("README.md", "docs/quick_start.md")
"""Pages whose blocks of Python are for the prompt, where a loop must end with an empty line."""


def pasted(lines: list[str]) -> None:
    """Compile lines one after the other, as Python's prompt does. Raises SyntaxError."""
    waiting: list[str] = []
    for line in [*lines, ""]:
        waiting.append(line)
        if codeop.compile_command("\n".join(waiting), symbol="single") is not None:
            waiting = []
    assert not "".join(waiting).strip(), "the last statement never ends"


@pytest.mark.parametrize("document", PASTED)
def test_blocks_of_python_can_be_pasted_at_the_prompt(document: str) -> None:
    found = [block for block in blocks(document) if block.language == "python"]
    assert found
    for block in found:
        pasted(block.text.splitlines())


def test_a_loop_without_an_empty_line_after_it_cannot_be_pasted() -> None:
    with pytest.raises(SyntaxError):
        pasted(["for n in range(3):", "    print(n)", "print()"])


LINK = re.compile(r"\]\(([^)#\s]*\.md)?(?:#([\w-]+))?\)")


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).strip().replace(" ", "-") for each in headings}


def test_links_between_documents_lead_to_a_page_and_a_heading() -> None:
    for page in (path for path in tracked_texts() if path.suffix == ".md"):
        for name, anchor in LINK.findall(page.read_text(encoding="utf-8")):
            target = page.parent / name if name else page
            assert target.is_file(), f"{page}: {name}"
            assert not anchor or anchor in anchors(target), f"{page}: {name}#{anchor}"


def test_rows_of_tables_have_as_many_cells_as_their_heads() -> None:
    """A `|` between two backticks ends a cell, too. Text after the last cell is not shown."""
    for page in (path for path in tracked_texts() if path.suffix == ".md"):
        cells = 0
        for line in without_blocks(str(page)).splitlines():
            here = len(re.findall(r"(?<!\\)\|", line.rstrip())) if line.startswith("|") else 0
            assert here in (0, cells) or not cells, f"{page}: {line}"
            cells = here


def test_every_decision_is_listed_and_names_code_that_exists() -> None:
    folder = ROOT / "docs" / "decisions"
    pages = sorted(each for each in folder.glob("*.md") if each.name != "README.md")
    listed = re.findall(r"\]\((\w+\.md)\)", (folder / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == [each.name for each in pages]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        parts = re.findall(r"^\*\*(\w+)\.\*\* ", text, re.MULTILINE)
        assert parts == ["Question", "Decision", "Reason", "Code"], page
        for module in re.findall(r"`([\w/]+/\w+)`", text.partition("**Code.**")[2]):
            assert [*(ROOT / "ottla").glob(f"{module}.py*")], f"{page.name}: {module}"
        for test in re.findall(r"`((?:compat_)?tests/[\w/]+\.py)`", text):
            assert (ROOT / test).is_file(), f"{page.name}: {test}"


def test_nothing_tells_to_install_from_an_index_that_has_no_ottla() -> None:
    told = re.compile(r"""pip install[^\n]*?[ '"](ottla)(?:\[|['"]|\s|$)""", re.MULTILINE)
    wrong = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in tracked_texts()
        for found in told.finditer(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert not wrong, "docs/install.md has what works"


def test_every_logger_of_the_broker_is_in_the_table_of_operations() -> None:
    table = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    described = set(re.findall(r"`(ottla\.[a-z_]+)`", "".join(
        line for line in table.splitlines() if line.startswith("| `ottla."))))
    made = {
        found
        for folder in ("broker", "log", "replication", "groups")
        for path in (ROOT / "ottla" / folder).rglob("*.py*") if path.suffix in (".py", ".pyx")
        for found in re.findall(r'getLogger\("(ottla\.[a-z_]+)"\)', path.read_text())
    }
    assert made - described == set(), "add them to the table of loggers in docs/operations.md"
    assert described - made == set(), "remove them from docs/operations.md: nothing logs there"


WEEK_MS = 7 * 24 * 3_600_000


@pytest.mark.parametrize(("page", "words", "setting", "value"), [
    ("quick_start", "For some three seconds the broker waits for further members of the new group",
     "group.initial.rebalance.delay.ms", 3_000),
    ("quick_start", "records stay for a week", "retention.ms", WEEK_MS),
    ("troubleshooting", "`retention.ms` is a week by default", "retention.ms", WEEK_MS),
    ("operations", "`log.retention.check.interval.ms`, 5 minutes",
     "log.retention.check.interval.ms", 300_000),
    ("operations", "a minute\nlater (`file.delete.delay.ms`)", "file.delete.delay.ms", 60_000),
    ("operations", "`segment.bytes`, 1 GiB", "segment.bytes", 1 << 30),
])
def test_a_time_or_size_that_a_page_names_is_the_default(
    page: str, words: str, setting: str, value: int
) -> None:
    assert words in (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert {**BrokerConfig.declared, **TopicConfig.declared}[setting].default == value


def test_the_readme_begins_with_how_to_run_and_how_to_test() -> None:
    first_screen = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:24]
    typed = [line.split()[:2] for line in first_screen]
    assert ["make", "run"] in typed and ["make", "test"] in typed


@pytest.mark.parametrize("page", [
    "README.md", "docs/quick_start.md", "docs/install.md", "CONTRIBUTING.md"])
def test_what_a_build_asks_of_the_system_is_said_before_it_asks(page: str) -> None:
    said = (ROOT / page).read_text(encoding="utf-8")
    needs = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nneeds:\n")[2]
    for thing in ("C compiler", "headers", "venv", "Python 3.11 or newer"):
        assert thing in needs.partition("\n\n")[0] and thing in said, thing


@pytest.mark.parametrize(("compiler", "fits"), [("env cc", True), ("no-such-compiler", False)])
def test_the_compiler_may_be_a_command_of_several_words(compiler: str, fits: bool) -> None:
    """`CC="ccache gcc"` is an example."""
    done = subprocess.run(
        ["make", "needs", f"CC={compiler}"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == fits, done
    assert ("a C compiler is needed" in done.stdout) != fits


def test_make_says_what_it_installs_for_spark_and_how_large_it_is_before_it_does() -> None:
    planned = subprocess.run(
        ["make", "-n", "-W", "pyproject.toml", ".venv/.compat"], cwd=ROOT, capture_output=True,
        text=True, check=True).stdout
    before, installs, _ = planned.partition("pip install -r .venv/compat.txt")
    said = [line for line in before.splitlines() if line.startswith("echo ")][-1]
    assert installs
    for what in ("about 1.2 GB in .venv", "pyspark", "Playwright", "JDK"):
        assert what in said, said


def test_make_help_names_every_target_that_somebody_calls() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert targets is not None
    steps = {"help", "needs", "has-java", "instrumented"}       # only other targets need them
    shown = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    missing = {*targets[1].split()} - steps - {*re.findall(r"make ([a-z-]+)", shown)}
    assert not missing, f"add a row to the first table of CONTRIBUTING.md: {missing}"
    assert "](" not in shown, "links are left out"
