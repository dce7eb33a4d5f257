"""The commands of `ottla`: what they do, what they refuse, and their messages of one line."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from ottla.tools.check_directory import held
from ottla.tools.cli import mirror
from ottla.tools.cli.grammar import negative_values, parser_of
from ottla.tools.cli.output import table
from ottla.tools.cli.server import asked_broker
from ottla.tools.commands.reference import PAGE, page
from ottla.tools.commands.table import FOLDER, MARKS, read
from ottla.tools.kafka_names import common
from ottla.tools.kafka_names.grammar import UsageError, parse
from tests.broker.running import RunningBroker
from tests.tools.cli.ottla_command import EXAMPLES_APART, Ottla
from tests.tools.kafka_names.stage import Stage

EXAMPLES = [
    (example, command.words)
    for file in ("ottla", "kafka")
    for command in read(file).values()
    for example in command.examples
    if command.words not in EXAMPLES_APART
]


BEFORE = {
    "topic create": ["topic delete orders --yes"],
    "kafka-topics": ["topic delete orders --yes"],
    "quota delete": ["quota set client/reports consumer_byte_rate=1"],
    "acl delete": ["acl add User:alice read topic/orders"],
    "user delete": ["user set alice --password-file secret.txt"],
}
CHANGES = {"topic create", "kafka-topics", "topic delete", "topic trim", "group delete"}


@pytest.fixture(scope="module")
def folder(ottla: Ottla, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the examples use."""
    found = tmp_path_factory.mktemp("examples")
    (found / "orders.txt").write_text("a:1\nb:2\nc:3\n")
    (found / "plan.json").write_text(
        '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [0]}]}'
    )
    (found / "offsets.json").write_text(
        '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "offset": 1}]}'
    )
    (found / "secret.txt").write_text("secret\n")
    stock(ottla)
    stage = Stage(ottla.address)
    stage.act(["transaction", "payments", "orders"])
    return found


def stock(ottla: Ottla) -> None:
    """The topic and the group that the examples use."""
    ottla("topic delete orders --yes")
    ottla.ok("topic create orders --partitions 3")
    ottla.ok("perf produce orders --records 10000 --size 10")
    ottla("group delete billing --yes")
    ottla.ok("consume orders -G billing -n 2 -o beginning")


