"""Browsing a topic on a terminal: every key does what the screen says."""

from __future__ import annotations

import json
import os
import re
import signal
import termios
from pathlib import Path

import pytest
from kafka import KafkaProducer

from tests.broker.running import RunningBroker
from tests.tools.browse.screens import Screen
from tests.tools.cli.ottla_command import Ottla

DOWN, UP, RIGHT, LEFT = "\x1b[B", "\x1b[A", "\x1b[C", "\x1b[D"
PAGE_UP, PAGE_DOWN, HOME, END = "\x1b[5~", "\x1b[6~", "\x1b[H", "\x1b[F"
COUNT = 1000
BEGUN = 1_700_000_000_000
ROWS = 9
"""Rows of a screen of twelve lines."""


@pytest.fixture(scope="module")
def numbers(ottla: Ottla) -> str:
    """A topic of one partition: record N has the key kN, the value vN, and the time BEGUN + N s."""
    ottla.ok("topic create numbers --partitions 1")
    lines = [
        json.dumps({"key": f"k{n}", "value": f"v{n}", "timestamp": BEGUN + n * 1000})
        for n in range(COUNT)
    ]
    ottla.ok("produce numbers -i jsonl", "\n".join(lines).encode())
    return "numbers"


def offsets(screen: Screen) -> list[int]:
    """The offsets of the rows on the screen."""
    found = [re.match(r" +(\d+)  (?:\d{4}-|-)", line) for line in screen.lines]
    return [int(one[1]) for one in found if one]


def test_pages_go_forth_and_back_without_a_gap(ottla: Ottla, numbers: str) -> None:
    with Screen(["topic", "browse", numbers], ottla.address) as screen:
        screen.wait(r"numbers-0   offsets 0 to 999")
        assert offsets(screen) == list(range(ROWS))
        assert "k0" in screen.chosen and "v0" in screen.chosen
        assert "2023-11-14 22:13:20.000" in screen.chosen
        screen.press(PAGE_DOWN)
        screen.wait(r"v17\b")
        assert offsets(screen) == list(range(ROWS, 2 * ROWS))
        screen.press(UP)
        screen.wait(r"v8\b", chosen=True)
        screen.press(PAGE_UP)
        screen.wait(r"v0\b")
        assert offsets(screen) == list(range(ROWS))
        screen.press(END)
        screen.wait(r"v999\b", chosen=True)
        assert offsets(screen) == list(range(COUNT - ROWS, COUNT))
        screen.press(DOWN + PAGE_DOWN)  # no effect: this is the last record
        screen.press(PAGE_UP)
        screen.wait(r"v990\b", chosen=True)
        screen.press(HOME + DOWN * 2)
        screen.wait(r"v2\b", chosen=True)
        screen.press(UP * 3)
        screen.wait(r"v0\b", chosen=True)
        screen.press("q")
        assert screen.end() == 0


def test_it_goes_to_offsets_and_times(ottla: Ottla, numbers: str) -> None:
    with Screen(["topic", "browse", numbers, "--offset", "-1"], ottla.address) as screen:
        screen.wait(r"v999\b", chosen=True)
        for keys, expected in (
            ("o500\r", r"v500\b"),
            ("o-10\r", r"v990\b"),
            ("obeginning\r", r"v0\b"),
            ("t2023-11-14T22:14:20\r", r"v60\b"),
            (f"t{BEGUN + 70_500}\r", r"v71\b"),
            ("oend\r", r"v999\b"),
            ("o1\x7f2\r", r"v2\b"),  # backspace
            ("t2040-01-01\r", r"v999\b"),
        ):
            screen.press(keys)
            screen.wait(expected, chosen=True)
        screen.press("osideways\r")
        screen.wait("offset sideways: expected beginning, end, N, -N")
        screen.press("tsoon\r")
        screen.wait("'soon' is not a time")
        screen.press("o5\x1b")
        screen.wait(r"↑ ↓ PgUp PgDn")
        screen.press("q")
        assert screen.end() == 0


