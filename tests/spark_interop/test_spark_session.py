"""What the session refuses before a JVM starts; compat_tests start real sessions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.spark_interop import spark_session
from ottla.spark_interop.errors import SparkUnavailable


@pytest.mark.parametrize("version", ["4.0.1", "4.1.4", "4.2.1", "4.3.0", "3.5.1"])
def test_a_pyspark_without_a_connector_is_refused_with_a_pair_that_works(version: str) -> None:
    with pytest.raises(SparkUnavailable, match=r"-m pip install pyspark==4\.2\.0`") as error:
        spark_session.coordinates(version)
    assert version in str(error.value)
    assert "give their directory with --jars (in Python jars=…)" in str(error.value)


@pytest.mark.parametrize("version", spark_session.VERSIONS)
def test_a_pyspark_uses_only_the_jars_that_were_resolved_for_it(
    tmp_path: Path, version: str
) -> None:
    for each in spark_session.VERSIONS:
        jars = tmp_path / each / "jars"
        jars.mkdir(parents=True)
        (jars / f"spark-sql-kafka-0-10_2.13-{each}.jar").touch()
        (jars / f"kafka-clients-of-{each}.jar").touch()
        spark_session.remember(tmp_path / each, each)
    kept = spark_session.kept_jars(tmp_path / version, version)
    assert {jar.parent.parent.name for jar in kept} == {version} and len(kept) == 2
    (tmp_path / version / "jars" / f"kafka-clients-of-{version}.jar").unlink()
    assert spark_session.kept_jars(tmp_path / version, version) == []


def test_jars_of_another_version_are_refused_with_the_pair_that_would_fit(tmp_path: Path) -> None:
    (tmp_path / "spark-sql-kafka-0-10_2.13-4.1.1.jar").touch()
    with pytest.raises(SparkUnavailable, match=r"pyspark==4\.1\.1`, .*2\.13-4\.0\.0\.jar"):
        spark_session.given_jars(tmp_path, "4.0.0")


def test_jars_that_fit_are_used_for_any_version(tmp_path: Path) -> None:
    jars = [
        tmp_path / f"{name}.jar"
        for name in ("kafka-clients-3.9.2", "spark-sql-kafka-0-10_2.13-4.2.0")
    ]
    for jar in jars:
        jar.touch()
    assert spark_session.given_jars(tmp_path, "4.2.0") == jars


def test_without_java_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailable, match="apt-get install openjdk"):
        spark_session.java_version()


def test_a_java_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailable, match="is Java 8; Spark 4 needs Java 17"):
        spark_session.java_version()


def test_the_package_imports_nothing_of_spark_by_itself() -> None:
    code = "import sys, ottla.spark_interop; assert not {'pyspark', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))


@pytest.mark.parametrize("returned", [True, False])
def test_ctrl_c_ends_the_jvm_also_before_popen_has_returned(returned: bool) -> None:
    processes: list[subprocess.Popen[bytes]] = []

    class Starting(subprocess.Popen[bytes]):
        def __init__(self, command: list[str]) -> None:
            super().__init__(command)
            processes.append(self)
            if not returned:
                raise KeyboardInterrupt

    def launch_gateway() -> None:
        process = Starting(["sleep", "600"])
        assert process.poll() is None
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as interrupted:
        launch_gateway()
    [jvm] = processes
    try:
        spark_session.end_jvm(interrupted.value)
        assert jvm.poll() == -signal.SIGTERM
    finally:
        jvm.kill()
        jvm.wait()
