"""The committed table of Kafka's settings agrees with Kafka's own classes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from compat_tests.requirements import PEER_DIR, PEER_JARS, ROOT, java, missing

PROGRAM = Path(__file__).with_name("settings") / "KafkaSettings.java"
TABLE = ROOT / "ottla" / "broker" / "settings" / "kafka_settings.tsv"


def test_the_table_is_what_apache_kafkas_config_defs_say() -> None:
    if subprocess.run([PEER_DIR / "setup.sh"], capture_output=True).returncode != 0:
        missing("Kafka's own jars are not there")
    printed = subprocess.run(
        [java(), "-cp", f"{PEER_JARS}/*", str(PROGRAM)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rows = TABLE.read_text("utf-8").splitlines()
    assert [row for row in rows if not row.startswith("removed\t")] == printed.splitlines()
