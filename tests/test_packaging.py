"""The files of packaging/ are correct: the unit, the image's variables, the commented settings."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.broker.settings.config import BrokerConfig
from ottla.broker.settings.hazards import hazards
from tests.broker.service import Service, serves

ROOT = Path(__file__).resolve().parent.parent
PACKAGING = ROOT / "packaging"
OTTLA = Path(sys.executable).with_name("ottla")


def test_the_commented_settings_load_without_a_warning_or_a_hazard() -> None:
    config = BrokerConfig.load(PACKAGING / "server.properties")
    assert config.warnings == [] and list(hazards(config)) == []


def test_what_is_commented_out_has_the_value_that_counts_without_it() -> None:
    text = (PACKAGING / "server.properties").read_text()
    commented = dict(re.findall(r"^#([a-z.]+)=(\S*)$", text, re.MULTILINE))
    examples = {
        "listeners", "advertised.listeners", "ottla.http.listener", "zookeeper.connect",
        "broker.rack", "default.replication.factor", "min.insync.replicas",
    }
    assert len(commented) > 10
    without = BrokerConfig.load(None, ["node.id=0"])
    for name, value in commented.items():
        if name not in examples:
            with_it = BrokerConfig.load(None, [f"{name}={value}"])
            if name in with_it.declared:
                assert with_it.value(name) == without.value(name), name


def test_the_listener_is_for_this_machine_and_the_example_for_others() -> None:
    """Comments in server.properties say which clients each of them is for."""
    path = PACKAGING / "server.properties"
    text = path.read_text()
    assert "\n# NAME://host:port. This listener is for clients on this machine. PLAINTEXT " in text
    config = BrokerConfig.load(path)
    assert config.listeners == ("PLAINTEXT://localhost:9092",)
    assert config.advertised_listeners is None
    _, found, example = text.partition("\n# For clients on other machines: the interface to listen")
    lines = re.findall(r"^#([a-z.]+=.*)$", example, re.MULTILINE)[:2]
    config = BrokerConfig.load(path, lines)
    assert found and config.listeners == ("PLAINTEXT://10.0.0.5:9092",)
    assert config.advertised_listeners == ("PLAINTEXT://broker.example.com:9092",)


def test_the_image_and_the_unit_have_what_a_cluster_needs() -> None:
    """A broker with zookeeper.connect needs kazoo, which is in the extra `cluster`. PKCS12 stores
    need the extra `security`."""
    for name in ("container/Dockerfile", "systemd/ottla.service"):
        installed = re.findall(r"pip install .*", (PACKAGING / name).read_text())
        assert len(installed) == 1 and "[cluster,security]" in installed[0], name


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    text = (PACKAGING / "systemd" / "ottla.service").read_text()
    unit = tmp_path / "ottla.service"
    unit.write_text(
        text.replace("/opt/ottla/bin/ottla", str(OTTLA)).replace("=ottla\nGroup=ottla", "=root")
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True
    )
    ours = [line for line in done.stderr.splitlines() if "ottla.service" in line]
    assert done.returncode == 0 and not ours, done.stderr


def test_systemd_hears_when_it_serves_reloads_and_stops(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(30)
        service = Service(tmp_path, env=os.environ | {"NOTIFY_SOCKET": address})
        service.ready()
        assert manager.recv(4096).startswith(b"READY=1\nSTATUS=serving PLAINTEXT://localhost:")
        service.process.send_signal(1)
        assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=\d+", manager.recv(4096))
        assert manager.recv(4096) == b"READY=1"
        assert service.stop() == 0
        assert manager.recv(4096) == b"STOPPING=1"


def docker_file() -> tuple[dict[str, str], list[str]]:
    """The image's variables, and its command."""
    text = (PACKAGING / "container" / "Dockerfile").read_text()
    variables = dict(re.findall(r"^ENV (\w+)=(\S+)$", text, re.MULTILINE))
    parts = [
        json.loads(found)
        for word in ("ENTRYPOINT", "CMD")
        for found in re.findall(rf"^{word} (\[.*\])$", text, re.MULTILINE)
    ]
    return variables, [word for part in parts for word in part]


def test_the_images_command_serves_with_its_variables(tmp_path: Path) -> None:
    variables, command = docker_file()
    assert command == ["ottla", "server", "start", "--env"]
    compose = (PACKAGING / "container" / "compose.yaml").read_text()
    variables |= dict(re.findall(r'^ +(KAFKA_\w+): "(.*)"$', compose, re.MULTILINE))
    del variables["PATH"]
    assert variables["KAFKA_LOG_DIRS"] == "/var/lib/ottla"
    variables["KAFKA_LOG_DIRS"] = str(tmp_path / "data")
    # The container's ports may be in use on this machine.
    variables["KAFKA_LISTENERS"] = re.sub(r":\d+", ":0", variables["KAFKA_LISTENERS"])
    (tmp_path / "server.properties").touch()
    process = subprocess.Popen(
        [str(OTTLA), *command[1:]], env=os.environ | variables, cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=(tmp_path / "log").open("wb"),
    )
    assert process.stdout is not None
    ready = process.stdout.readline().decode()
    log = (tmp_path / "log").read_text()
    assert "INSIDE://ottla:9092,OUTSIDE://localhost:29092" in ready, log
    bound = re.search(r"listening on .*:(\d+), advertised as OUTSIDE", log)
    assert bound and serves(("127.0.0.1", int(bound[1])))
    assert "listens on all interfaces without authentication" in " ".join(log.split())
    process.terminate()
    assert process.wait(30) == 0
    process.stdout.close()
