"""Runs Apache Kafka's command-line tools by the names of their scripts, many of them in one JVM."""

from __future__ import annotations

import atexit
import base64
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from compat_tests.brokers import Broker
from compat_tests.requirements import COMPAT_DIR, PEER_DIR, PEER_JARS, java, missing, program

TOOLS = "org.apache.kafka.tools"
CLASSES = {
    "kafka-acls": f"{TOOLS}.AclCommand",
    "kafka-broker-api-versions": f"{TOOLS}.BrokerApiVersionsCommand",
    "kafka-client-metrics": f"{TOOLS}.ClientMetricsCommand",
    "kafka-cluster": f"{TOOLS}.ClusterTool",
    "kafka-configs": f"{TOOLS}.ConfigCommand",
    "kafka-console-consumer": f"{TOOLS}.consumer.ConsoleConsumer",
    "kafka-console-producer": f"{TOOLS}.ConsoleProducer",
    "kafka-consumer-groups": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": f"{TOOLS}.ConsumerPerformance",
    "kafka-delegation-tokens": f"{TOOLS}.DelegationTokenCommand",
    "kafka-delete-records": f"{TOOLS}.DeleteRecordsCommand",
    "kafka-dump-log": f"{TOOLS}.DumpLogSegments",
    "kafka-e2e-latency": f"{TOOLS}.EndToEndLatency",
    "kafka-features": f"{TOOLS}.FeatureCommand",
    "kafka-get-offsets": f"{TOOLS}.GetOffsetShell",
    "kafka-groups": f"{TOOLS}.GroupsCommand",
    "kafka-leader-election": f"{TOOLS}.LeaderElectionCommand",
    "kafka-log-dirs": f"{TOOLS}.LogDirsCommand",
    "kafka-metadata-quorum": f"{TOOLS}.MetadataQuorumCommand",
    "kafka-producer-perf-test": f"{TOOLS}.ProducerPerformance",
    "kafka-reassign-partitions": f"{TOOLS}.reassign.ReassignPartitionsCommand",
    "kafka-server-start": "kafka.Kafka",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-streams-application-reset": f"{TOOLS}.StreamsResetter",
    "kafka-topics": f"{TOOLS}.TopicCommand",
    "kafka-transactions": f"{TOOLS}.TransactionsCommand",
    "kafka-verifiable-consumer": f"{TOOLS}.VerifiableConsumer",
    "kafka-verifiable-producer": f"{TOOLS}.VerifiableProducer",
}
ALONE = {"kafka-verifiable-producer"}
"""Tools that need a JVM of their own. kafka-verifiable-producer prints its last events while the
JVM ends."""
SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A tool runs for less than a second, and a JVM starts faster if it compiles less."""
SCRIPTS = {
    "api-versions": "kafka-broker-api-versions", "reassign": "kafka-reassign-partitions",
} | {name: f"kafka-{name}" for name in (
    "topics", "configs", "consumer-groups", "groups", "get-offsets", "delete-records", "log-dirs",
    "metadata-quorum", "features",
)}  # fmt: skip
"""Tools that end by themselves, so `kafka_tool` runs them in the shared JVM: our short names, and
Kafka's script names."""
SOURCE = Path(__file__).parent / "java_tools" / "ToolRunner.java"


class Ran(NamedTuple):
    """The outcome of a tool."""

    status: int
    stdout: str
    stderr: str


class KafkaTools:
    """One JVM with the classes of Apache Kafka 4.4.0; it runs one tool at a time."""

    def __init__(self) -> None:
        if subprocess.run([PEER_DIR / "setup.sh"], capture_output=True).returncode != 0:
            missing("Kafka's own tools are not there")
        classes = COMPAT_DIR / "classes" / "tools"
        made = classes / "ToolRunner.class"
        if not made.exists() or made.stat().st_mtime < SOURCE.stat().st_mtime:
            classes.mkdir(parents=True, exist_ok=True)
            command = [program("javac"), "-nowarn", "-d", classes, "-cp", f"{PEER_JARS}/*", SOURCE]
            subprocess.run(command, check=True)
        logging = PEER_JARS.parent / "log4j2-tools.properties"
        self._command = [
            java(),
            "-Xmx512m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            f"-Dlog4j2.configurationFile={logging}",
            "-Duser.timezone=UTC",
            "-cp",
            f"{classes}:{PEER_JARS}/*",
            "ToolRunner",
        ]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        # Nobody reads standard error. It goes to a file, because the logs of the tools' clients
        # would fill a pipe.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        return subprocess.Popen(
            self._command,
            env=os.environ | {"TZ": "UTC"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def command(self, name: str, *arguments: str) -> list[str]:
        """The command line that runs a tool in a JVM of its own."""
        return [*self._command[:-1], CLASSES[name], *arguments]

    def run(self, name: str, arguments: list[str], stdin: bytes = b"") -> Ran:
        """Run the tool with this script name, and return its outcome."""
        if name in ALONE:
            return self.run_alone(name, arguments, stdin)
        lines = [CLASSES[name], str(len(arguments))]
        lines += [base64.b64encode(argument.encode()).decode() for argument in arguments]
        lines.append(base64.b64encode(stdin).decode())
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n".join(lines) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:  # the tool called System.exit, which ended the JVM
            status = self._process.wait()
            self.close()
            self._process = self._start()
            return Ran(status, "", "")
        status, out, err = answer.split()
        return Ran(int(status), _text(out), _text(err))

    def run_alone(self, name: str, arguments: list[str], stdin: bytes = b"") -> Ran:
        """Like `run`, but in a JVM of its own."""
        command = self.command(name, *arguments)
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=180)
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def close(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
        self._errors.close()


@cache
def shared_tools() -> KafkaTools:
    """One JVM for all tests of this process that call `kafka_tool`."""
    found = KafkaTools()
    atexit.register(found.close)
    return found


def _text(encoded: str) -> str:
    return base64.b64decode(encoded.removesuffix("-")).decode(errors="backslashreplace")


def kafka_tool(broker: Broker, name: str, *arguments: str) -> str:
    """The output of a tool of Apache Kafka 4.4.0. `{}` in an argument stands for the bootstrap
    address."""
    java()
    if name in SCRIPTS:
        words = [argument.replace("{}", broker.bootstrap) for argument in arguments]
        ran = shared_tools().run(SCRIPTS[name], words)
        assert ran.status == 0, ran.stdout + ran.stderr
        return ran.stdout
    environment = os.environ | {"BS": broker.bootstrap, "TOOL_FLAGS": SHORT_RUN}
    if subprocess.run([PEER_DIR / "setup.sh"], capture_output=True).returncode != 0:
        missing("Kafka's own tools are not there")
    done = subprocess.run(
        [PEER_DIR / "tool.sh", name, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
