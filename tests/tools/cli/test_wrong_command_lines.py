"""A wrong command line does nothing: it ends with status 2, and says what is expected."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.settings.config import BrokerConfig
from ottla.broker.settings.declaration import SettingsError
from ottla.broker.settings.sources import Sources
from ottla.client.cluster import ClusterClient
from ottla.tools.cli.target_topic import create_aloud
from ottla.tools.cli.units import (
    duration_ms,
    number_of,
    overrides_without_units,
    size_bytes,
)
from ottla.tools.usage import WrongUsage
from ottla.wire.units import readable
from tests.broker.running import RunningBroker
from tests.tools.cli.ottla_command import Ottla
from tests.tools.command_lines import CREATES_NOTHING, fill


@pytest.mark.parametrize(("line", "said"), [
    ("topic create t -p 0", "number, 1 or more"), ("topic create t -p x", "whole number"),
    ("topic create t -r 0", "number, 1 to 32767"), ("topic create t -c retention", "NAME=VALUE"),
    ("topic grow t", "--partitions is required"), ("topic grow t -p 0", "number, 1 or more"),
    ("topic trim t", "--before is required"), ("topic trim t --before x", "expected an offset"),
    ("topic list (", "not a regular expression"), ("topic offsets t --at noon", "is not a time"),
    ("consume t -p x", "whole number"), ("consume t -n -1", "whole number"),
    ("consume t -o sideways", "-o sideways: expected lines"),
    ("consume t --offset sideways", "expected beginning"), ("consume t --offset stored", "--group"),
    ("consume t --until soon", "is not a time"), ("consume t -f %Q", "%Q is not one of"),
    ("consume t -X nothing", "NAME=VALUE"), ("produce t -p -1", "whole number"),
    ("produce t --timeout soon", "is not a time"), ("produce t -X nothing", "NAME=VALUE"),
    ("group reset g", "--to is required"), ("group reset g --to x --topic t", "expected beginning"),
    ("config show t", "topic/NAME"), ("config set topic/t x", "NAME=VALUE"),
    ("config show broker/x", "expected a broker's number"), ("quota set alice x=1", "user/NAME"),
    ("quota set user/alice producer_byte_rate=fast", "expected a number"),
    ("acl add alice read topic/t", "User:NAME"), ("acl add User:alice juggle topic/t", "juggle"),
    ("acl add User:alice read t", "topic/NAME"), ("feature set group.version", "NAME=LEVEL"),
    ("perf produce t -n 0", "number, 1 or more"), ("perf produce t -s big", "is not a size"),
    ("reassign plan", "--without is required"), ("elect t:x", "expected TOPIC,"),
    ("mirror --topics x", "--from and --to"), ("mirror --topics ( --from a:1 --to b:1", "regular"),
    ("cluster start --brokers 0", "number, 1 or more"), ("cluster create", "--from is required"),
    ("server dev --topic t:x", "NAME:PARTITIONS"), ("server dev --topic :3", "NAME:PARTITIONS"),
    ("server dev --topic t:0", "NAME:PARTITIONS"), ("server start --log-level loud", "loud"),
    ("server start --overide x=1", "unrecognized arguments: --overide; similar: --override;"),
    ("topic create t -p -1", "number, 1 or more"),
    ("topics list", "similar: topic"), ("topic create t --partition 3", "similar: --partitions"),
    ("produce --topic t", "without a flag: ottla produce t; see ottla produce --help"),
    ("consume --topic=t -e", "--topic is not a flag of this command; write the topic without a"),
    ("topic create --topics t -p 3", "without a flag: ottla topic create t;"),
    ("topic delete --topic", "without a flag: ottla topic delete TOPIC;"),
    ("group describe --group g", "write the group without a flag: ottla group describe g;"),
    ("user delete --user alice", "write the user without a flag: ottla user delete alice;"),
    ("server start --properties f", "write the properties without a flag: ottla server start f;"),
    ("pipeline run --file f", "write the file without a flag: ottla pipeline run f;"),
    ("pipeline archvie", "ottla pipeline: argument NAME: invalid choice: 'archvie'; similar: arch"),
    ("pipeline nothing", "invalid choice: 'nothing' (choose from "),
    ("pipeline latest --topic t --path p --evry 1", "--evry 1; similar: --every"),
    ("consume t --from 3", "unrecognized arguments: --from 3; similar: --offset OFFSET; see"),
    ("topic grow t 6", "arguments: 6; write it with its flag: --partitions 6; see ottla topic gr"),
    ("topic grow t -b a:1 6", "arguments: 6; write it with its flag: --partitions 6; see"),
    ("consume t -c 5", "unrecognized arguments: -c 5; see ottla consume --help"),
    ("topic grow t six", "unrecognized arguments: six; see ottla topic grow --help"),
    ("topic trim t end", "arguments: end; write it with its flag: --before end; see"),
    ("group reset g beginning", "write it with its flag: --to beginning; see"),
    ("topic trim t six", "unrecognized arguments: six; see ottla topic trim --help"),
    ("topic trim t beginning", "unrecognized arguments: beginning; see ottla topic trim --help"),
    ("group reset g orders", "unrecognized arguments: orders; see ottla group reset --help"),
    ("group reset g +2", "write it with its flag: --to +2; see"),
    ("produce t hello", "arguments: hello; to send a text: echo hello | ottla produce t; see"),
    ("produce t /", "; to send a text: echo / | ottla produce t; see"),
    (f"produce t {__file__}", f"write it with its flag: --file {__file__}; see ottla produce"),
    ("produce t --format csv",
     "--format csv; similar: --input (known values: lines, jsonl, raw); see ottla produce --help"),
    ("produce t --format=JSON", "; similar: --input jsonl (known values: lines, jsonl, raw); see"),
    ("produce --format json", "--format; similar: --input (known values: lines, jsonl, raw); see"),
    ("consume --from", "--from; similar: --offset OFFSET; the following arguments are required: T"),
    ("topic create t --replicas 3", "--replicas 3; similar: --replication-factor; see ottla"),
    ("topic create --replicas=3", "--replicas; similar: --replication-factor; the following argu"),
    ("group reset g --to-earliest", "unrecognized arguments: --to-earliest; similar: --to begin"),
    ("mirror --to-earliest", "unrecognized arguments: --to-earliest; see ottla mirror --help"),
    ("topic list --broker-list a:1", "--broker-list; similar: --bootstrap-server; see"),
    ("server start --port 9092", "--port; similar: --override listeners=PLAINTEXT://HOST:PORT;"),
    ("pipeline latest --topic t --pth X",
     "unrecognized arguments: --pth; similar: --path; the following arguments are required: --pa"),
    ("pipeline latest --topic t --path p --records-per-batch many",
     "argument --records-per-batch: 'many': expected a whole number, 1 or more; see ottla pipel"),
    ("pipeline replay --path p --topic t --rate fast", "argument --rate: 'fast': expected a numb"),
    ("log import k --data-dir d --node-id one", "'one': expected a whole number, 0 or more; see"),
    ("log verfy d", "invalid choice: 'verfy'; similar: verify; see ottla log --help"),
    ("log verify d --quite", "ottla log verify: unrecognized arguments: --quite; similar: --quiet"),
    ("server start --log-level wraning", "invalid choice: 'wraning'; similar: warning"),
    ("consume t -o jsnl", "-o jsnl: expected lines, jsonl, json, hex, or an offset; similar: json"),
    ("consume t -o begining", "similar: beginning"), ("topic list -o jsnl", "similar: jsonl, json"),
    ("consume t --offset begining", "N, -N or @TIME; similar: beginning; see"),
    ("group reset g --to begining --topic t", "similar: beginning; see"),
    ("produce t -z snapy", "invalid choice: 'snapy'; similar: snappy; see ottla produce"),
    ("log verify --nothing", "--nothing"), ("log nothing", "nothing"), ("nothing", "nothing"),
])
def test_a_wrong_command_line_ends_with_2(ottla: Ottla, line: str, said: str) -> None:
    ottla("topic create t --if-not-exists")
    done = ottla(line.split())
    assert done.status == 2 and said in done.err and not done.out, done


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ottla]:
    """A broker with two topics and without automatic topic creation."""
    with RunningBroker(tmp_path_factory.mktemp("strict"), **CREATES_NOTHING) as running:
        ottla = Ottla(f"127.0.0.1:{running.port}")
        ottla.ok("topic create orders others --partitions 1")
        yield ottla


@pytest.mark.parametrize("line", [
    "topic describe {}", "topic grow {} -p 9", "topic trim {} --before end --yes",
    "topic delete {} --yes", "topic offsets {}", "produce {}", "produce {} --dry-run",
    "consume {} -e", "consume {} -e --group g", "elect {}", "group reset g --topic {} --to end",
    "perf consume {}", "perf produce {} -n 1", "kcat -b {b} -C -e -t {}", "config show topic/{}",
    "config set topic/{} retention.ms=1d", "reassign plan {} --without 0", "topic why {}",
    "transaction hanging {}",
])
def test_a_mistyped_topic_gets_the_similar_names(
    strict: Ottla, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.tools.cli.target_topic.TOPIC_SECONDS", 0.0)
    done = strict(line.format("oders", b=strict.address), b"x\n")
    assert done.status == 1 and "similar: orders" in done.err, done
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("line", [
    "kafka-topics {} --describe --topic oders", "kafka-topics {} --delete --topic oders",
    "kafka-topics {} --alter --topic oders --partitions 9", "kafka-get-offsets {} --topic oders",
    "kafka-configs {} --describe --entity-type topics --entity-name oders",
    "kafka-configs {} --alter --topic oders --add-config retention.ms=1",
    "kafka-console-consumer {} --topic oders --timeout-ms 200",
    "kafka-log-dirs {} --describe --topic-list oders",
    "kafka-leader-election {} --election-type preferred --topic oders --partition 0",
    "kafka-transactions {} describe-producers --topic oders --partition 0",
    "kafka-transactions {} find-hanging --topic oders",
    "kafka-consumer-groups {} --reset-offsets --group g --topic oders --to-latest --dry-run",
    "kafka-consumer-groups {} --delete-offsets --group g --topic oders",
    "kafka-get-offsets {} --topic-partitions oders:0",
    "kafka-streams-application-reset {} --application-id app --input-topics oders --dry-run",
    "kafka-consumer-perf-test {} --topic oders --num-records 1",
    "kafka-delete-records {} --offset-json-file offsets.json",
    "kafka-reassign-partitions {} --generate --broker-list 0 --topics-to-move-json-file t.json",
    "kafka-reassign-partitions {} --execute --reassignment-json-file plan.json",
])
def test_kafkas_tools_add_the_similar_names_on_stderr(
    strict: Ottla, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard output and exit status stay the same as those of Kafka's tools."""
    monkeypatch.chdir(tmp_path)
    fill(tmp_path, "oders", strict.address)
    (tmp_path / "t.json").write_text('{"version": 1, "topics": [{"topic": "oders"}]}')
    done = strict(line.format(f"--bootstrap-server {strict.address}"))
    assert "similar: orders" in done.err and "similar" not in done.out, done


