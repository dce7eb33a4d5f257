"""docs/quick_start.md: its blocks are run as they are, one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from compat_tests.brokers import OttlaBroker, free_port
from compat_tests.requirements import ROOT, program

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_a_newcomer_gets_through_the_quick_start(tmp_path: Path) -> None:
    program("kcat")
    text = (ROOT / "docs" / "quick_start.md").read_text()
    port = free_port()
    broker = OttlaBroker(tmp_path, port=port)
    broker.start()
    printed = []
    try:
        (tmp_path / ".venv" / "bin").mkdir(parents=True)
        for name in ("ottla", "pip"):
            (tmp_path / ".venv" / "bin" / name).symlink_to(Path(sys.executable).with_name(name))
        for language, block in BLOCK.findall(text):
            block = block.replace("localhost:9092", f"localhost:{port}")
            command = [sys.executable, "-c"] if language == "python" else ["sh", "-ec"]
            done = subprocess.run(
                [*command, block], cwd=tmp_path, capture_output=True, text=True, timeout=180,
                env=os.environ | {"OTTLA_BOOTSTRAP_SERVERS": f"localhost:{port}"},
            )  # fmt: skip
            assert done.returncode == 0, (block, done.stderr)
            printed.append(done.stdout)
    finally:
        broker.stop()
    _, python, kcat, ours, dump = printed
    assert "b'hello 0'" in python and "b'hello 2'" in python
    assert "hello 1" in kcat and "hello from kcat" in kcat and "greetings" in kcat
    assert '"value": "hello from ottla"' in ours and "Topic: greetings\tTopicId: " in ours
    assert dump.count("payload: hello") == 5
