"""`produce -i jsonl`: a line that is not what it seems is an error, and nothing is guessed."""

from __future__ import annotations

import json

import pytest

from tests.tools.cli.ottla_command import Ottla


@pytest.mark.parametrize(("line", "said"), [
    ({"Value": "v"}, "line 2: unknown field 'Value'; did you mean value?"),
    ({"value": "v", "kye": "k"}, "line 2: unknown field 'kye'; did you mean key?"),
    ({"value": "v", "xyz": 1}, "known are headers, key, offset, partition, timestamp, topic"),
    ({"key": "k"}, 'line 2: no field "value"; "value": null sends a tombstone'),
    ({}, 'line 2: no field "value"'),
    ({"value": {"base64": "AA==", "more": 1}}, "value must be a string, null or"),
    ({"value": 7}, "value must be a string"),
    ({"value": "v", "timestamp": -5}, "timestamp must be a whole number from 0 to"),
    ({"value": "v", "timestamp": 1 << 63}, "timestamp must be a whole number from 0 to"),
    ({"value": "v", "partition": -1}, "partition must be a whole number from 0 to"),
    ({"value": "v", "partition": True}, "partition must be a whole number"),
    ({"value": "v", "partition": 7}, "line 2: lines has no partition 7, only 0 to 1"),
    ({"value": "v", "headers": [["name"]]}, "headers must be a list of [name, value]"),
])
def test_a_wrong_line_is_named_and_what_was_sent_before_it_is_counted(
    ottla: Ottla, line: dict[str, object], said: str
) -> None:
    ottla.ok("topic create lines --partitions 2 --if-not-exists")
    before = len(ottla.ok("consume lines -e").splitlines())
    done = ottla("produce lines -i jsonl", b'{"value": "sent"}\n' + json.dumps(line).encode())
    assert done.status == 1 and said in done.err and "(1 record sent)" in done.err, done
    assert len(ottla.ok("consume lines -e").splitlines()) == before + 1


def test_a_copy_to_fewer_partitions_is_refused_before_a_record_is_sent(ottla: Ottla) -> None:
    ottla.ok("topic create wide --partitions 5")
    ottla.ok("topic create narrow --partitions 2")
    ottla.ok("produce wide -K :", b"".join(b"%d:%d\n" % (n, n) for n in range(50)))
    copied = ottla.ok("consume wide -e --output jsonl").encode()
    refused = ottla("produce narrow -i jsonl", copied)
    assert refused.status == 1 and refused.err.splitlines() == [
        "ottla produce: wide has 5 partitions, narrow has 2: grow narrow, or let keys choose the"
        " partitions with --any-partition (0 records sent)"]
    assert ottla.ok("consume narrow -e") == ""
    ottla.ok("produce narrow -i jsonl --any-partition", copied)
    assert sorted(map(int, ottla.ok("consume narrow -e").split())) == [*range(50)]


@pytest.mark.parametrize("line", [
    "produce narrow-one -p 7", "consume narrow-one -p 7", "consume narrow-one -p 7 -e",
    "kcat -b {} -C -e -t narrow-one -p 7", "kcat -b {} -P -t narrow-one -p 7",
])
def test_a_partition_that_does_not_exist_is_an_error(ottla: Ottla, line: str) -> None:
    ottla.ok("topic create narrow-one --partitions 3 --if-not-exists")
    done = ottla(line.format(ottla.address), b"x\n")
    assert done.status == 1 and "narrow-one has no partition 7, only 0 to 2" in done.err, done
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(("line", "said"), [
    ("produce settings -X foo=bar", "foo is not a setting of Kafka's clients"),
    ("consume settings -e -X linger.mss=1", "similar: linger.ms"),
    ("kcat -b {} -C -e -t settings -X foo=bar", "foo is not a setting"),
])
def test_a_setting_that_no_client_knows_is_an_error(ottla: Ottla, line: str, said: str) -> None:
    ottla.ok("topic create settings --if-not-exists")
    done = ottla(line.format(ottla.address), b"x\n")
    assert done.status == 1 and said in done.err and len(done.err.splitlines()) == 1, done
