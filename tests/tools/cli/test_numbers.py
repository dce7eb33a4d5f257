"""A number that does not fit its field in a request is refused with one line. The line names the
option or the field of the file, and never reports an unexpected error."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.client.cluster import ClusterClient
from ottla.tools.cli.grammar import VALUES, common_flags
from ottla.tools.kafka_names import grammar
from tests.tools.cli.ottla_command import Ottla
from tests.tools.command_lines import COMMANDS, REMOTE, fill, line_of

OF_NUMBERS = {*VALUES, *grammar.NUMBERS, "OFFSET", "TIME", "MINUTES"}
NO_FIELD_HOLDS = (2**63, -(2**63) - 1)
OF_FIELDS = {"N", "COUNT", "REPLICAS", "BROKER"}
LONG = {
    "--num-records", "--num-headers", "--record-size", "--record-key-size", "--messages",
    "--record-header-size", "--record-header-key-size", "--max-messages", "--throughput",
}
"""Flags that say how much a command sends, reads or waits for: a large number would take hours."""
LONG_TOOLS = {"kafka-console-consumer", "kafka-console-producer", "kafka-verifiable-producer"}
"""Kafka's tools that take long: one waits until a partition exists, the others need half a second
to close a producer."""


def words_with(number: int, address: str) -> list[list[str]]:
    """Returns every command's example once for each flag that takes a number, with this number."""
    found = []
    for words in REMOTE:
        command, is_ottlas = COMMANDS[words], not words.startswith("kafka-")
        for flag in [*command.flags, *(common_flags(command) if is_ottlas else [])]:
            name = flag.names[0]
            quick = flag.metavar in OF_FIELDS and name not in LONG and words not in LONG_TOOLS
            if not flag.positional and (
                quick or (flag.metavar in OF_NUMBERS and number in NO_FIELD_HOLDS)
            ):
                found.append([*line_of(words, address), f"{name}={number}"])
    return found


