"""`produce -i jsonl` refuses every line that is wrong or ambiguous, and guesses nothing."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError, Refused
from ottla.tools.admin import topics
from ottla.tools.cli import target_topic
from ottla.tools.stream import served_input
from ottla.tools.stream.partitions import partition_of
from ottla.wire.errors import ErrorCode
from tests.broker.running import RunningBroker
from tests.tools.cli.ottla_command import Done, Ottla


@pytest.mark.parametrize(("line", "said"), [
    ({"Value": "v"}, "line 2: unknown field 'Value'; did you mean value?"),
    ({"value": "v", "kye": "k"}, "line 2: unknown field 'kye'; did you mean key?"),
    ({"value": "v", "xyz": 1}, "known are headers, key, offset, partition, timestamp, topic"),
    ({"key": "k"}, 'line 2: the field "value" is missing; "value": null sends a tombstone'),
    ({}, 'line 2: the field "value" is missing'),
    ({"value": {"base64": "AA==", "more": 1}}, "value must be a string, null or"),
    ({"value": 7}, "value must be a string"),
    ({"value": "v", "timestamp": -5}, "the field 'timestamp' must be a whole number from 0 to"),
    ({"value": "v", "timestamp": 1 << 63}, "the field 'timestamp' must be a whole number"),
    ({"value": "v", "headers": [["name"]]}, "the field 'headers' must be a list of [name, value]"),
    ({"value": "v\ud800"}, "line 2: value has \\ud800, which is half of a surrogate pair and has no"
                           ' UTF-8: as {"base64": "…"}, give the bytes to send'),
    ({"value": "v", "key": "\udfff"}, "line 2: key has \\udfff, which is half of a surrogate pair"),
    ({"value": "v", "headers": [["\ud800", "v"]]}, "line 2: a header's name has \\ud800, which is"),
    ({"value": "v", "headers": [["name", "\ud800"]]}, "line 2: a header has \\ud800, which is"),
    ({"value": "v", "topic": "\ud800"}, "line 2: the field 'topic' has \\ud800, which is half"),
])
def test_a_wrong_line_is_named_and_what_was_sent_before_it_is_counted(
    ottla: Ottla, line: dict[str, object], said: str
) -> None:
    ottla.ok("topic create lines --partitions 2 --if-not-exists")
    before = len(ottla.ok("consume lines -e").splitlines())
    done = ottla("produce lines -i jsonl", b'{"value": "sent"}\n' + json.dumps(line).encode())
    assert done.status == 1 and said in done.err and "(1 record sent)" in done.err, done
    assert len(ottla.ok("consume lines -e").splitlines()) == before + 1


def test_a_line_that_is_nested_too_deeply_is_named(ottla: Ottla) -> None:
    ottla.ok("topic create nested --partitions 1")
    done = ottla("produce nested -i jsonl", b'{"value": "v"}\n' + b"[" * 200_000)
    assert done.status == 1 and "line 2: its arrays or objects are nested too deeply" in done.err


@pytest.mark.parametrize(("partition", "said"), [
    (-1, "line 2: the field 'partition' must be a whole number from 0 to"),
    (True, "line 2: the field 'partition' must be a whole number"),
    (7, "the records need 8 partitions, but unwritten has 1. Add partitions with ottla topic grow"
        " unwritten --partitions 8, or let keys choose the partitions with --any-partition"),
])
def test_a_wrong_partition_anywhere_in_a_file_is_an_error_before_a_record_is_sent(
    ottla: Ottla, partition: object, said: str
) -> None:
    ottla.ok("topic create unwritten --partitions 1 --if-not-exists")
    lines = [json.dumps(each) for each in ({"value": "v"}, {"value": "v", "partition": partition})]
    done = ottla("produce unwritten -i jsonl", "\n".join(lines).encode())
    assert done.status == 1 and said in done.err and "(0 records sent)" in done.err, done
    assert ottla.ok("consume unwritten -e") == ""


def test_a_copy_to_fewer_partitions_is_refused_before_a_record_is_sent(ottla: Ottla) -> None:
    ottla.ok("topic create wide --partitions 5")
    ottla.ok("topic create narrow --partitions 2")
    ottla.ok("produce wide -K :", b"".join(b"%d:%d\n" % (n, n) for n in range(50)))
    copied = ottla.ok("consume wide -e --output jsonl").encode()
    refused = ottla("produce narrow -i jsonl", copied)
    assert refused.status == 1 and refused.err.splitlines() == [
        "ottla produce: wide has 5 partitions, but narrow has 2. Add partitions with ottla topic"
        " grow narrow --partitions 5, or let keys choose the partitions with --any-partition"
        " (0 records sent)"]
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


@pytest.mark.parametrize(("line", "status", "said"), [
    ("produce settings -X foo=bar", 2, "foo is not a setting of Kafka's clients"),
    ("consume settings -e -X linger.mss=1", 2, "similar: linger.ms"),
    ("kcat -b {} -C -e -t settings -X foo=bar", 1, "foo is not a setting"),
])
def test_a_setting_that_no_client_knows_is_an_error(
    ottla: Ottla, line: str, status: int, said: str
) -> None:
    ottla.ok("topic create settings --if-not-exists")
    done = ottla(line.format(ottla.address), b"x\n")
    assert done.status == status and said in done.err and len(done.err.splitlines()) == 1, done


@pytest.mark.parametrize(("line", "name"), [
    (b'{"value":"a","value":"b"}', "value"), (b'{"value":{"base64":"AA==","base64":""}}', "base64"),
    (b'{"value":"a","headers":{"h":"1","h":"2"}}', "h"),
])
def test_a_field_that_appears_twice_is_an_error(ottla: Ottla, line: bytes, name: str) -> None:
    ottla.ok("topic create twice --if-not-exists")
    done = ottla("produce twice -i jsonl", b'{"value": "sent"}\n' + line)
    assert done.status == 1 and done.err == (
        f"ottla produce: line 2: the field {name!r} appears twice (1 record sent)\n")


@pytest.mark.parametrize(("line", "given", "said"), [
    ("produce never -p 7", b"x\n", "topic 'never' does not exist. The broker would create"),
    ("kcat -b {} -P -t never -p 7", b"x\n", "'never' does not exist. The broker would create"),
    ("produce never -X foo=bar", b"x\n", "foo is not a setting of Kafka's clients"),
    ("kcat -b {} -P -t never -p 0 -X foo=bar", b"x\n", "foo is not a setting"),
    ("produce never -K :", b"x\n", "line 1 has no key delimiter ':': 'x'"),
    ("produce never -i jsonl", b"x\n", "line 1: not JSON"),
    ("produce never -i jsonl", b'{"value":"v","partition":1}\n{}\n',
     'line 2: the field "value" is missing'),
])
def test_a_topic_that_does_not_exist_is_not_created_by_a_command_that_refuses(
    ottla: Ottla, line: str, given: bytes, said: str
) -> None:
    done = ottla(line.format(ottla.address), given)
    assert done.status in (1, 2) and said in done.err and len(done.err.splitlines()) == 1, done
    assert "never" not in ottla.ok("topic list -o name").split()


def test_a_copy_to_a_topic_that_does_not_exist_gives_it_as_many_partitions(ottla: Ottla) -> None:
    ottla.ok("topic create origin --partitions 4")
    ottla.ok("produce origin -p 2", b"one\ntwo\n")
    copied = ottla.ok("consume origin -e -o jsonl")
    done = ottla("produce its-copy -i jsonl", copied.encode())
    assert (done.status, done.err) == (
        0, "topic 'its-copy' did not exist: the broker created it with 4 partitions\n")
    assert ottla.ok("consume its-copy -p 2 -e").split() == ["one", "two"]


def test_a_copy_whose_records_retention_will_delete_is_warned_of_once(ottla: Ottla) -> None:
    ottla.ok("topic create week")
    ottla.ok("topic create ever -c retention.ms=-1")
    ottla.ok("topic create table -c cleanup.policy=compact")
    ottla.ok("topic create stamped -c message.timestamp.type=LogAppendTime")
    old = b'{"key":"k","value":"v","timestamp":1370077200000}\n' * 2
    recent = b'{"value":"v","timestamp":%d}\n' % (time.time() * 1000)
    warned = ottla("produce week -i jsonl", recent + old)
    assert (warned.status, warned.err) == (
        0, "warning: week will delete records with a timestamp older than 7 days (retention.ms),"
        " such as one with the timestamp 1370077200000. To keep them, run: ottla config set"
        " topic/week retention.ms=-1\n")
    ottla.ok(warned.err.partition("run: ottla ")[2])
    for topic in "week", "ever", "table", "stamped":
        done = ottla(f"produce {topic} -i jsonl", old)
        assert (done.status, done.err) == (0, ""), topic


def test_a_file_of_a_topic_that_is_gone_makes_as_many_partitions_as_it_names(ottla: Ottla) -> None:
    lines = b"".join(b'{"topic":"gone","partition":%d,"value":"v"}\n' % n for n in (0, 2, 1))
    done = ottla("produce gone -i jsonl", lines)
    assert (done.status, done.err) == (
        0, "topic 'gone' did not exist: the broker created it with 3 partitions\n")
    assert len(ottla.ok("consume gone -e").split()) == 3


def test_a_file_of_another_cluster_that_needs_more_partitions_is_refused_at_the_start(
    ottla: Ottla, tmp_path: Path
) -> None:
    """The file's topic may have more partitions than a topic of the same name in this cluster."""
    ottla.ok("topic create same --partitions 2")
    copied = tmp_path / "copied.jsonl"
    for topic in "same", "elsewhere":
        copied.write_bytes(b"".join(
            b'{"topic":"%s","partition":%d,"value":"v"}\n' % (topic.encode(), n)
            for n in (0, 1, 4)))
        done = ottla(f"produce same -i jsonl --file {copied}")
        assert done.status == 1 and done.err.splitlines() == [
            "ottla produce: the records need 5 partitions, but same has 2. Add partitions with"
            " ottla topic grow same --partitions 5, or let keys choose the partitions with"
            " --any-partition (0 records sent)"]
    assert ottla.ok("consume same -e") == ""


