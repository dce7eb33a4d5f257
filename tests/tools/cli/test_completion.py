"""Completion in a real bash: names of topics and groups, and a broker that does not answer."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.tools.cli.ottla_command import Ottla


def complete(folder: Path, address: str, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    (folder / "completion").write_text(Ottla(address).ok("completion bash"))
    line = " ".join(f"'{word}'" for word in words)
    asked = (
        f"source {folder}/completion; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _ottla; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    environment = os.environ | {
        "OTTLA_BOOTSTRAP_SERVERS": address, "XDG_RUNTIME_DIR": str(folder),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, env=environment)
    assert done.stderr == ""
    return done.stdout.split()


def test_topics_and_groups_are_offered(ottla: Ottla, tmp_path: Path) -> None:
    ottla.ok("topic create orders-new orders-old payments --partitions 1")
    ottla.ok("produce orders-new", b"1\n")
    ottla.ok("consume orders-new -G billing -n 1 -o beginning")
    offered = complete(tmp_path, ottla.address, "ottla", "topic", "describe", "orders-")
    assert sorted(offered) == ["orders-new", "orders-old"]
    assert complete(tmp_path, ottla.address, "ottla", "consume", "pay") == ["payments"]
    assert complete(tmp_path, ottla.address, "ottla", "group", "describe", "bil") == ["billing"]
    assert complete(tmp_path, ottla.address, "ottla", "topic", "create", "orders-") == []
    assert complete(tmp_path, ottla.address, "ottla", "topic", "describe", "--out") == ["--output"]


def test_a_broker_that_does_not_answer_is_given_up_and_not_asked_again(
    ottla: Ottla, tmp_path: Path
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.settimeout(30)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert complete(tmp_path, address, "ottla", "topic", "describe", "or") == []
        silent.accept()[0].close()
        silent.setblocking(False)
        assert complete(tmp_path, address, "ottla", "topic", "delete", "or") == []
        try:
            silent.accept()
            raise AssertionError("it was asked again within ten seconds")
        except BlockingIOError:
            pass
    offered = complete(tmp_path, ottla.address, "ottla", "topic", "delete", "orders-o")
    assert offered == ["orders-old"], "another cluster is asked on its own"