@pytest.mark.parametrize("number", [*NO_FIELD_HOLDS, 2**31, 70_000])
def test_no_number_in_a_command_line_is_an_unexpected_error(
    ottla: Ottla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.chdir(tmp_path)
    ottla("topic create orders --if-not-exists")
    ottla("produce orders", b"one\n")
    fill(tmp_path, "orders", ottla.address)
    for words in words_with(number, ottla.address):
        done = ottla(words, b"a:1\n")
        assert "unexpected" not in done.err and " in version " not in done.err, (words, done)
        if words[0].startswith("kafka-"):
            assert done.status in (0, 1), (words, done)
        elif number in NO_FIELD_HOLDS:
            assert done.status == 2 and len(done.err.splitlines()) == 1, (words, done)
        else:
            assert done.status in (0, 1, 2), (words, done)


@pytest.mark.parametrize(("line", "said"), [
    ("topic list", "ottla topic list: unexpected OverflowError: a bug (OTTLA_DEBUG=1 shows where)"),
    ("kafka-topics --list --bootstrap-server a:1", "unexpected OverflowError: a bug (OTTLA_DEBUG="),
    ("kcat -b a:1 -L", ""),
])
def test_an_overflow_that_is_a_bug_is_not_a_wrong_number(
    monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    def overflows(_: ClusterClient) -> None:
        raise OverflowError("a bug")

    monkeypatch.setattr(ClusterClient, "any", overflows)
    if said:
        done = Ottla("a:1")(line)
        assert done.status == 1 and said in done.err, done
    monkeypatch.setenv("OTTLA_DEBUG", "1")
    with pytest.raises(OverflowError):
        Ottla("a:1")(line)


KAFKA = "--bootstrap-server {b}"
TO = "from -2147483648 to 2147483647"
RESET = f"kafka-consumer-groups {KAFKA} --reset-offsets --group g --dry-run"
ABORT = f"kafka-transactions {KAFKA} abort --topic orders --partition 0"
PLAN = """{{"partitions": [
    {{"topic": "orders", "partition": {partition}, "replicas": [{replicas}], "offset": {offset}}}
]}}"""
N = 99_999_999_999_999_999_999


@pytest.mark.parametrize(("line", "status", "said"), [
    (f"log dump --max-bytes {'9' * 5000} x", 2, "is not a number of bytes from 1 to 2147483647;"),
    (f"feature set group.version={N}", 2, "expected NAME=LEVEL, with a level from 0 to 32767; see"),
    ("feature set group.version=32768", 2, "'group.version=32768': expected NAME=LEVEL, with a "),
    ("topic create t -r 70000", 2, "argument --replication-factor/-r: '70000': expected a whole"),
    (f"elect orders:{N}", 2, f"'orders:{N}': expected TOPIC, or TOPIC:0 for one partition; see"),
    (f"group reset g --topic orders:{N} --to end", 2, "expected TOPIC, or TOPIC:0,1 for some"),
    (f"config set broker/{N} a=1", 2, "expected a broker's number after broker/; see"),
    (f"quota set user/a producer_byte_rate={N}", 2, "expected a number up to 9223372036854775807"),
    ("reassign start partition.json", 2, f"partition.json: partition {N}: expected a whole number"
     " from -2147483648 to 2147483647; see ottla reassign start --help\n"),
    ("reassign cancel replicas.json", 2, f"replicas.json: replicas {N}: expected a whole number"),
    (f"kafka-reassign-partitions {KAFKA} --execute --reassignment-json-file replicas.json", 1,
     f"kafka-reassign-partitions: replicas.json: replicas {N}: expected a whole number from"),
    (f"kafka-reassign-partitions {KAFKA} --generate --topics-to-move-json-file topics.json"
     f" --broker-list {N}", 1, f"broker list '{N}': expected ids"),
    (f"kafka-delete-records {KAFKA} --offset-json-file partition.json", 1,
     f"kafka-delete-records: partition.json: partition {N}: expected a whole number from"),
    (f"kafka-delete-records {KAFKA} --offset-json-file offset.json", 1,
     f"offset.json: offset {N}: expected a whole number from -9223372036854775808 to "),
    (f"kafka-leader-election {KAFKA} --election-type preferred --path-to-json-file partition.json",
     1, f"partition.json: partition {N}: expected a whole number"),
    (f"kafka-features {KAFKA} upgrade --feature group.version={N}", 1,
     f"Can't parse feature=level string group.version={N}: unable to parse {N} as a short."),
    (f"kafka-features {KAFKA} feature-dependencies --feature group.version={'9' * 5000}", 1,
     "is not defined for group.version"),
    (f"kafka-topics {KAFKA} --create --topic u --replica-assignment {N}", 1,
     f'For input string: "{N}"'),
    (f"{RESET} --topic orders:{N} --to-latest", 1, f"kafka-consumer-groups: Invalid partition '{N}'"
     f" specified in topic arg 'orders:{N}': expected TOPIC:0,1 with partitions from 0 to 214748"),
    (f"{RESET} --topic orders --by-duration P{N}D", 0, "cannot be parsed to a Duration"),
    (f"{RESET} --from-file rows.csv", 0, "rows.csv: expected lines [GROUP,]TOPIC,PARTITION,OFFSET"),
    (f"kafka-consumer-groups {KAFKA} --delete-offsets --group g --topic orders:x", 1,
     "Invalid partition 'x' specified in topic arg 'orders:x': expected TOPIC:0,1 with"),
    (f"kafka-get-offsets {KAFKA} --topic-partitions orders:{N}", 1, "Invalid rule specification"),
    (f"kafka-get-offsets {KAFKA} --topic-partitions orders:{'9' * 5000}", 1,
     "99 is not between -2147483648 and 2147483647"),
    (f"{ABORT} --producer-id 1 --producer-epoch 32768 --coordinator-epoch 1", 1,
     "Cannot parse argument '32768' of option producer-epoch"),
    (f"kafka-cluster unregister {KAFKA} --id 2147483648", 1, "of option id; see kafka-cluster"),
    (f"kafka-configs {KAFKA} --alter --user u --add-config"
     f" SCRAM-SHA-256=[iterations={N},password=x]", 1,
     f"SCRAM-SHA-256: iterations={N}: expected a number"),
    (f"kafka-configs {KAFKA} --describe --broker {N}", 1, "must be a valid integer broker id"),
    (f"kafka-topics {KAFKA} --list --command-config client.properties", 1,
     f"request.timeout.ms={N}: expected a whole number, 2147483647 or less"),
    (f"kafka-producer-perf-test {KAFKA} --topic orders --num-records 1 --record-size 1 --throughput"
     f" 1 --command-property batch.size={N}", 1, f"batch.size={N}: expected a whole number"),
    (f"kcat -b {{b}} -C -e -t orders -p -{N}", 1, f"-p -{N}: expected a number from -2147483647"),
])
def test_a_number_beyond_its_field_is_refused_by_the_name_of_option_or_field(
    ottla: Ottla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, status: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ottla("topic create orders --if-not-exists")
    for wrong in ("partition", "replicas", "offset"):
        numbers = {"partition": 0, "replicas": 0, "offset": 0, wrong: N}
        Path(f"{wrong}.json").write_text(PLAN.format(**numbers))
    Path("topics.json").write_text('{"topics": [{"topic": "orders"}]}')
    Path("rows.csv").write_text(f"orders,{N},1\n")
    Path("client.properties").write_text(f"request.timeout.ms={N}\n")
    done = ottla(line.format(b=ottla.address))
    assert done.status == status and said in done.err, done
    assert "unexpected" not in done.err