def test_a_search_goes_on_from_where_it_found_something(ottla: Ottla, numbers: str) -> None:
    ottla.ok("produce numbers -H place=v77-header", b"a header\n")
    with Screen(["topic", "browse", numbers], ottla.address) as screen:
        screen.wait("offsets 0 to 1000")
        screen.press("/v77\r")
        screen.wait(r"v77\b", chosen=True)
        screen.wait("'v77' found at offset 77")
        screen.press("n")
        screen.wait(r"v770\b", chosen=True)
        screen.press("o900\rn")
        screen.wait("a header", chosen=True)
        screen.press("n")
        screen.wait("'v77' does not occur from here to the end")
        screen.press("q")
        assert screen.end() == 0


def test_topics_and_partitions_are_chosen_from_lists(ottla: Ottla) -> None:
    ottla.ok("topic create aaa --partitions 3")
    ottla.ok("produce aaa -p 1", b"in one\n")
    ottla.ok("produce aaa -p 2", b"in two\n")
    with Screen(["topic", "browse"], ottla.address) as screen:
        screen.wait(r"topics")
        screen.wait(r"3  aaa", chosen=True)
        screen.press("\r")
        screen.wait(r"PARTITION +FIRST +NEXT")
        screen.press(DOWN + "\r")
        screen.wait("aaa-1 .*\n.*\n.*in one")
        screen.press(RIGHT)
        screen.wait("aaa-2 .*\n.*\n.*in two")
        screen.press(RIGHT)
        screen.wait("this is the last partition")
        screen.press("p0\r")
        screen.wait("aaa-0   empty")
        screen.press("\r" + UP + DOWN + PAGE_UP + PAGE_DOWN + HOME + END + "/x\r")
        screen.wait("'x' does not occur")
        screen.press("p7\r")
        screen.wait("aaa has no partition 7")
        screen.press("\x7f\x7f")
        screen.wait("topics")
        screen.press("\x7f")
        assert screen.end() == 0


def test_what_comes_is_followed(ottla: Ottla) -> None:
    ottla.ok("topic create growing --partitions 1")
    with Screen(["topic", "browse", "growing"], ottla.address) as screen:
        screen.wait("growing-0   empty")
        screen.press("f")
        screen.wait("following")
        ottla.ok("produce growing", b"first\n")
        screen.wait("first", chosen=True)
        ottla.ok("produce growing", b"".join(b"line %d\n" % n for n in range(100)))
        screen.wait(r"line 99\b", chosen=True)
        assert offsets(screen) == list(range(101 - ROWS, 101))
        screen.press(UP)
        screen.wait(r"line 98\b", chosen=True)
        assert "following" not in screen.lines[0]
        screen.press("q")
        assert screen.end() == 0


def test_a_record_is_shown_whole_and_cannot_harm_the_terminal(ottla: Ottla) -> None:
    ottla.ok("topic create odd --partitions 1")
    values: list[object] = [
        '{"city": "Zürich", "list": [1, 2]}',
        "\x1b[2J\x1b]0;title\x07 bell",
        {"base64": "/wD/AA=="},
        None,
        "x" * 5000,
    ]
    lines = [json.dumps({"key": None, "value": one, "headers": [["h\x1b[2J", "v"]]})
             for one in values]  # fmt: skip
    ottla.ok("produce odd -i jsonl", "\n".join(lines).encode())
    with Screen(["topic", "browse", "odd"], ottla.address, (90, 16)) as screen:
        screen.wait("offsets 0 to 4")
        assert r"\x1b[2J\x1b]0;" in screen.lines[3]
        screen.press("\r")
        screen.wait('  "city": "Zürich",')
        screen.press(RIGHT)
        screen.wait(r"\\x1b\]0;title\\x07 bell")
        screen.press(RIGHT)
        screen.wait("ff 00 ff 00")
        screen.press(RIGHT)
        screen.wait(r"value +\(null\)")
        screen.press(RIGHT)
        screen.wait("5,000 bytes")
        screen.press(END)
        screen.wait(r"\nx{50}\n")  # 5000 bytes: 55 lines of 90, and one of 50
        screen.press("\x7f")
        screen.wait("OFFSET")
        screen.press("q")
        assert screen.end() == 0
        assert "\x1b]0;" not in screen.output and "\x1b[2J" not in screen.output


