"""A password on a terminal is asked for twice, and not shown."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.cli.ottla_command import Ottla


def test_an_empty_password_is_refused_with_what_to_do_instead(
    ottla: Ottla, tmp_path: Path
) -> None:
    (tmp_path / "empty").write_text("\n")
    for more, where in (f" --password-file {tmp_path / 'empty'}", f"the file {tmp_path}/empty"), (
        "", "the first line of standard input"
    ):
        done = ottla(f"user set alice{more}", b"\n")
        assert done.status == 1, done
        assert f"{where} has no password" in done.err and "--password-file FILE" in done.err


def test_a_password_file_that_is_no_text_is_refused_in_one_line(
    ottla: Ottla, tmp_path: Path
) -> None:
    (tmp_path / "binary").write_bytes(b"secret\xff")
    done = ottla(f"user set alice --password-file {tmp_path / 'binary'}")
    assert (done.status, done.err) == (1, (
        f"ottla user set: the file {tmp_path}/binary is not UTF-8 text: invalid start byte at byte"
        " 6\n"))


@pytest.mark.parametrize(("again", "status"), [("her-secret", 0), ("her-secert", 1)])
def test_a_password_that_is_typed_twice_is_set(ottla: Ottla, again: str, status: int) -> None:
    master, slave = pty.openpty()
    words = [sys.executable, "-m", "ottla", "user", "set", "alice"]
    with subprocess.Popen(
        words, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        env=os.environ | {"OTTLA_BOOTSTRAP_SERVERS": ottla.address},
    ) as process:
        os.close(slave)
        said = b""
        for prompt, typed in ((b"password of alice: ", "her-secret"), (b"again: ", again)):
            while not said.endswith(prompt):
                said += os.read(master, 1)
            os.write(master, f"{typed}\n".encode())
        try:
            while data := os.read(master, 65536):
                said += data
        except OSError:
            pass                # Linux: the other end was closed
    os.close(master)
    assert process.returncode == status, said
    assert b"secret" not in said and (b"the two passwords differ" in said) == bool(status)
    assert ("alice" in ottla.ok("user list")) == (not status)
    if not status:
        ottla.ok("user delete alice --yes")