@pytest.mark.parametrize(("example", "words"), EXAMPLES, ids=[words for _, words in EXAMPLES])
def test_every_example_of_the_help_works(
    ottla: Ottla, broker: RunningBroker, folder: Path, monkeypatch: pytest.MonkeyPatch,
    example: str, words: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    for line in BEFORE.get(words, ()):
        ottla.ok(line)
    if not (folder / "data").exists():
        [directory] = json.loads(ottla.ok("cluster dirs -o json"))
        (folder / "data").symlink_to(directory["directory"])
    line = example.removeprefix("ottla ").replace("localhost:9092", ottla.address)
    done = ottla(line, b"a line\n" if "producer" in words else b"")
    assert done.status == 0, done
    if words in CHANGES:
        stock(ottla)


@pytest.mark.parametrize("table", ["ottla", "kafka"])
def test_every_word_about_a_command_is_in_its_help(table: str) -> None:
    """A line of the table that has only marks, such as `cluster`, is not part of the help. But a
    sentence of the help may begin with a word that is also a mark."""
    for command in read(table).values():
        assert command.marks <= MARKS and command.about.endswith("."), command.words
        assert command.about.count("`") % 2 == 0, command.words
    written = (FOLDER / f"{table}.txt").read_text(encoding="utf-8")
    shown = " ".join(command.about for command in read(table).values())
    sentences = re.findall(r"^(?![-=$:#A-Z]+ |actions |  )(\w.*)$", written, re.MULTILINE)
    assert len(sentences) > 30
    for line in sentences:
        assert line in shown or MARKS.issuperset(line.split()), line


def test_the_reference_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run make generate"


ODD = [
    {"key": "k", "value": "text é\n", "headers": [["h", "v"], ["h", None]],
     "timestamp": 1_700_000_000_123},
    {"key": {"base64": "/wA="}, "value": {"base64": "gICA"}, "headers": [["b", {"base64": "/w=="}]],
     "timestamp": 1},
    {"key": "epoch", "value": "1970", "headers": [], "timestamp": 0},
    {"key": "tombstone", "value": None, "headers": [], "timestamp": 1_700_000_000_000},
    {"key": None, "value": "", "headers": [], "timestamp": 1_700_000_000_001},
    {"key": "", "value": "empty key", "headers": [], "timestamp": 1_700_000_000_002},
    {"key": None, "value": None, "headers": [], "timestamp": 1_700_000_000_003},
]  # fmt: skip


def test_consumed_json_lines_produce_the_same_records(ottla: Ottla) -> None:
    first, second = "first", "second"
    ottla.ok(f"topic create {first} {second} --partitions 2")
    lines = "".join(json.dumps({**one, "partition": number % 2}) + "\n"
                    for number, one in enumerate(ODD))  # fmt: skip
    ottla.ok(f"produce {first} -i jsonl", lines.encode())
    consumed = ottla.ok(f"consume {first} -e --output jsonl")
    ottla.ok(f"produce {second} -i jsonl", consumed.encode())
    again = ottla.ok(f"consume {second} -e --output jsonl")

    def parts(text: str) -> list[tuple[object, ...]]:
        found = [json.loads(line) for line in text.splitlines()]
        names = ("partition", "offset", "timestamp", "key", "value", "headers")
        return sorted(tuple(map(str, (one[name] for name in names))) for one in found)

    assert parts(consumed) == parts(again)
    assert parts(again) == parts(ottla.ok(f"consume {second} -e --output jsonl"))
    assert len(parts(again)) == len(ODD)
    values = {json.dumps(json.loads(line)["value"]) for line in again.splitlines()}
    assert values == {json.dumps(one["value"]) for one in ODD}


def test_keys_choose_the_partitions_of_javas_clients_and_a_group_continues(ottla: Ottla) -> None:
    ottla.ok("topic create keyed-one keyed-two --partitions 5")
    lines = "".join(f"key{number}:{number}\n" for number in range(50)).encode()
    ottla.ok("produce keyed-one -K :", lines)
    with KafkaProducer(bootstrap_servers=ottla.address) as producer:    # with Java's partitioner
        for number in range(50):
            producer.send("keyed-two", b"%d" % number, b"key%d" % number)
    one, two = (sorted(ottla.ok(["consume", topic, "-e", "-f", "%p %k\n"]).splitlines())
                for topic in ("keyed-one", "keyed-two"))  # fmt: skip
    assert one == two and len({line[0] for line in one}) > 1
    seen = ottla.ok("consume keyed-one -G both -o beginning -n 20").split()
    seen += ottla.ok("consume keyed-one -G both -n 30").split()
    assert sorted(map(int, seen)) == [*range(50)]


def test_a_property_file_may_be_for_both_kinds_of_clients(
    ottla: Ottla, tmp_path: Path
) -> None:
    (tmp_path / "both").write_text(
        "acks=all\nlinger.ms=1\nmax.in.flight.requests.per.connection=1\n"
        "fetch.min.bytes=1\nauto.offset.reset=earliest\nclient.id=both\n"
    )
    topic, more = "both", f"--command-config {tmp_path / 'both'}"
    ottla.ok(f"topic create {topic} {more}")
    ottla.ok(f"produce {topic} {more}", b"1\n")
    assert ottla.ok(f"consume {topic} -e {more}") == "1\n"
    at = f"--bootstrap-server {ottla.address} --topic {topic} {more} --max-messages 1"
    ottla.ok(f"kafka-verifiable-producer {at}")
    assert '"count":1' in ottla.ok(f"kafka-verifiable-consumer {at} --group-id {topic}")


def test_a_reader_ends_after_the_marker_of_a_transaction(ottla: Ottla) -> None:
    ottla.ok("topic create marked --partitions 1")
    producer = Producer({"bootstrap.servers": ottla.address, "transactional.id": "marked"})
    producer.init_transactions(30)
    for finish in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("marked", finish.__name__)
        producer.flush(30)
        finish(30)
    done = ottla("consume marked -e --committed")
    assert done == (0, "commit_transaction\n", ""), "no transaction is open"


def test_a_reader_says_at_the_end_what_an_open_transaction_withholds(ottla: Ottla) -> None:
    ottla.ok("topic create withheld --partitions 2")
    ottla.ok("produce withheld --partition 0", b"1\n")
    producer = Producer({"bootstrap.servers": ottla.address, "transactional.id": "withheld"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in ("2", "3"):
        producer.produce("withheld", value, partition=0)
    producer.flush(30)
    said = ("2 offsets not read because of an open transaction: withheld-0 from offset 1;"
            " to see all transactions: ottla transaction list\n")
    for more in ("", "--group withheld-group", "--offset -1"):
        assert ottla(f"consume withheld -e --committed {more}") == (0, "1\n", said), more
    one = said.replace("2 offsets", "1 offset").replace("from offset 1", "from offset 2")
    assert ottla("consume withheld -e --committed --offset 2") == (0, "", one)
    for others, printed in (
        ("--partition 1", ""), ("--offset end", ""), ("--until @2001-01-01 --partition 0", ""),
        ("-n 1", "1\n"),
    ):
        done = ottla(f"consume withheld -e --committed {others}")
        assert done == (0, printed, ""), f"{others}: this reader would not get the records anyway"
    assert ottla("consume withheld -e").err == ""
    ottla.ok("group reset withheld-end --to end --topic withheld --yes")
    for more in ("", "--partition 0", "--dry-run"):
        done = ottla(f"consume withheld -e --committed --group withheld-end {more}")
        assert done == (0, "", ""), f"{more}: the group begins after the open transaction"
    producer.abort_transaction(30)


def test_offsets_are_understood_as_kcat_has_them(ottla: Ottla) -> None:
    ottla.ok("topic create numbers --partitions 1")
    ottla.ok("produce numbers", b"0\n1\n2\n3\n4\n")
    for offset, expected in (
        ("beginning", "01234"), ("3", "34"), ("-2", "34"), ("end", ""), ("s@1", "01234"),
        ("@2040-01-01", ""), ("99", ""),
    ):  # fmt: skip
        printed = ottla.ok(["consume", "numbers", "-e", "--offset", offset, "-f", "%v"])
        assert printed == expected, offset
    assert ottla.ok("consume numbers -e -n 2 -f '%o:%S '") == "0:1 1:1 "


def test_a_group_continues_after_what_it_was_given(ottla: Ottla) -> None:
    ottla.ok("topic create work --partitions 1")
    ottla.ok("produce work", b"0\n1\n2\n3\n")
    assert ottla.ok("consume work -G team -n 3").split() == ["0", "1", "2"]
    [row] = json.loads(ottla.ok("group describe team -o json"))
    assert (row["offset"], row["lag"]) == (3, 1)
    assert "total lag 1" in ottla.ok("group describe team")
    assert ottla.ok("consume work -G team -n 1").split() == ["3"]
    ottla.ok("group reset team --to -3")
    assert json.loads(ottla.ok("group describe team -o json"))[0]["offset"] == 4, "without --yes"
    ottla.ok("group reset team --to -3 --yes")
    assert json.loads(ottla.ok("group describe team -o json"))[0]["offset"] == 1
    for to in "2099", "+2098":
        beyond = ottla(f"group reset team --to {to}")
        assert beyond.status == 0 and (
            "New offset (2099) is higher than latest offset for topic partition work-0. Value will"
            " be set to 4\n") in beyond.err


def test_a_dry_run_changes_nothing_and_what_cannot_be_undone_needs_a_yes(ottla: Ottla) -> None:
    ottla.ok("topic create kept")
    ottla.ok("produce kept", b"1\n")
    ottla.ok("group reset g --topic kept --to beginning --yes")
    before = ottla.ok("topic describe kept -o json")
    for line in ("topic delete kept --dry-run", "topic trim kept --before end --dry-run",
                 "topic grow kept -p 4 --dry-run", "config set topic/kept retention.ms=1 --dry-run",
                 "topic create another --dry-run"):  # fmt: skip
        done = ottla(line)
        assert done.status == 0 and "would have" in done.err, done
    for line in ("topic delete kept", "topic trim kept --before end", "group delete g"):
        done = ottla(line)
        assert done.status == 1 and "--yes" in done.err
    assert ottla.ok("topic describe kept -o json") == before
    assert "another" not in ottla.ok("topic list -o name").split()


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("topic create", 2, "required: TOPIC"),
        ("topic describe nothing", 1, "topic 'nothing'"),
        ("topic create 'a b'", 2, "a b"),
        ("topic list '('", 2, "not a regular expression"),
        ("topic nonsense", 2, "known commands: create"),
        ("topic lst", 2, "; similar: list; known commands: create"),
        ("nonsense", 2, "ottla --help"),
        ("consume nothing -e", 1, "topic 'nothing'"),
        ("consume numbers -o sideways", 2, "-o sideways"),
        ("consume numbers -f %Q", 2, "%Q"),
        ("produce numbers -i jsonl", 1, "line 1: not JSON"),
        ("produce numbers -K :", 1, "line 1 has no key delimiter"),
        ("produce numbers -X linger.ms=soon", 2, "linger.ms=soon"),
        ("group describe nobody", 1, "nobody"),
        ("config show orders", 2, "topic/NAME"),
        ("config set topic/numbers nonsense=1", 1, "nonsense"),
        ("acl add alice read topic/t", 2, "User:NAME"),
        ("acl add User:alice juggle topic/t", 2, "juggle"),
        ("quota set alice x=1", 2, "user/NAME"),
        ("topic list --command-config /nowhere", 1, "/nowhere"),
        ("mirror --topics x", 2, "--from and --to"),
        ("feature set group.version=99", 1, "group.version"),
    ],
)
def test_what_is_refused_is_said_in_one_line(
    ottla: Ottla, line: str, status: int, said: str
) -> None:
    done = ottla(line, b"no json, no separator\n")
    assert done.status == status
    assert said in done.err and len(done.err.splitlines()) == 1, done.err
    assert done.out == ""


@pytest.mark.parametrize("setting", ["nonsense=1", "cleanup.policy=foo", "retention.ms=-7"])
def test_a_setting_that_the_broker_refuses_ends_as_the_help_says(
    ottla: Ottla, setting: str
) -> None:
    """The status is 1, not 2, because only the broker knows which settings its version accepts."""
    ottla.ok("topic create refusing --if-not-exists")
    done = ottla(f"config set topic/refusing {setting}")
    assert done.status == 1 and setting.partition("=")[0] in done.err
    told = " ".join(ottla.ok("config set --help").split())
    assert "if it refuses a setting, the status is 1" in told


def test_an_unreachable_broker_is_one_line(ottla: Ottla) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        for line in (
            f"topic list -b {address} --timeout 0.2", f"server status -b {address}",
            f"topic list -b {address}",
        ):
            done = ottla(line)
            assert done.status == 1
            assert "cannot reach a broker at" in done.err and len(done.err.splitlines()) == 1
            assert done.err.endswith(
                f"{address}: connection refused; is a broker running there? `ottla server start` "
                "starts one; give another address with -b\n")


def test_a_kafka_tool_says_only_that_a_broker_is_unreachable(
    ottla: Ottla, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "SECONDS", 0.2)
    done = ottla("kafka-topics --list --bootstrap-server 127.0.0.1:1")
    assert done.err == "kafka-topics: cannot reach a broker at 127.0.0.1:1: connection refused\n"


def test_a_mirror_names_its_own_flags_for_an_unreachable_broker(
    ottla: Ottla, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "CONNECT_SECONDS", 0.2)
    done = ottla("mirror --from 127.0.0.1:1 --to 127.0.0.1:2 --once")
    assert done.status == 1 and done.err.endswith(
        "`ottla server start` starts one; give another address with --from and --to\n")


def test_a_refused_http_port_is_told_without_an_error_number(ottla: Ottla) -> None:
    done = ottla("server connections --url http://127.0.0.1:1")
    assert done.status == 1, done
    assert "127.0.0.1:1: connection refused. Is this the address" in done.err, done


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "ottla.tools.command", *words]


