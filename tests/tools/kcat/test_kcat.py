"""`ottla kcat`; compat_tests/test_kcat_mode.py compares it with kcat itself."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.tools.kcat.options import Misused
from ottla.tools.kcat.text import Unpacked, escaped
from tests.tools.cli.ottla_command import Done, Ottla


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KCAT_CONFIG", raising=False)


def kcat(ottla: Ottla, line: str, stdin: bytes = b"") -> Done:
    return ottla(f"kcat -b {ottla.address} {line}", stdin)


def test_what_is_produced_is_consumed(ottla: Ottla, tmp_path: Path) -> None:
    ottla.ok("topic create round --partitions 2")
    file, lines = tmp_path / "file", tmp_path / "lines"
    file.write_bytes(b"one\nrecord")
    lines.write_bytes(b"first;second")
    for line, stdin in (
        ("-P -t round -p 0 -K: -H h=v -H empty -H none=", b"k:v\nno key\n\n:empty key\n"),
        ("-P -t round -p 0 -Z -K:", b"tombstone:\n"), (f"-P -t round -p 1 -k K {file}", b""),
        (f"-P -t round -p 1 -l -D; {lines} -z zstd -X topic.request.required.acks=1", b""),
        ("-t round -p 1 -c 1", b"counted\nnot sent\n"),
    ):
        done = kcat(ottla, line, stdin)
        assert (done.status, done.out, done.err) == (0, "", ""), done
    tee = kcat(ottla, "-P -t round -p 1 -T", b"a\nb\n")
    assert tee.out == "a\nb\n"
    read = kcat(ottla, "-C -t round -p 0 -e -q -f '%o %K %k %S %s [%h]\\n'").out.splitlines()
    headers = "h=v,empty=NULL,none="
    assert read == [f"0 1 k 1 v [{headers}]", f"1 -1  6 no key [{headers}]",
                    f"2 0  9 empty key [{headers}]", "3 9 tombstone -1  []"]
    assert kcat(ottla, "-C -t round -p 1 -e -q -D , -K =").out == (
        "K=one\nrecord,=first,=second,=counted,=a,=b,")
    with_null = kcat(ottla, "-C -t round -p 0 -o -1 -e -q -Z -K /")
    assert with_null.out == "tombstone/NULL\n"


def test_offsets_and_ends(ottla: Ottla) -> None:
    ottla.ok("topic create offsets")
    stamped = [json.dumps({"value": str(i), "timestamp": 1000 * i}) for i in range(1, 6)]
    ottla.ok("produce offsets -i jsonl", "\n".join(stamped).encode())
    for option, expected in (
        ("", "12345"), ("-o beginning", "12345"), ("-o 3", "45"), ("-o -2", "45"), ("-o end", ""),
        ("-o s@2500", "345"), ("-o s@2000 -o e@4000", "23"), ("-c 2", "12"), ("-o 9", ""),
        ("-c 0", ""),
    ):
        done = kcat(ottla, f"-C -t offsets -e -q -D '' {option}")
        assert (done.status, done.out) == (0, expected), (option, done)
    timed = kcat(ottla, "-G timed -o beginning -o e@4000 -e -q -D '' offsets")
    assert (timed.status, timed.out) == (0, "123"), timed
    assert "use beginning, end, stored or e@MS" in kcat(ottla, "-G timed -o 3 -e offsets").err
    assert "% Reached end of topic offsets [0] at offset 5: exiting" in kcat(
        ottla, "-C -t offsets -e").err
    asked = kcat(ottla, "-Q -t offsets:0:2500 -t offsets:0:2501")
    assert asked.status == 1 and "given twice" in asked.err
    for time, offset in ((2500, 2), (-2, 0), (-1, 5), (99_999, -1)):
        assert kcat(ottla, f"-Q -t offsets:0:{time}").out == f"offsets [0] offset {offset}\n"


def test_a_group_goes_on(ottla: Ottla) -> None:
    ottla.ok("topic create grouped")
    ottla.ok("produce grouped", b"1\n2\n3\n")
    first = kcat(ottla, "-G team -o beginning -c 1 grouped")
    assert (first.status, first.out) == (0, "1\n"), first
    assert kcat(ottla, "-G team -c 2 '^group.*'").out == "2\n3\n"


def test_a_group_begins_where_o_says_even_if_it_has_committed_offsets(ottla: Ottla) -> None:
    ottla.ok("topic create again")
    kcat(ottla, "-P -t again", b"1\n2\n")
    for option, expected in (("-o beginning", "1\n2\n"), ("-o beginning", "1\n2\n"),
                             ("-p 0 -o beginning", "1\n2\n"), ("-o end", ""), ("", "")):
        assert kcat(ottla, f"-G anew {option} -e -q again").out == expected, option


def test_records_of_aborted_and_open_transactions_are_not_printed(ottla: Ottla) -> None:
    ottla.ok("topic create atomic")
    producer = Producer({"bootstrap.servers": ottla.address, "transactional.id": "atomic"})
    producer.init_transactions()
    for value, end in (("kept", producer.commit_transaction), ("lost", producer.abort_transaction),
                       ("open", producer.flush)):
        producer.begin_transaction()
        producer.produce("atomic", value)
        producer.flush()
        end()
    assert kcat(ottla, "-C -t atomic -e").out == "kept\n"
    everything = kcat(ottla, "-C -t atomic -e -X isolation.level=read_uncommitted")
    assert everything.out == "kept\nlost\nopen\n"
    for option, expected in (("-o end", ""), ("-o -1", ""), ("-o -4", "kept\n"), ("-o 5", "")):
        assert kcat(ottla, f"-C -t atomic -e -q {option}").out == expected, option
    assert kcat(ottla, "-Q -t atomic:0:-1").out == "atomic [0] offset 4\n"
    producer.abort_transaction()


def test_metadata_names_an_error_as_librdkafka_does(ottla: Ottla) -> None:
    listed = kcat(ottla, "-L -t missing").out
    assert listed.endswith(
        '"missing" with 0 partitions: Broker: Unknown topic or partition\n'), listed


def test_metadata_as_text_and_json(ottla: Ottla) -> None:
    ottla.ok("topic create listed --partitions 2")
    text = kcat(ottla, "-L -t listed").out
    assert text == (
        f"Metadata for listed (from broker -1: {ottla.address}/bootstrap):\n 1 brokers:\n"
        f"  broker 0 at {ottla.address} (controller)\n 1 topics:\n"
        '  topic "listed" with 2 partitions:\n'
        "    partition 0, leader 0, replicas: 0, isrs: 0\n"
        "    partition 1, leader 0, replicas: 0, isrs: 0\n")
    found = json.loads(kcat(ottla, "-L -J").out)
    assert "listed" in [topic["topic"] for topic in found["topics"]]


def test_settings_come_from_files_too(ottla: Ottla, tmp_path: Path) -> None:
    ottla.ok("topic create configured")
    config = tmp_path / "kcat.conf"
    config.write_text(f"# mine\nmetadata.broker.list={ottla.address}\nclient.id=me\n")
    assert ottla(f"kcat -F {config} -L -t configured").status == 0
    (tmp_path / ".config").mkdir()
    config.rename(tmp_path / ".config" / "kcat.conf")
    assert ottla("kcat -L -t configured").status == 0
    assert ottla("kcat -L -t configured -X client.id=other").status == 0
    assert "-b <broker,..> missing" in ottla("kcat -L -t configured -F none").err


@pytest.mark.parametrize(("line", "said"), [
    ("-C", "-t <topic> missing"), ("-C -P -t t", "modes"), ("-C -t t -f %q", "formatter: %q"),
    ("-C -t t -o sideways", "-o sideways"), ("-C -t t -c x", "-c x"), ("-x", "-x not recog"),
    ("-Q -t t", "TOPIC:PARTITION:TIMESTAMP"), ("-C -t t -s value=z", "'z' is not one of"),
    ("-P -l -t t", "-l requires exactly one file"), ("-C -t nothing-here -e", "nothing-here"),
    ("-P -t t /nowhere", "/nowhere"), ("-C -t t -X nonsense", "NAME=VALUE"),
    ("-C -t t -o stored", "-o stored"), ("-L t", "t: only -P takes files"),
    ("-C -t t -e other", "other: only -P takes files"), ("-G g -o 5 t", "-o 5"),
    ("-P -t t -X transactional.id=x", "transactional.id"), ("-r http://x -C -t t", "registry"),
])
def test_what_is_wrong_is_said_with_status_1(ottla: Ottla, line: str, said: str) -> None:
    ottla("topic create t --if-not-exists")
    done = kcat(ottla, line, b"x\n")
    assert done.status == 1 and said in done.err and not done.out, done


def test_an_unreachable_broker_is_one_line(ottla: Ottla) -> None:
    done = ottla("kcat -b 127.0.0.1:1 -m 0 -L")
    assert done.status == 1 and done.err.startswith("% ERROR: ") and done.err.count("\n") == 1
    assert ottla("kcat -L -X client.id=x").status == 1


def test_escapes() -> None:
    assert escaped(r"a\n\t\x41\x042\\b") == b"a\n\tA" + b"\x42" + b"\\b"


def test_packed_fields_are_unpacked() -> None:
    unpacked = Unpacked(["key=>hQ$", "value=<iBcs"])
    assert unpacked.of(struct.pack(">hQ", -2, 7), unpacked.key, "k") == b"-2 7"
    data = struct.pack("<iBc", -5, 200, b"x") + b"rest"
    assert unpacked.of(data, unpacked.value, "v") == b"-5 200 x rest"
    assert unpacked.of(None, unpacked.value, "v") is None
    with pytest.raises(Misused, match="expected key="):
        Unpacked(["other=i"])