@pytest.mark.parametrize(("line", "status", "said"), [
    ("kcat -b {b} -L -t oders", 0, "% topic 'oders' does not exist; similar: orders, others\n"),
    ("mirror --from {b} --to {b} --prefix copy- --once --topics oders", 1,
     "no topic of the source matches --topics 'oders'; similar: orders, others\n"),
    ("mirror --from {b} --to {b} --prefix copy- --dry-run --topics orders --groups biling", 0,
     "ottla mirror: no group of the source matches --groups 'biling'; similar: billing\n"),
    ("group reset biling --topic orders --to end", 0,
     "group 'biling' does not exist yet; similar: billing\n"),
    ("kafka-consumer-groups {k} --reset-offsets --group biling --topic orders --to-latest --export",
     0, "kafka-consumer-groups: group 'biling' does not exist; similar: billing\n"),
    ("kafka-consumer-groups {k} --delete --group biling", 0, "does not exist; similar: billing\n"),
    ("kafka-streams-application-reset {k} --application-id biling --input-topics orders --dry-run",
     0, "group 'biling' does not exist; similar: billing\n"),
])
def test_mistyped_topics_and_groups_get_the_similar_names_elsewhere(
    strict: Ottla, line: str, status: int, said: str
) -> None:
    strict.ok("consume orders --group billing --exit")
    done = strict(line.format(b=strict.address, k=f"--bootstrap-server {strict.address}"))
    assert done.status == status and said in done.err and "similar" not in done.out, done


