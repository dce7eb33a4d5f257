"""A line that works for each command, from the command table, and settings of brokers that refuse
requests. With them, tests see how each command fails."""

from __future__ import annotations

import shlex
from pathlib import Path

from ottla.tools.commands.table import Command, read
from tests.tools.kafka_names.stage import OVERRIDES

CLUSTER = "localhost:9092"
EXAMPLES = {
    command.words: example.removeprefix("ottla ")
    for file in ("ottla", "kafka")
    for command in read(file).values()
    for example in command.examples
}
COMMANDS: dict[str, Command] = {**read("ottla"), **read("kafka")}
LOCAL = {
    "cluster accept-backup", "cluster create", "cluster restart-broker", "cluster start",
    "cluster stop-broker",
    "server stop", "server dev", "console",
    "completion", "install-kafka-scripts", "topic browse", "kafka-storage",
    "kafka-dump-log", "kafka-server-start", "kafka-server-stop",
}
"""Commands that use no broker, start or stop one themselves, need a terminal, or are servers."""
REMOTE = [words for words in EXAMPLES if words not in LOCAL]
CREATE = {"topic create", "kafka-topics", "kafka-e2e-latency"}
WAIT_FOR_IT = {"kafka-console-consumer", "kafka-verifiable-consumer"}
"""Commands that wait until their topic is created, as Apache Kafka's do."""
ABOUT_A_TOPIC = [
    words for words in REMOTE if "orders" in EXAMPLES[words] and words not in CREATE | WAIT_FOR_IT]
FOLDER_FILES = {
    "orders.txt": "a:1\nb:2\n",
    "plan.json": '{"version": 1, "partitions": [{"topic": "%s", "partition": 0, "replicas": [0]}]}',
    "offsets.json": '{"version": 1, "partitions": [{"topic": "%s", "partition": 0, "offset": 1}]}',
    "secret.txt": "secret\n",
    "admin.properties": "max.block.ms=300\n",
}
REFUSING = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:nobody",
}
"""Settings of a broker that refuses nearly every request."""
CREATES_NOTHING = {**OVERRIDES, "auto.create.topics.enable": "false"}
"""Settings of a broker for the examples, without automatic topic creation."""


def line_of(words: str, address: str, topic: str = "orders") -> list[str]:
    """Returns the example of a command for this broker and topic, without its redirection."""
    example = EXAMPLES[words].partition(" > ")[0]
    example = example.replace("localhost:9192", address).replace(CLUSTER, address)
    return shlex.split(example.replace("orders", topic) if topic != "orders" else example)


def fill(folder: Path, topic: str, address: str) -> None:
    """Write the files that the examples name."""
    for name, text in FOLDER_FILES.items():
        (folder / name).write_text(text.replace("%s", topic))
    if topic != "orders":
        (folder / f"{topic}.txt").write_text(FOLDER_FILES["orders.txt"])
    for name in ("from", "to"):
        (folder / f"{name}.properties").write_text(f"bootstrap.servers={address}\n")