def through_pipe(ottla: Ottla, line: str, data: bytes) -> Done:
    """Runs a command that reads these data from a pipe, and returns the outcome."""
    reads, writes = os.pipe()
    os.write(writes, data)
    os.close(writes)
    try:
        return ottla(f"{line} --file /dev/fd/{reads}")
    finally:
        os.close(reads)


def test_a_pipe_that_may_name_any_partition_creates_no_topic(
    ottla: Ottla, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = b'{"topic":"gone-too","partition":0,"value":"v"}\n'
    monkeypatch.setattr(served_input, "AHEAD_BYTES", len(line))
    done = through_pipe(ottla, "produce unmade -i jsonl", line)
    assert done.status == 1 and done.err == (
        "ottla produce: topic 'unmade' does not exist, and records from a pipe may name any"
        " partition. Create the topic first, as with ottla topic create unmade --partitions 3, or"
        " let keys choose the partitions with --any-partition (0 records sent)\n")
    assert "unmade" not in ottla.ok("topic list -o name").split()
    for more, text in (" --any-partition", line), ("", b'{"value":"v"}\n'):
        assert through_pipe(ottla, f"produce unmade -i jsonl{more}", text).status == 0
    assert ottla.ok("consume unmade -e").split() == ["v", "v"]


ORIGINS = {"lost": '"topic":"lost",', "no-field": "", "elsewhere": '"topic":"few",'}
"""The records' topic field. It names a topic that no longer exists; is absent; or names a topic of
another cluster, while this cluster has a smaller topic of the same name."""


def from_three(origin: str) -> bytes:
    return b"".join(
        b'{%s"partition":%d,"value":"%d"}\n' % (ORIGINS[origin].encode(), n, n) for n in range(3))


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_pipe_that_has_ended_is_checked_like_a_file(ottla: Ottla, origin: str) -> None:
    ottla.ok("topic create few --partitions 1 --if-not-exists")
    ottla.ok(f"topic create piped-{origin} --partitions 2")
    refused = through_pipe(ottla, f"produce piped-{origin} -i jsonl", from_three(origin))
    assert refused.status == 1 and (
        f"the records need 3 partitions, but piped-{origin} has 2. Add" in refused.err)
    assert "(0 records sent)" in refused.err and ottla.ok(f"consume piped-{origin} -e") == ""
    done = through_pipe(ottla, f"produce new-{origin} -i jsonl", from_three(origin))
    assert done.status == 0 and done.err.startswith(
        f"topic 'new-{origin}' did not exist: the broker created it with 3"
        " partitions")


@pytest.mark.parametrize("origin", ORIGINS)
def test_after_the_beginning_of_a_pipe_the_error_says_how_to_go_on_without_duplicates(
    ottla: Ottla, monkeypatch: pytest.MonkeyPatch, origin: str
) -> None:
    ottla.ok("topic create few --partitions 1 --if-not-exists")
    ottla.ok(f"topic create cut-{origin} --partitions 2")
    lines = from_three(origin).splitlines(keepends=True)
    monkeypatch.setattr(served_input, "AHEAD_BYTES", len(lines[0]) + 5)
    done = through_pipe(ottla, f"produce cut-{origin} -i jsonl", b"".join(lines))
    assert done.status == 1 and done.err == (
        f"ottla produce: line 3: cut-{origin} has no partition 2, only 0 to 1. Add partitions with"
        f" ottla topic grow cut-{origin} --partitions 3, or let keys choose the partitions with"
        " --any-partition. The lines before line 3 were sent. If the next input has the same order,"
        " skip these lines: tail -n +3 (2 records sent)\n")
    done = through_pipe(
        ottla, f"produce cut-{origin} -i jsonl --delimiter '|'",
        b"".join(lines).replace(b"\n", b"|"))
    assert done.err.endswith(
        ". The lines before line 3 were sent. If the next input has the same order, skip these"
        " lines: begin with line 3 (2 records sent)\n"), done
    ottla.ok(f"topic grow cut-{origin} --partitions 3")
    assert through_pipe(ottla, f"produce cut-{origin} -i jsonl", b"".join(lines[2:])).status == 0
    assert sorted(ottla.ok(f"consume cut-{origin} -e").split()) == ["0", "0", "1", "1", "2"]


def test_a_pipe_that_stays_open_is_not_waited_for(
    ottla: Ottla, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the first records name a partition, `produce` waits for more input, but only for
    AHEAD_SECONDS. Otherwise it does not wait."""
    ottla.ok("topic create open-pipe --partitions 1")
    reads, writes = os.pipe()
    monkeypatch.setattr(served_input, "AHEAD_SECONDS", 0.0)
    os.write(writes, b'{"partition":0,"value":"v"}\n')
    with open(reads, "rb") as raw, served_input.served(raw, lambda: None) as file:
        assert served_input.ahead(file, b'"partition"') == (b'{"partition":0,"value":"v"}\n', False)
        monkeypatch.setattr(served_input, "AHEAD_SECONDS", 60.0)
        os.write(writes, b'{"value":"w"}\n' * 2)
        assert file.readline() == b'{"partition":0,"value":"v"}\n'
        assert served_input.ahead(file, b'"partition"') == (b'{"value":"w"}\n' * 2, False)
        os.close(writes)
        assert file.readlines() == [b'{"value":"w"}\n'] * 2


def test_where_brokers_create_no_topics_a_copy_does_not_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_topic, "TOPIC_SECONDS", 0.0)
    settings = {"auto.create.topics.enable": "false"}
    with RunningBroker(tmp_path / "data", **settings) as running:
        ottla = Ottla(f"127.0.0.1:{running.port}")
        ottla.ok("topic create origin --partitions 2")
        line = b'{"topic":"origin","partition":0,"value":"v"}\n'
        done = ottla("produce copy -i jsonl", line)
        assert done.status == 1 and (
            "topic 'copy' does not exist; the brokers create no topics" in done.err), done
        assert ottla.ok("topic list -o name").split() == ["origin"]


@pytest.mark.parametrize(("setting", "said"), [
    ("true", "deleted in the meantime. Run the command again, or create the topic first, as with"),
    ("hidden", "or the brokers create no topics (auto.create.topics.enable). Run the command"),
    ("false", "topic 'slow' does not exist; the brokers create no topics"),
])
def test_a_topic_that_no_broker_has_created_in_time_is_not_said_to_be_unwanted(
    monkeypatch: pytest.MonkeyPatch, setting: str, said: str
) -> None:
    def described(*_: object, **__: object) -> list[SimpleNamespace]:
        if setting == "hidden":
            raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return [SimpleNamespace(name="auto.create.topics.enable", value=setting)]

    def metadata(names: object = None, **_: object) -> SimpleNamespace:
        unknown = SimpleNamespace(
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name="slow", partitions=[])
        return SimpleNamespace(topics=[unknown] if names else [])

    monkeypatch.setattr(target_topic.configs, "describe", described)
    monkeypatch.setattr(target_topic, "TOPIC_SECONDS", -1.0)
    cluster: Any = SimpleNamespace(metadata=metadata, live=lambda: [1])
    with pytest.raises(ClientError, match=re.escape(said)):
        target_topic.existing(cluster, "slow")


def test_keys_choose_partitions_for_records_of_1970_too(ottla: Ottla) -> None:
    ottla.ok("topic create epoch -p 5 -c retention.ms=-1")
    keys = "abcdefg"
    lines = "\n".join(json.dumps({"key": key, "value": "v", "timestamp": 0}) for key in keys)
    ottla.ok("produce epoch -i jsonl --any-partition", lines.encode())
    read = ottla.ok("consume epoch -e -f '%k %p %T\\n'").splitlines()
    assert sorted(read) == [f"{key} {partition_of(key.encode(), 5)} 0" for key in keys]


@pytest.mark.parametrize("partitioner", [
    "consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"])
def test_a_partitioner_chooses_the_same_for_records_of_1970(
    ottla: Ottla, partitioner: str
) -> None:
    topic, keys = f"epoch-{partitioner}", [f"key{n}" for n in range(20)]
    ottla.ok(f"topic create {topic} -p 7 -c retention.ms=-1")
    for stamp in (0, 1):
        lines = "\n".join(json.dumps({"key": key, "value": "v", "timestamp": stamp})
                          for key in keys)
        ottla.ok(f"produce {topic} -i jsonl -X partitioner={partitioner}", lines.encode())
    read = [line.split() for line in ottla.ok(f"consume {topic} -e -f '%T %k %p\\n'").splitlines()]
    by_stamp = [dict(one[1:] for one in read if one[0] == stamp) for stamp in ("0", "1")]
    assert by_stamp[0] == by_stamp[1] and len(by_stamp[0]) == len(keys)


def test_the_partitions_are_counted_once_and_errors_that_pass_are_waited_for(
    ottla: Ottla, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaders are asked for twice for the first record, of which one answer is an error, and once
    to send each of the three records."""
    ottla.ok("topic create counted-once -p 3 -c retention.ms=-1")
    real, asked = topics.leaders, list[str]()

    def leaders(cluster: ClusterClient, wanted: list[str]) -> dict[tuple[str, int], int]:
        asked.extend(wanted)
        if len(asked) == 1:
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, what="topic 'counted-once'")
        return real(cluster, wanted)

    monkeypatch.setattr(topics, "leaders", leaders)
    lines = "\n".join(json.dumps({"key": key, "value": "v", "timestamp": 0}) for key in "abc")
    ottla.ok("produce counted-once -i jsonl", lines.encode())
    assert asked == ["counted-once"] * 5