def test_help_and_version_import_no_broker_and_no_client() -> None:
    script = (
        "import sys; from ottla.tools.command import main\n"
        "for words in (['--version'], ['--help'], ['topic', '--help'], ['consume', '--help'],\n"
        "              ['kafka-topics', '--help']):\n"
        "    try: main(words)\n"
        "    except SystemExit: pass\n"
        "slow = ('confluent_kafka', 'asyncio', 'ssl', 'socket', 'ottla.broker',\n"
        "        'ottla.wire.messages')\n"
        "print([name for name in slow if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr == "[]\n"


def test_administration_imports_no_broker_and_no_librdkafka(ottla: Ottla) -> None:
    script = (
        "import sys; from ottla.tools.command import main\n"
        "main(['topic', 'list'])\n"
        "slow = ('confluent_kafka', 'asyncio', 'ssl', 'ottla.broker.service', 'rich')\n"
        "print([name for name in slow if name in sys.modules], file=sys.stderr)"
    )
    environment = os.environ | {"OTTLA_BOOTSTRAP_SERVERS": ottla.address}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )
    assert done.stderr == "[]\n"


def test_a_reader_that_has_seen_enough_ends_it_quietly(ottla: Ottla) -> None:
    ottla.ok("topic create long --partitions 1")
    ottla.ok("perf produce long --records 5000 --size 100")
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{' '.join(command('consume', 'long', '-e'))} | head -1"],
        capture_output=True, text=True, env=os.environ | {"OTTLA_BOOTSTRAP_SERVERS": ottla.address},
    )  # fmt: skip
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


