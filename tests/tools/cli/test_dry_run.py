"""Every command that changes something has `--dry-run`, and changes nothing with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.tools.admin.topics import Partition
from ottla.tools.cli.grammar import parser_of
from ottla.tools.cli.reassign import winner
from ottla.tools.commands.table import read
from tests.tools.cli.ottla_command import Ottla

READS = {
    "topic list", "topic describe", "topic offsets", "topic browse", "group list", "group describe",
    "group why", "topic why", "config show", "cluster info", "cluster apis", "cluster dirs",
    "cluster quorum",
    "cluster check", "feature list", "reassign list", "reassign plan", "transaction list",
    "transaction describe", "transaction hanging",
    "quota list", "acl list", "user list", "perf consume", "server status", "server connections",
    "server config", "completion",
}
APART = {"server dev", "cluster start", "console", "kcat"}   # servers; kcat has only its own flags


@pytest.fixture(scope="module", autouse=True)
def stock(ottla: Ottla) -> None:
    ottla.ok("topic create orders --partitions 2 --config max.message.bytes=1000")
    ottla.ok("produce orders --partition 0", b"a\nb\nc\n")
    ottla.ok("topic create compacted --config cleanup.policy=compact")
    ottla.ok("acl add User:alice read topic/orders")
    ottla.ok("consume orders -G team -o beginning -n 1 -p 0")


def state(ottla: Ottla) -> list[str]:
    lines = (
        "topic offsets orders", "topic describe orders", "topic list", "group list",
        "group describe team", "group describe team --members", "acl list", "quota list",
        "user list", "config show topic/orders", "feature list",
    )
    return [ottla(f"{line} -o json").out for line in lines]


def test_every_command_that_changes_something_has_it() -> None:
    for words, command in read("ottla").items():
        if words not in READS | APART:
            assert "--dry-run" in parser_of(command).format_help(), words
    assert {*read("ottla")} >= READS - {"topic browse"}


ASK_NO_BROKER = {
    "cluster start", "cluster restart-broker", "cluster stop-broker", "cluster accept-backup",
    "cluster create", "server stop", "server dev", "completion", "install-kafka-scripts",
}


def test_every_command_that_asks_brokers_takes_settings_of_the_client() -> None:
    for words, command in read("ottla").items():
        if words not in ASK_NO_BROKER:
            flag = "--from-config" if words == "mirror" else "--command-config"
            assert flag in parser_of(command).format_help(), words


@pytest.mark.parametrize("line", [
    "produce orders", "produce orders -p 1 -H a=b", "group reset team --to end --yes",
    "group delete team", "topic delete orders", "topic trim orders --before end",
    "topic create more", "topic grow orders -p 5", "config set topic/orders retention.ms=5",
    "config reset topic/orders max.message.bytes", "elect orders", "elect", "elect orders:1",
    "elect --unclean --yes", "perf produce orders -n 10", "feature set group.version=1",
    "quota set client/c producer_byte_rate=5", "quota delete client/c producer_byte_rate",
    "acl add User:alice write topic/orders", "acl delete User:alice",
    "user set alice --password-file /etc/hostname", "install-kafka-scripts {tmp}/bin",
])
def test_nothing_is_changed(ottla: Ottla, line: str, tmp_path: Path) -> None:
    before = state(ottla)
    done = ottla(f"{line.format(tmp=tmp_path)} --dry-run", b"x\ny\n")
    assert done.status == 0 and "would have " in done.err, done
    assert state(ottla) == before and not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("line", "stdin"), [
    ("produce order", b"x\n"), ("produce order -i jsonl", b'{"value": "x", "partition": 9}\n'),
    ("perf produce order -n 1 -s 1", b""),
])
def test_a_topic_that_would_be_created_is_named(ottla: Ottla, line: str, stdin: bytes) -> None:
    before = state(ottla)
    done = ottla(f"{line} --dry-run", stdin)
    created, sent = done.err.splitlines()
    assert done.status == 0 and sent.startswith("would have sent 1 record")
    assert created == "topic 'order' does not exist: the broker would create it; similar: orders"
    assert state(ottla) == before


def test_the_wait_for_records_that_do_not_come_is_not_measured(ottla: Ottla) -> None:
    ottla.ok("topic create few")
    ottla.ok("perf produce few -n 1000 -s 1")
    [measured] = json.loads(ottla("perf consume few -n 1001 -o json").out)
    assert measured["records"] == 1000 and measured["records_s"] > 1000


def test_what_would_be_sent_is_counted(ottla: Ottla) -> None:
    done = ottla("produce orders --dry-run", b"x\ny\n")
    assert done.err == "would have sent 2 records, 138 bytes in total before compression\n"


@pytest.mark.parametrize(("line", "stdin", "said"), [
    ("produce new -p 5", b"x\n", "new has no partition 5, only 0"),
    ("produce orders -p 2", b"x\n", "orders has no partition 2, only 0 to 1"),
    ("produce orders", b"x\n" + bytes(1000), "record 2 has 1070 bytes, but max.message.bytes"),
    ("produce orders -i jsonl", b'{"value": "x"}\nno json\n', "line 2: not JSON"),
    ("produce orders -K :", b"no key\n", "has no key delimiter ':'"),
    ("elect nothing", b"", "topic 'nothing'"),
    ("topic delete nothing", b"", "topic 'nothing' not found"),
    ("group delete nobody", b"", "group 'nobody' not found"),
    ("topic trim orders --before 9", b"", "orders-0: offset out of range: 9 is not one of the"),
    ("topic trim compacted --before 0", b"", "its cleanup.policy is 'compact', which does not"),
    ("topic trim __consumer_offsets --before 0", b"", "__consumer_offsets is an internal topic"),
    ("acl add User:a read topic/t -b localhost:1", b"", "cannot reach a broker"),
    ("user set a -b localhost:1", b"secret\n", "cannot reach a broker"),
])
def test_what_a_broker_would_refuse_is_refused(
    ottla: Ottla, line: str, stdin: bytes, said: str
) -> None:
    done = ottla(f"{line} --dry-run", stdin)
    assert done.status == 1 and said in done.err, done


@pytest.mark.parametrize(("topic", "index", "replica", "said"), [
    ("nothing", 0, 0, "nothing:0: there is no such partition"),
    ("orders", 7, 0, "orders:7: there is no such partition"),
    ("orders", 0, 77, "orders:0: broker 77 is not running"),
])
def test_a_move_that_brokers_would_refuse_is_refused(
    ottla: Ottla, tmp_path: Path, topic: str, index: int, replica: int, said: str
) -> None:
    moves = [(topic, index, replica), ("orders", 1, 0)]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [
        {"topic": name, "partition": number, "replicas": [node]} for name, number, node in moves
    ]}))
    done = ottla(f"reassign start {plan} --dry-run")
    assert done.status == 1 and said in done.err, done
    assert "refused for 1 of 2 partitions" in done.err
    assert "accepted" not in done.err       # nothing was sent


@pytest.mark.parametrize("more", ["", " --dry-run"])
def test_a_plan_with_log_directories_is_left_to_kafkas_tool(
    ottla: Ottla, tmp_path: Path, more: str
) -> None:
    plan = tmp_path / "plan.json"
    for directory, status in (("/disks/b", 1), ("any", 0)):
        plan.write_text(json.dumps({"version": 1, "partitions": [
            {"topic": "orders", "partition": 0, "replicas": [0], "log_dirs": [directory]}]}))
        done = ottla(f"reassign start {plan}{more}")
        assert done.status == status, done
        assert ("kafka-reassign-partitions --execute" in done.err) == (directory != "any")


@pytest.mark.parametrize(("leader", "isr", "offline", "preferred", "unclean"), [
    (2, [1, 2, 3], [], 1, 2),           # an unclean election changes no partition with a leader
    (-1, [1], [1], -1, None),           # the longest log decides between brokers 2 and 3
    (-1, [1], [1, 2], -1, 3),           # the in-sync replica is not running
    (-1, [1], [1, 2, 3], -1, -1),
    (2, [2], [1], 2, 2),
])
def test_an_election_is_not_won_by_a_broker_that_is_away(
    leader: int, isr: list[int], offline: list[int], preferred: int, unclean: int | None
) -> None:
    part = Partition(0, leader, 0, [1, 2, 3], isr, offline=offline)
    assert winner(part, unclean=False) == preferred
    assert winner(part, unclean=True) == unclean


def test_a_missing_topic_is_skipped_as_without_the_dry_run(ottla: Ottla) -> None:
    assert ottla("topic delete nothing --if-exists --dry-run") == (0, "", "")
    assert ottla("topic delete nothing --if-exists --yes") == (0, "", "")


def test_a_group_is_read_from_where_it_is_without_joining_it(ottla: Ottla) -> None:
    before = state(ottla)
    for _ in range(2):
        assert ottla.ok("consume orders -G team --dry-run -n 2") == "b\nc\n"
    assert state(ottla) == before
    assert ottla.ok("consume orders -G nobody -o beginning --dry-run -n 1") == "a\n"
    assert "nobody" not in ottla.ok("group list -o name").split()


def test_an_election_is_told_with_its_leaders(ottla: Ottla) -> None:
    rows = json.loads(ottla.ok("elect orders --dry-run -o json"))
    assert [(row["partition"], row["leader"] == row["elected"]) for row in rows] == [
        (0, True), (1, True)]


def test_a_topic_that_need_not_exist_is_no_error(ottla: Ottla) -> None:
    done = ottla("topic delete nothing orders --if-exists --dry-run")
    assert (done.status, done.err) == (0, "would have deleted topic orders\n")
