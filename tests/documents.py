"""The commands in the documents: blocks of `sh` and `python`.

A test runs each of these blocks as it stands; `DOCUMENTS` and `ELSEWHERE` say which test. All other
blocks have another language (`text`, `properties`, …) and are not run. Pages that are not in
`DOCUMENTS` show command lines with an indentation; tests/tools/test_shown_lines.py runs these.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^ *(?:```|~~~).*$", re.MULTILINE)
COMMANDS = {"sh", "python"}
OTHER_LANGUAGES = {"text", "properties", "toml"}
DOCUMENTS = {
    "README.md": "compat_tests/test_documents.py",
    "docs/quick_start.md": "compat_tests/test_documents.py",
    "docs/testing.md": "compat_tests/test_documents.py",
    "docs/install.md": "compat_tests/test_documents.py",
    "docs/operations.md": "compat_tests/test_documents.py",
    "docs/security.md": "tests/broker/security/test_documented.py",
    "docs/cluster.md": "compat_tests/test_documents.py",
    "docs/cluster_operations.md": "compat_tests/test_documents.py",
    "docs/commands.md": "tests/tools/cli/test_commands.py",
    "docs/spark.md": "compat_tests/test_spark_examples.py",
    "docs/spark_walkthrough.md": "compat_tests/test_spark_walkthrough.py",
}
"""Documents whose commands are run as they stand, and the test that runs them."""
ELSEWHERE = {
    "README.md: make test": "this is the run of all tests itself",
    "docs/cluster.md: ottla server start /etc/ottla/server.properties": "three machines;"
    " compat_tests/test_cluster.py runs the commands with three such files on one",
    "docs/cluster_operations.md: ottla reassign plan --without 4 > plan.json": "it needs a broker"
    " 4; tests/broker/cluster/test_maintenance.py runs the commands",
    "docs/cluster_operations.md: systemctl stop ottla": "it needs systemd as the first process;"
    " tests/broker/cluster/test_maintenance.py runs the other commands after the stop of a broker",
    **dict.fromkeys(
        (
            "docs/cluster_operations.md: ottla server stop --data-dir data",
            "docs/cluster_operations.md: ottla topic describe $(ottla topic list --internal -o"
            " name) -o json | python3 -c '",
        ),
        "they need a broker without a cluster; compat_tests/test_first_broker.py runs them",
    ),
    "docs/operations.md: systemctl enable --now ottla": "it needs systemd as the first process;"
    " tests/test_packaging.py checks the unit with systemd-analyze, and what the broker tells it",
}
"""Blocks that the test of their document leaves out, and what runs them."""
LONG = {
    "docs/install.md: python3 -m venv env",
    "docs/install.md: make wheel",
    "docs/install.md: env/bin/pip install '.[cluster,security]'",
}
"""Blocks that compile everything again, which takes minutes. Only `make newcomer` runs them as they
stand. In all other runs, compat_tests/test_packages.py takes their place: in bare environments, it
installs modules that are already compiled."""


@dataclass(frozen=True)
class Block:
    """A fenced block: the line where it begins, its language, and its text without the
    indentation."""

    document: str
    line: int
    language: str
    text: str

    @property
    def key(self) -> str:
        """The document and the first line of the block's text."""
        return f"{self.document}: {self.text.splitlines()[0].split('  #')[0].strip()}"

    @property
    def place(self) -> str:
        """The document and the line number, for messages."""
        return f"{self.document}:{self.line}"


def blocks(document: str) -> list[Block]:
    """All fenced blocks of a document."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return [
        Block(document, text.count("\n", 0, found.start()) + 1, found[2], textwrap.dedent(found[3]))
        for found in FENCED.finditer(text)
    ]


def commands(document: str) -> list[Block]:
    """The blocks of a document that are run."""
    return [block for block in blocks(document) if block.language in COMMANDS]


def without_blocks(document: str) -> str:
    """The text of a document without its fenced blocks, with as many lines."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return FENCED.sub(lambda found: "\n" * found[0].count("\n"), text)


def unclear_blocks(document: str) -> list[str]:
    """The places of blocks of which no test knows whether to run them: these blocks have another
    language or none, or other fences."""
    known = COMMANDS | OTHER_LANGUAGES
    wrong = [block.place for block in blocks(document) if block.language not in known]
    text = without_blocks(document)
    return wrong + [f"{document}:{text.count(chr(10), 0, found.start()) + 1}"
                    for found in FENCE.finditer(text)]


LINE = re.compile(r"^ {4,}\$? ?((?:ottla|kafka-[a-z-]+) (?:.*\\\n)*.*)$", re.MULTILINE)


def shown_lines() -> list[tuple[str, str]]:
    """The indented command lines of the pages that are not in DOCUMENTS, each with its page."""
    pages = {str(path.relative_to(ROOT)) for path in tracked_texts() if path.suffix == ".md"}
    return [
        (page, line) for page in sorted(pages - {*DOCUMENTS}) for line in
        LINE.findall(without_blocks(page)) if not re.match(r"\S+ {3,}\S", line)
    ]


def run_as_written(
    text: str, folder: Path, address: str, stdin: int = subprocess.DEVNULL
) -> str:
    """Run commands in a directory, with Kafka's names for the tools on the PATH; returns what they
    print. Only the broker's address is replaced."""
    here = Path(sys.executable).parent
    if not (folder / "bin").exists():
        install = [here / "ottla", "install-kafka-scripts", folder / "bin"]
        subprocess.run(install, capture_output=True, check=True)
    done = subprocess.run(
        ["sh", "-ec", re.sub("localhost:909[23]", address, text)], cwd=folder,
        stdin=stdin, capture_output=True, text=True, check=False,
        env=os.environ | {
            "OTTLA_BOOTSTRAP_SERVERS": address,
            "PATH": f"{folder / 'bin'}:{here}:{os.environ['PATH']}",
        },
    )  # fmt: skip
    assert done.returncode == 0, done
    return done.stdout


def tracked_texts() -> list[Path]:
    """Every text that a user may read: documents, messages in the code, packaging, examples."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "docs", "ottla", "packaging", "examples", ":!CHANGELOG.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\n")
    kinds = {".md", ".py", ".pyx", ".txt", ".ipynb", ".service", ".yaml", ".properties", ""}
    paths = [ROOT / name for name in listed if name and Path(name).suffix in kinds]
    return [path for path in paths if path.is_file() and not path.is_symlink()]