def test_the_scripts_run_under_kafkas_names(ottla: Ottla, tmp_path: Path) -> None:
    ottla.ok(["install-kafka-scripts", str(tmp_path / "bin")])
    for name in ("kafka-topics", "kafka-topics.sh"):
        done = subprocess.run(
            [tmp_path / "bin" / name, "--bootstrap-server", ottla.address, "--list"],
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0 and done.stderr == ""
    refused = subprocess.run(
        [tmp_path / "bin" / "kafka-share-groups.sh", "--list"], capture_output=True, text=True
    )
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)
    (tmp_path / "bin" / "kafka-acls").write_text("#!/bin/sh\n")
    assert ottla(["install-kafka-scripts", str(tmp_path / "bin")]).status == 1, "not ours"


def test_a_broker_for_a_while_is_gone_with_its_data() -> None:
    process = subprocess.Popen(
        command("server", "dev", "--topic", "orders:3"), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    address = process.stdout.readline().strip().removeprefix("BOOTSTRAP_SERVERS=")
    ottla = Ottla(address)
    assert ottla.ok("topic list -o jsonl").count("orders") == 1
    [directory] = json.loads(ottla.ok("cluster dirs -o json"))
    assert Path(directory["directory"]).is_dir()
    process.stdin.close()
    assert process.wait(30) == 0
    process.stdout.close()
    assert not Path(directory["directory"]).exists()


def test_server_stop_ends_the_broker_of_a_directory(tmp_path: Path, ottla: Ottla) -> None:
    data = tmp_path / "data"
    process = subprocess.Popen(
        command("server", "start", "--log-level", "error", "--override",
                "listeners=PLAINTEXT://127.0.0.1:0", "--override", f"log.dirs={data}"),
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    while "ottla ready" not in (line := process.stdout.readline()):
        assert line, "it ended"
    status = ["server", "status", "--data-dir", str(data)]
    [said] = json.loads(ottla.ok([*status, "-o", "json"]))
    assert said == {"directory": str(data), "process": process.pid}
    ottla.ok(["server", "stop", "--data-dir", str(data)])
    assert ottla(status).err == f"ottla server status: no broker uses {data}\n"
    assert process.wait(30) == 0
    process.stdout.close()
    done = ottla(["server", "stop", "--data-dir", str(data)])
    assert done.status == 1 and "no broker uses" in done.err
    for verb in ("stop", "status"):
        done = ottla(["server", verb, "--data-dir", f"{data}s"])
        assert done.status == 1 and done.err == (
            f"ottla server {verb}: no broker uses {data}s: there is no such directory; "
            f"similar: {data}\n")
        done = ottla(["server", verb, "--data-dir", f"{data}/meta.properties"])
        assert done.status == 1 and done.err == (
            f"ottla server {verb}: no broker uses {data}/meta.properties: it is not a directory\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(ottla: Ottla, shell: str, tmp_path: Path) -> None:
    script = ottla.ok(["completion", shell])
    for name in read("ottla"):
        assert name.split()[-1] in script
    if shell == "bash":
        (tmp_path / "completion").write_text(script)
        asked = (
            f"source {tmp_path}/completion; COMP_WORDS=(ottla topic cr); COMP_CWORD=2; _ottla; "
            'echo "${COMPREPLY[@]}"; COMP_WORDS=(ottla topic create --par); COMP_CWORD=3; _ottla; '
            'echo "${COMPREPLY[@]}"'
        )
        done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True)
        assert done.stdout.split() == ["create", "--partitions"], done.stderr


def test_tables_have_no_colours_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    table(("name", "count"), [{"name": "a", "count": 5}, {"name": "longer", "count": None}])
    assert capsys.readouterr().out == "NAME    COUNT\na           5\nlonger      -\n"


def test_headings_are_bold_on_a_terminal_unless_no_color_is_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    for value, escapes in ((None, 2), ("1", 0)):
        if value is not None:
            monkeypatch.setenv("NO_COLOR", value)
        else:
            monkeypatch.delenv("NO_COLOR", raising=False)
        table(("name",), [{"name": "a"}])
        assert capsys.readouterr().out.count("\x1b[") == escapes


def test_every_command_of_the_comparison_is_one_that_exists() -> None:
    text = (PAGE.parent / "three_ways.md").read_text(encoding="utf-8")
    quoted = re.findall(r"`([^`]+)`", text)
    lines = [line for line in quoted if line.startswith(("ottla ", "kafka-"))]
    nouns, tools = read("ottla"), read("kafka")
    checked = 0
    for line in lines:
        words = shlex.split(line)
        if "|" in words or "…" in words or words[1] in ("install-kafka-scripts", "kcat"):
            continue                    # kcat's options are in tests/tools/kcat
        if words[0] == "ottla":
            noun = next(one for one in (" ".join(words[1:3]), words[1]) if one in nouns)
            given = words[1 + len(noun.split()) :]
            parser_of(nouns[noun]).parse_args(negative_values(nouns[noun], given))
        else:
            parse(tools[words[0]], words[1:])
        checked += 1
    assert checked > 60


def test_a_word_after_a_flag_that_needs_no_number_is_ignored_as_by_kafkas_tools() -> None:
    perf = read("kafka")["kafka-consumer-perf-test"]
    options = parse(perf, ["--timeout", "x", "--num-records", "5", "--topic", "t"])
    assert options.ignored == ["x"] and options.number("timeout", 10_000) == 10_000
    assert options.number("num-records", 0) == 5 and options.one("topic") == "t"
    assert parse(perf, ["--timeout", "-1"]).number("timeout", 10_000) == -1
    with pytest.raises(UsageError, match="Cannot parse argument 'x' of option timeout"):
        parse(perf, ["--timeout=x"]).check_numbers()


def test_a_broker_for_a_while_ends_by_sigterm_too() -> None:
    process = subprocess.Popen(
        command("server", "dev", "--detach-stdin"), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    address = process.stdout.readline().strip().removeprefix("BOOTSTRAP_SERVERS=")
    process.terminate()
    assert process.wait(30) == 0
    process.stdout.close()
    assert Ottla(address)("topic list --timeout 0.1").status == 1


def test_a_broker_for_a_while_that_is_killed_is_no_success() -> None:
    process = subprocess.Popen(
        command("server", "dev", "--detach-stdin"), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline()
    [broker] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(broker), signal.SIGKILL)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert said.endswith("ottla server dev: the broker ended by itself, with status -9\n")


def test_what_a_deserializer_cannot_read_is_said_in_one_line(ottla: Ottla) -> None:
    ottla.ok("topic create texts --partitions 1")
    ottla.ok("produce texts", b"no number\n12345678\n")
    words = [
        "kafka-console-consumer",
        "--bootstrap-server",
        ottla.address,
        "--topic",
        "texts",
        "--from-beginning",
        "--timeout-ms",
        "500",
        "--value-deserializer",
        "LongDeserializer",
    ]
    done = ottla(words)
    assert done.status == 1
    assert "texts-0: the record at offset 0 cannot be deserialized" in done.err
    assert ottla([*words, "--skip-message-on-error"]).out.split() == ["3544952156018063160"]


def test_ctrl_c_ends_a_command_with_130_and_no_traceback(ottla: Ottla) -> None:
    for words in (
        ("consume", "long", "-f", "%o\\n"),
        (
            "mirror",
            "--from",
            ottla.address,
            "--to",
            ottla.address,
            "--topics",
            "long",
            "--prefix",
            "copy.",
            "--report",
            "0.1",
        ),
    ):
        ottla("topic create long --partitions 1 --if-not-exists")
        ottla.ok("perf produce long --records 20000 --size 100")
        process = subprocess.Popen(
            command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"OTTLA_BOOTSTRAP_SERVERS": ottla.address},
        )  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        assert (process.stderr if words[0] == "mirror" else process.stdout).readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 130 and "Traceback" not in said, said


def test_a_stop_says_that_it_stops_a_whole_cluster(ottla: Ottla, tmp_path: Path) -> None:
    """Broker 4 of an earlier start does not run, so it is not counted."""
    homes = [tmp_path, *(tmp_path / f"broker-{number}" for number in (1, 2, 3, 4))]
    for home in homes[1:]:
        home.with_suffix(".log").touch()
        home.mkdir()
    (tmp_path / "zookeeper").mkdir()
    with ExitStack() as locks:
        for home in homes[:-1]:
            (home / ".lock").touch()
            locks.enter_context(held(str(home)))
        done = ottla(f"server stop --dry-run --data-dir {tmp_path}")
    assert done.status == 0, done
    assert f"process {os.getpid()}: a cluster of 3 brokers and its ZooKeeper" in done.err, done


@pytest.mark.parametrize(("address", "found"), [
    (("127.0.0.1", 9093), 2), (("localhost", 9093), 2), (("proxy", 9999), 1),
])
def test_the_settings_are_those_of_the_broker_that_was_named(
    address: tuple[str, int], found: int
) -> None:
    """`ottla server config -b localhost:9093` showed the settings of broker 1."""
    assert asked_broker(address, {1: ("127.0.0.1", 9092), 2: ("127.0.0.1", 9093)}) == found
    same = {1: ("a", 9093), 2: ("127.0.0.1", 9093)}
    assert asked_broker(address, same) == (2 if address[0] == "127.0.0.1" else 1)