def test_another_size_of_the_terminal_shows_as_many_rows(ottla: Ottla, numbers: str) -> None:
    with Screen(["topic", "browse", numbers, "--offset", "500"], ottla.address) as screen:
        screen.wait("v508")
        screen.resize(70, 30)
        screen.wait("v526")
        assert offsets(screen) == list(range(500, 527))
        screen.resize(20, 5)
        screen.wait(r"\A(.*\n){4}.*\Z")
        screen.press("q")
        assert screen.end() == 0


@pytest.mark.parametrize(("how", "status"), [("q", 0), ("\x03", 130), ("SIGTERM", 143)])
def test_the_terminal_is_left_as_it_was(ottla: Ottla, numbers: str, how: str, status: int) -> None:
    with Screen(["topic", "browse", numbers], ottla.address) as screen:
        screen.wait("numbers-0")
        assert termios.tcgetattr(screen.slave) != screen.before
        if how == "SIGTERM":
            screen.process.send_signal(signal.SIGTERM)
        else:
            screen.press(how)
        assert screen.end() == status
        assert termios.tcgetattr(screen.slave) == screen.before
        assert screen.output.endswith("\x1b[?25h\x1b[?1049l")


def test_pages_are_full_where_markers_of_transactions_lie_between_the_records(
    ottla: Ottla,
) -> None:
    ottla.ok("topic create gaps --partitions 1")
    producer = KafkaProducer(bootstrap_servers=ottla.address, transactional_id="gaps")
    producer.init_transactions()
    for number in range(30):
        producer.begin_transaction()
        producer.send("gaps", b"%d" % number, partition=0)
        producer.commit_transaction()
    producer.close()
    with Screen(["topic", "browse", "gaps", "--offset", "end"], ottla.address) as screen:
        screen.wait(r"  29$", chosen=True)
        assert offsets(screen) == list(range(42, 60, 2))
        screen.press(PAGE_UP)
        screen.wait(r"  20$", chosen=True)
        assert offsets(screen) == list(range(24, 42, 2))
        screen.press("o1\r")  # a marker's offset selects the next record
        screen.wait(r"  1$", chosen=True)
        screen.press("q")
        assert screen.end() == 0


def test_records_of_a_trimmed_topic_are_found_from_both_sides(ottla: Ottla) -> None:
    ottla.ok("topic create trimmed --partitions 1")
    ottla.ok("produce trimmed", b"".join(b"%d\n" % n for n in range(30)))
    ottla.ok("topic trim trimmed --before 25 --yes")
    with Screen(["topic", "browse", "trimmed", "--offset", "3"], ottla.address) as screen:
        screen.wait("offsets 25 to 29")
        assert offsets(screen) == [25, 26, 27, 28, 29]
        screen.press(END + PAGE_UP + UP)
        screen.wait(r"  25$", chosen=True)
        screen.press("q")
        assert screen.end() == 0


def test_a_broker_that_goes_away_is_a_message_and_not_the_end(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data") as broker:
        ottla = Ottla(f"127.0.0.1:{broker.port}")
        ottla.ok("topic create brief --partitions 1")
        ottla.ok("produce brief", b"here\n")
        screen = Screen(["topic", "browse", "brief", "--timeout", "0.2"], ottla.address)
        screen.wait("here")
    with screen:
        screen.press("o0\r")
        screen.wait(r"127\.0\.0\.1")
        assert "here" in screen.chosen
        screen.press("q")
        assert screen.end() == 0


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("topic browse numbers", 1, "browsing needs a terminal"),
        ("topic browse --partition 0", 2, "--partition was given without a topic"),
    ],
)
def test_without_a_terminal_it_says_what_to_use_instead(
    ottla: Ottla, line: str, status: int, said: str
) -> None:
    done = ottla(line)
    assert done.status == status and said in done.err and len(done.err.splitlines()) == 1


def test_a_topic_that_does_not_exist_is_one_line(ottla: Ottla) -> None:
    with Screen(["topic", "browse", "nothing"], ottla.address) as screen:
        assert screen.end() == 1
        assert "topic 'nothing'" in screen.output and "\x1b" not in screen.output


def test_a_terminal_that_is_closed_ends_it(ottla: Ottla, numbers: str) -> None:
    with Screen(["topic", "browse", numbers], ottla.address) as screen:
        screen.wait("numbers-0")
        os.close(screen.slave)
        os.close(screen.master)
        assert screen.process.wait(30) in (0, -signal.SIGHUP)