def test_a_producer_says_that_no_broker_creates_a_mistyped_topic(strict: Ottla) -> None:
    said: list[str] = []
    with ClusterClient(strict.address) as cluster:
        for topic in ("orders", "oders"):
            create_aloud(cluster, topic, said.append)
    assert said == ["topic 'oders' does not exist; similar: orders, others; the brokers create no"
                    " topics (auto.create.topics.enable): create it first, as with"
                    " ottla topic create oders"]


def test_a_tool_that_waits_for_a_mistyped_topic_says_so(strict: Ottla) -> None:
    words = ["kafka-verifiable-consumer", "--bootstrap-server", strict.address, "--topic", "oders",
             "--group-id", "g"]
    with subprocess.Popen(
        [sys.executable, "-m", "ottla.tools.command", *words], text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        process.terminate()
    assert said == "waiting for topic 'oders', which does not exist; similar: orders, others\n"


@pytest.mark.parametrize(("line", "said"), [
    ("kafka-topics {} --list --topci t", "topci is not a recognized option; similar: topic"),
    ("kafka-features {} descrbe", "invalid choice: 'descrbe'; similar: describe; see"),
    ("kafka-acls {} --add --allow-principal User:a --topic t --operation Write --operation Raed",
     "kafka-acls: --operation Raed: ResourceType TOPIC only supports operations [WRITE, CREATE, "),
    ("kafka-acls {} --add --allow-principal User:a --topic t --operation Raed",
     ", DELETE]; similar: READ; see kafka-acls --help"),
    ("kafka-features {} nothing", "invalid choice: 'nothing' (choose from "),
    ("kafka-configs {} --alter --user u --add-config consumer_byte_rat=1",
     "Set(consumer_byte_rat); similar: consumer_byte_rate"),
])
def test_kafkas_tools_add_similar_flags_and_settings(ottla: Ottla, line: str, said: str) -> None:
    done = ottla(line.format(f"--bootstrap-server {ottla.address}"))
    assert done.status == 1 and not done.out and said in done.err, done


def test_times_and_sizes_have_units() -> None:
    assert [duration_ms(text) for text in ("7", "7ms", "1.5s", "2m", "1h", "1D", "2w")] == [
        7, 7, 1500, 120_000, 3_600_000, 86_400_000, 1_209_600_000]
    assert duration_ms("5", "s") == 5000
    assert [size_bytes(text) for text in ("7", "1kB", "2MB", "64KiB", "1 MiB", "1GiB")] == [
        7, 1000, 2_000_000, 65_536, 1 << 20, 1 << 30]
    for wrong in ("", "x", "1y", "-1", "1 2"):
        with pytest.raises(WrongUsage):
            duration_ms(wrong)
        with pytest.raises(WrongUsage):
            size_bytes(wrong)
    assert number_of("retention.ms", "7d") == "604800000"
    assert number_of("log.retention.hours", "7d") == "168"
    assert number_of("segment.bytes", "64MiB") == "67108864"
    assert number_of("producer_byte_rate", "1MB") == "1000000"
    for name, value in (("retention.ms", "-1"), ("cleanup.policy", "1d"), ("x.ms", "soon")):
        assert number_of(name, value) == value
    with pytest.raises(WrongUsage, match="not a whole number"):
        number_of("log.retention.hours", "90m")


def test_overrides_take_units() -> None:
    given = ["server", "start", "--override", "log.retention.ms=1d", "--override=x.bytes=1MB",
             "--override", "log.dirs=5m", "retention.ms=1d", "--override"]
    words, typed = overrides_without_units(given)
    assert words == [
        *given[:3], "log.retention.ms=86400000", "--override=x.bytes=1000000", *given[5:]]
    assert typed == {"log.retention.ms": "1d", "x.bytes": "1MB", "log.dirs": "5m"}


@pytest.mark.parametrize(("line", "said"), [
    ("topic create u -c segment.bytes=1MB", "'1000000' is not allowed, must be a whole number"
     " (32 bits), at least 1048576; 1MB is 1,000,000, and 1MiB is 1,048,576\n"),
    ("config set topic/t segment.bytes=1MB", "; 1MB is 1,000,000, and 1MiB is 1,048,576\n"),
    ("config set topic/t segment.bytes=9GiB", "; 9GiB is 9,663,676,416; see ottla config set"
     " --help\n"),
    ("config set topic/t segment.bytes=9", "at least 1048576\n"),
    ("server start --override log.segment.bytes=1kB",
     "log.segment.bytes: '1000' is not allowed, must be a whole number (32 bits), at least 1048576"
     "; 1kB is 1,000, and 1kiB is 1,024\n"),
    ("kafka-configs --bootstrap-server {} --alter --topic t --add-config retention.ms=1d",
     "retention.ms: '1d' is not allowed, must be a whole number (64 bits), at least -1;"
     " for 1d write 86400000\n"),
    ("kafka-topics --bootstrap-server {} --create --topic u --config segment.bytes=2MB",
     "; for 2MB write 2000000\n"),
])
def test_a_refused_number_is_shown_as_it_was_typed_or_as_it_is_to_be_written(
    ottla: Ottla, line: str, said: str
) -> None:
    ottla("topic create t --if-not-exists")
    done = ottla(line.format(ottla.address))
    assert done.status != 0 and done.err.endswith(said), done


def test_settings_of_clients_take_units(ottla: Ottla) -> None:
    ottla("topic create t --if-not-exists")
    ottla.ok("produce t -X linger.ms=1s -X message.max.bytes=2MB", b"one\n")
    done = ottla("consume t -e -X session.timeout.ms=7x")
    assert done.status == 2 and "'x' is not a unit of time; known units: ms, s" in done.err, done


def test_a_file_has_numbers_and_the_error_says_which(tmp_path: Path) -> None:
    """A properties file accepts no units, because Apache Kafka could not read them."""
    file = tmp_path / "server.properties"
    file.write_text("log.retention.ms=1d\n")
    with pytest.raises(SettingsError, match=r"'1d' is not allowed.*; for 1d write 86400000$"):
        BrokerConfig.of(Sources(file))
    file.write_text("log.retention.ms=1x\n")
    with pytest.raises(SettingsError, match=r"'1x' is not allowed, .* \(64 bits\)$"):
        BrokerConfig.of(Sources(file))


def test_a_broker_is_started_with_units_and_levels_in_either_case(tmp_path: Path) -> None:
    start = ["server", "start", "--log-level", "FATAL", "--override", f"log.dirs={tmp_path}",
             "--override", "listeners=PLAINTEXT://127.0.0.1:0", "--override"]
    program = [sys.executable, "-m", "ottla.tools.command"]
    for value, status in (("7x", 2), ("1d", 0)):
        with subprocess.Popen(
            [*program, *start, f"log.retention.ms={value}"], text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None and process.stderr is not None
            assert process.stdout.readline().startswith("ottla ready" if not status else ""), value
            process.terminate()
            said = process.stderr.read()
        assert process.returncode == status, said
        assert ("'x' is not a unit of time" in said) == bool(status), said


def test_settings_and_flags_take_units(ottla: Ottla) -> None:
    ottla.ok("topic create units -c retention.ms=7d -c segment.bytes=64MiB --timeout 5s")
    shown = ottla.ok("config show topic/units")
    assert "604800000" in shown and "67108864" in shown
    ottla.ok("config set topic/units retention.ms=1h")
    assert "3600000" in ottla.ok("config show topic/units")
    assert ottla.ok("perf produce units -n 10 -s 1kB --batch-bytes 64KiB")


def test_one_spelling_for_each_concept(ottla: Ottla) -> None:
    ottla.ok("topic create spelled --partitions 1")
    ottla.ok("produce spelled", b"1\n2\n")
    here = f"--bootstrap {ottla.address}"
    assert ottla.ok(f"topic list -o name {here}") == ottla.ok("topic list -o name")
    assert ottla.ok("consume spelled -e -o jsonl").count("\n") == 2
    assert ottla.ok("consume spelled -e -o -1") == "2\n", "as kcat's"
    for offset in ("@1", "s@1", "@2020-01-31", "s@2020-01-31"):
        assert ottla.ok(f"consume spelled -e --offset {offset}") == "1\n2\n"
    assert ottla.ok("topic offsets spelled --at @1") == ottla.ok("topic offsets spelled --at 1")
    assert ottla.ok("consume spelled -e --until @1") == ""
    ottla.ok("consume spelled -G spelled -n 1 --offset beginning")
    assert '"new": 0' in ottla.ok("group reset spelled --to s@1 -o json")
    ottla.ok("config set loggers/0 root=warn")
    for word in ("warning", "WARNING", "critical", "Trace", "INFO"):
        ottla.ok(f"config set loggers/0 root={word}")


def ended(line: str, address: str) -> tuple[int, str]:
    """Runs a line in a shell; returns its exit status and what it wrote to stderr."""
    program = f"{sys.executable} -m ottla.tools.command"
    done = subprocess.run(
        ["bash", "-c", line.replace("ottla", program)], stderr=subprocess.PIPE, text=True,
        stdout=subprocess.DEVNULL, env=os.environ | {"OTTLA_BOOTSTRAP_SERVERS": address},
        timeout=60,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", ["--help", "consume --help", "log dump --help", "kcat --help",
                                   "kafka-topics --help", "topic", "pipeline --help"])
def test_help_into_a_closed_pipe_ends_without_a_traceback(ottla: Ottla, words: str) -> None:
    _, said = ended(f"ottla {words} | true; sleep 0", ottla.address)
    assert "Traceback" not in said and "Broken" not in said and "Exception" not in said


def test_a_broker_for_a_while_ends_with_a_standard_input_that_is_no_pipe(ottla: Ottla) -> None:
    status, said = ended("ottla server dev </dev/null", ottla.address)
    assert status == 0 and "With --detach-stdin, the" in said


def on_terminal(address: str, *words: str, stdin: bytes = b"") -> bytes:
    """Returns what a command prints on a terminal, where `stdin` is typed."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla.tools.command", *words], stdin=slave, stdout=slave,
        stderr=slave, env=os.environ | {"OTTLA_BOOTSTRAP_SERVERS": address, "TERM": "xterm"})
    os.close(slave)
    if stdin:
        os.write(master, stdin)
    said = b""
    try:
        while data := os.read(master, 65536):
            said += data
    except OSError:
        pass                # Linux: the other end was closed
    os.close(master)
    assert process.wait(60) == 0, said
    return said


def test_a_terminal_gets_no_control_bytes_of_records_and_names(ottla: Ottla) -> None:
    ottla.ok("topic create raw --partitions 1")
    ottla.ok("produce raw -i raw", b"red \x1b[31m bell \x07 \xc2\x9b csi \r back")
    ottla.ok(["consume", "raw", "-G", "evil-\x1b[2J", "-n", "1", "--offset", "beginning"])
    at = ["--bootstrap-server", ottla.address]
    for words in (
        ["consume", "raw", "-e"], ["consume", "raw", "-e", "-o", "jsonl"],
        ["consume", "raw", "-e", "-f", "%v\\n"],
        ["kcat", "-b", ottla.address, "-C", "-e", "-t", "raw"],
        ["kafka-console-consumer", *at, "--topic", "raw", "--partition", "0", "--offset", "0",
         "--max-messages", "1"],
        ["group", "list"], ["group", "list", "-o", "json"], ["group", "list", "-o", "name"],
        ["kafka-consumer-groups", *at, "--list"],
    ):
        said = on_terminal(ottla.address, *words).replace(b"\x1b[1m", b"").replace(b"\x1b[0m", b"")
        for control in (b"\x1b", b"\x07", b"\xc2\x9b"):
            assert control not in said, (words, said)
        assert b"\r" not in said.replace(b"\r\n", b""), words
        assert b"\\x1b[" in said or b"\\u001b[" in said, (words, said)
    assert b"\x1b[31m" in ottla.ok("consume raw -e").encode(), "a pipe gets the bytes as they are"
    ottla.ok("topic create lone --partitions 1")
    ottla.ok("produce lone -i raw", b"caf\xc3\xa9 \x9b31m")
    said = on_terminal(ottla.address, "consume", "lone", "-e")
    assert b"caf\xc3\xa9 \\x9b31m" in said, "a byte that is no UTF-8 may be a control character"


def test_a_producer_on_a_terminal_says_what_it_waits_for(ottla: Ottla) -> None:
    ottla.ok("topic create typed --partitions 1")
    said = on_terminal(ottla.address, "produce", "typed", stdin=b"one\n\x04")
    assert b"Ctrl-D" in said and b"1 record sent" in said
    asked = on_terminal(ottla.address, "kafka-console-producer", "--bootstrap-server",
                        ottla.address, "--topic", "typed", stdin=b"two\n\x04")
    assert asked.count(b">") == 2
    assert ottla.ok("consume typed -e") == "one\ntwo\n"


def test_a_terminal_gets_sizes_with_units(ottla: Ottla) -> None:
    ottla.ok("topic create sized --partitions 1")
    ottla.ok("perf produce sized -n 1000 -s 1000")
    assert b" MB" in on_terminal(ottla.address, "topic", "describe", "sized")
    assert "MB" not in ottla.ok("topic describe sized")


def test_a_terminal_gets_settings_with_units(ottla: Ottla) -> None:
    ottla.ok("topic create long -c retention.ms=7d -c segment.bytes=1GiB -c flush.messages=60000")
    ottla.ok("quota set client/c producer_byte_rate=1MB")
    shown = on_terminal(ottla.address, "config", "show", "topic/long").decode()
    assert "  604800000 (7 days)  " in shown and "  1073741824 (1 GiB)  " in shown, shown
    assert "  60000  " in shown, "neither a time nor a size"
    shown = on_terminal(ottla.address, "topic", "describe", "long").decode()
    assert "retention.ms=604800000 (7 days)" in shown and "  LONG" not in shown
    assert "1000000.0 (1 MB)" in on_terminal(ottla.address, "quota", "list").decode()
    for line in ("config show topic/long", "config show topic/long -o json", "quota list"):
        assert "(" not in ottla.ok(line)


@pytest.mark.parametrize(("name", "value", "text"), [
    ("retention.ms", "604800000", "7 days"), ("x.ms", "86400000", "1 day"), ("x.ms", "500", ""),
    ("x.ms", "180000000", "2 days 2 h"), ("x.ms", "180001000", "about 2 days 2 h"),
    ("x.hours", "168", "7 days"), ("x.hours", "1", ""), ("x.seconds", "90", "1 min 30 s"),
    ("x.ms", "-1", ""), ("x.ms", "9223372036854775807", ""), ("x.bytes", "2147483647", ""),
    ("x.bytes", "1048576", "1 MiB"), ("x.bytes", "1000000", "1 MB"), ("x.bytes", "1023", ""),
    ("x.bytes", "1048588", "about 1 MiB"), ("x.bytes", "1500001", "about 1.4 MiB"),
    ("group.max.size", "5000", ""), ("cleanup.policy", "delete", ""), ("x.bytes", "0", ""),
])
def test_a_setting_is_readable(name: str, value: str, text: str) -> None:
    assert readable(name, value) == text
