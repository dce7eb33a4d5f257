"""A worker of Kafka Connect as a process of its own."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from compat_tests.jvms import JavaProgram, maven_jars
from ottla.tools.zookeeper.local import free_port

DISTRIBUTED = "org.apache.kafka.connect.cli.ConnectDistributed"


SESSION_MS = 5_000


def properties(path: Path, settings: dict[str, object]) -> Path:
    """Write a file of settings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


class Worker:
    """One of the distributed workers of a cluster, and its REST interface."""

    def __init__(self, directory: Path, bootstrap: str, **more: str) -> None:
        self.id = f"127.0.0.1:{free_port()}"
        settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "config.storage.topic": "connect-configs",
            "offset.storage.topic": "connect-offsets",
            "status.storage.topic": "connect-status",
            "offset.storage.partitions": 5,
            "config.storage.replication.factor": 1,
            "offset.storage.replication.factor": 1,
            "status.storage.replication.factor": 1,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "listeners": f"http://{self.id}",
            "exactly.once.source.support": "enabled",
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": 500,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 500,
            "scheduled.rebalance.max.delay.ms": 0,
            "consumer.session.timeout.ms": SESSION_MS,
            "consumer.heartbeat.interval.ms": 500,
            **more,
        }
        file = properties(directory / "worker.properties", settings)
        libraries = maven_jars("connect")
        self.program = JavaProgram(directory, DISTRIBUTED, str(file), libraries=libraries)

    def ask(self, method: str, path: str, body: dict[str, str] | None = None) -> object:
        """The worker's answer; None if it is empty or an error, or the worker does not respond."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self.id}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
                return json.loads(text) if text else None
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def connect(self, name: str, **settings: str) -> None:
        """Create a connector as soon as the worker accepts it."""
        self.program.wait_until(
            lambda: self.ask("PUT", f"/connectors/{name}/config", settings) is not None,
            f"connector {name}",
        )

    def tasks(self, name: str) -> list[dict[str, str]]:
        """The status of the connector's tasks."""
        status = self.ask("GET", f"/connectors/{name}/status")
        return status["tasks"] if isinstance(status, dict) else []

    def runs(self, name: str) -> bool:
        """Whether the connector has one task, and this worker runs it."""
        tasks = self.tasks(name)
        return [(each["state"], each["worker_id"]) for each in tasks] == [("RUNNING", self.id)]

    def restart_overtaken(self, name: str) -> None:
        """Restart the task, as an operator would, if its EndTxn has overtaken its own batches.

        The producer of Kafka 4.3.1 first checks for unsent batches. Then it takes a lock, and under
        this lock the next request from its queue. If records are sent and committed between these
        two steps, the producer ends a transaction that has not begun. Apache Kafka gives the same
        answer as Ottla, and Connect fails the task.
        """
        for task in self.tasks(name):
            if task["state"] == "FAILED" and "InvalidTxnStateException" in task["trace"]:
                self.ask("POST", f"/connectors/{name}/tasks/{task['id']}/restart")


def committed_values(bootstrap: str, topic: str) -> list[str]:
    """The values of partition 0 that a reader of committed records sees now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "assigned-only",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        values.append(message.value().decode())
    consumer.close()
    return values
