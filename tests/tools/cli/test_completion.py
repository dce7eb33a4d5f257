"""Shell completion in a real bash offers names of the cluster, and gives up on a silent broker."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.tools.cli.ottla_command import Ottla


def complete(folder: Path, address: str, *words: str) -> list[str]:
    """Returns what bash offers as completions of the last word."""
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


def test_pipelines_entities_and_kafkas_tools_are_offered(ottla: Ottla, tmp_path: Path) -> None:
    ottla.ok("topic create orders-set --partitions 1")
    assert "archive" in complete(tmp_path, ottla.address, "ottla", "pipeline", "")
    assert complete(tmp_path, ottla.address, "ottla", "config", "show", "top") == ["topic/"]
    offered = complete(tmp_path, ottla.address, "ottla", "config", "show", "topic/orders-s")
    assert offered == ["topic/orders-set"]
    assert complete(tmp_path, ottla.address, "ottla", "kafka-top") == ["kafka-topics"]
    assert complete(tmp_path, ottla.address, "ottla", "kafka-topics", "--desc") == ["--describe"]


def test_a_name_that_a_shell_would_run_is_not_offered(ottla: Ottla, tmp_path: Path) -> None:
    ottla.ok("topic create harmless --partitions 1")
    ottla.ok("produce harmless", b"1\n")
    trap = f"bad-$(touch {tmp_path}/run)"
    ottla.ok(["consume", "harmless", "-G", trap, "-n", "1", "--offset", "beginning"])
    assert complete(tmp_path, ottla.address, "ottla", "group", "describe", "bad") == []
    assert not (tmp_path / "run").exists()


def test_nothing_is_written_to_a_folder_of_all_users(ottla: Ottla) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "/tmp" not in ottla.ok(f"completion {shell}")


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
