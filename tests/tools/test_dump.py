"""`ottla log dump` prints Kafka's lines; compat_tests compares them with Kafka's own tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.tools.dump import advice
from ottla.tools.kafka_names.main import main
from ottla.wire.legacy import down_convert
from ottla.wire.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    TopicRecord,
)
from ottla.wire.records import Record, build_batch
from tests.tools.logs import NOW_MS, open_log, run, some, write_log

FIRST, SECOND = f"{0:020d}", f"{3:020d}"
ADVICE = "; to see what to do: ottla log verify "
Capture = pytest.CaptureFixture[str]


def dumped(capsys: Capture, *arguments: object) -> list[str]:
    """Runs the command, which must succeed; returns its lines after the one that names the file."""
    assert run("dump", *arguments) == 0
    return capsys.readouterr().out.splitlines()[1:]


def test_files_are_named_without_a_flag_too(tmp_path: Path, capsys: Capture) -> None:
    path = write_log(tmp_path) / f"{FIRST}.log"
    named = dumped(capsys, "--files", path)
    assert dumped(capsys, path) == named
    assert len(dumped(capsys, "--deep-iteration", path)) > 1     # the flag before it takes no value
    both = dumped(capsys, "--print-data-log", path, path)
    assert dumped(capsys, path, "--print-data-log", path) == both
    assert run("dump") == 2
    assert capsys.readouterr().err == (
        "ottla log dump: no file was named; usage: ottla log dump FILE; see ottla log dump"
        " --help\n")
    assert run("dump", path.parent) == 1
    assert capsys.readouterr().err == (
        f"{path.parent}: Is a directory; name its files, such as {path}\n")
    (tmp_path / "broker-1.log").touch()         # beside the log directory's partitions
    assert run("dump", path.parent.parent) == 1
    assert capsys.readouterr().err.endswith(f"Is a directory; name its files, such as {path}\n")
    if (up := path.parent.parent.parent) == tmp_path.parent:
        up = tmp_path
    assert run("dump", up) == 1         # a directory of log directories
    assert capsys.readouterr().err.endswith(f"Is a directory; name its files, such as {path}\n")
    assert main("kafka-dump-log", ["--files", str(path), str(path)]) == 1
    assert capsys.readouterr().err == (
        f"kafka-dump-log: unrecognized arguments: {path}; see kafka-dump-log --help\n")


def test_a_batch_is_a_line_and_a_record_is_another(tmp_path: Path, capsys: Capture) -> None:
    path = write_log(tmp_path) / f"{FIRST}.log"
    shallow = dumped(capsys, "--files", path)
    assert shallow[0] == "Log starting offset: 0"
    assert len(shallow) == 3
    size = path.stat().st_size
    second = int(shallow[2].split("position: ")[1].split()[0])
    assert shallow[2].startswith(
        "baseOffset: 1 lastOffset: 2 count: 2 baseSequence: 1 lastSequence: 2 producerId: 7 "
        "producerEpoch: 0 partitionLeaderEpoch: 1 isTransactional: false isControl: false "
        f"deleteHorizonMs: OptionalLong.empty position: {second} CreateTime: {NOW_MS + 1} "
        f"size: {size - second} magic: 2 compresscodec: zstd crc: "
    )
    assert shallow[2].endswith(" isvalid: true")
    assert dumped(capsys, "--print-data-log", "--files", path)[2] == (
        f"| offset: 0 CreateTime: {NOW_MS} keySize: 1 valueSize: 5 sequence: 0 headerKeys: [] "
        "key: k payload: first"
    )
    assert dumped(capsys, "--print-data-log", "--skip-record-metadata", "--files", path)[2] == (
        "| key: k payload: first"
    )


def test_control_records_headers_and_transactions_are_shown(
    tmp_path: Path, capsys: Capture
) -> None:
    files = write_log(tmp_path)
    lines = dumped(capsys, "--deep-iteration", "--files", files / f"{SECOND}.log")
    assert (
        f"| offset: 4 CreateTime: {NOW_MS + 9} keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] "
        "endTxnMarker: ABORT coordinatorEpoch: 5"
    ) in lines
    assert lines[-1].endswith("keySize: 1 valueSize: 4 sequence: -1 headerKeys: [trace,none]")
    assert dumped(capsys, "--files", files / f"{SECOND}.txnindex") == [
        "version: 0 producerId: 9 firstOffset: 3 lastOffset: 4 lastStableOffset: 5"
    ]


def test_snapshots_and_checkpoints_are_shown(tmp_path: Path, capsys: Capture) -> None:
    files = write_log(tmp_path)
    assert dumped(capsys, "--files", files / f"{SECOND}.snapshot") == [
        "producerId: 7 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: "
        f"OptionalLong.empty lastTimestamp: {NOW_MS + 1} firstSequence: 1 lastSequence: 2 "
        f"lastOffset: 2 offsetDelta: 1 timestamp: {NOW_MS + 1}"
    ]
    assert dumped(capsys, "--files", files / "leader-epoch-checkpoint") == [
        "leaderEpoch: 0 startOffset: 0", "leaderEpoch: 1 startOffset: 1",
    ]  # fmt: skip
    points = tmp_path / "recovery-point-offset-checkpoint"
    points.write_text("0\n1\nt 0 6\n")
    assert dumped(capsys, "--files", points) == ["topic: t partition: 0 offset: 6"]
    ids = tmp_path / ".ottla-topic-ids"
    ids.write_text("0\n2\nt AAECAwQFBgcICQoLDA0ODw\n__ottla_metadata -\n")
    assert dumped(capsys, "--files", ids) == [
        "topic: t topicId: AAECAwQFBgcICQoLDA0ODw",
        "topic: __ottla_metadata topicId: -",
    ]
    closed = tmp_path / ".ottla-closed-logs"
    closed.write_text("0\n1\nt 0 AAECAwQFBgcICQoLDA0ODw 1 6 1 2 413 1700000000000\n")
    assert dumped(capsys, "--files", closed) == [
        "topic: t partition: 0 topicId: AAECAwQFBgcICQoLDA0ODw logStartOffset: 1 logEndOffset: 6 "
        "leaderEpoch: 1 segments: 2 bytes: 413 firstSegmentTimestamp: 1700000000000"
        " transactionIndexBytes: -1 firstOpenTransaction: -1"
    ]
    for text in ("0\n", "0\n2\nt 0 - 1 6 1 2 413 -1\n", "1\n0\n"):
        closed.write_text(text)
        assert run("dump", "--files", closed) == 1
    capsys.readouterr()


def test_indexes_are_compared_with_their_log(tmp_path: Path, capsys: Capture) -> None:
    files = write_log(tmp_path)
    last = dumped(capsys, "--files", files / f"{FIRST}.log")[2]
    position = int(last.split("position: ")[1].split()[0])
    index, times = files / f"{FIRST}.index", files / f"{FIRST}.timeindex"
    assert dumped(capsys, "--files", index) == [f"offset: 2 position: {position}"]
    assert dumped(capsys, "--verify-index-only", "--files", index) == []
    checked = dumped(capsys, "--index-sanity-check", "--files", index)
    assert checked == [f"{index} passed sanity check."]
    assert dumped(capsys, "--files", times)[-1] == f"timestamp: {NOW_MS + 1} offset: 2"
    data = bytearray(index.read_bytes())
    data[3] = 1
    index.write_bytes(data)
    assert run("dump", "--files", index) == 1
    assert capsys.readouterr().err == (
        f"Mismatches in :{index}\n  Index offset: 1, log offset: 2\n"
        f"ottla log dump: {index} is damaged; to see what to do: ottla log verify {files}\n")
    index.write_bytes(data + b"\xff\xff")
    assert run("dump", "--index-sanity-check", "--files", index) == 1
    assert "neither positive nor a multiple of 8" in capsys.readouterr().err


def test_damage_is_told_and_what_can_be_read_is_shown(tmp_path: Path, capsys: Capture) -> None:
    path = write_log(tmp_path) / f"{FIRST}.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:62] + bytes([whole[62] ^ 1]) + whole[63:-1])
    assert run("dump", "--print-data-log", "--files", path) == 1
    seen = capsys.readouterr()
    assert "isvalid: false" in seen.out
    assert "the batch at byte 0 cannot be read" in seen.err
    assert "invalid bytes at the end of " in seen.out
    path.write_bytes(whole[:8] + bytes(4) + whole[12:])
    assert run("dump", "--files", path) == 1
    assert "a batch declares 0 bytes" in capsys.readouterr().err
    path.write_bytes(whole)
    missing = tmp_path / f"{FIRST}.log"
    assert run("dump", "--files", f"{missing},{path.with_suffix('.index')}") == 1
    seen = capsys.readouterr()
    assert str(missing) in seen.err and "offset: 2" in seen.out


def test_the_status_tells_a_damaged_file_from_a_sound_one(tmp_path: Path, capsys: Capture) -> None:
    """Kafka's tool ends with 0 after it has reported damage."""
    files = write_log(tmp_path)
    log, index, times = (files / f"{FIRST}.{kind}" for kind in ("log", "index", "timeindex"))
    checked = ["--deep-iteration", str(log)], [str(log)], [str(index)], [str(times)]
    flipped = log.read_bytes()
    flipped = flipped[:62] + bytes([flipped[62] ^ 1]) + flipped[63:]
    for path, damage, found in (
        (log, log.read_bytes(), []),
        (log, flipped, [checked[0], checked[1]]),
        (log, log.read_bytes()[:-1], [checked[0], checked[1]]),
        (index, b"\0\0\0\1" + index.read_bytes()[4:], [checked[2]]),
        (times, bytes(7) + b"\1" + times.read_bytes()[8:], [checked[3]]),
    ):
        sound = path.read_bytes()
        path.write_bytes(damage)
        for words in checked[:2] if path == log else checked:
            assert run("dump", *words) == (words in found), (path, words)
            said = capsys.readouterr().err.count(f"{words[-1]} is damaged; to see what to do: ")
            assert said == (words in found), (path, words)
            assert main("kafka-dump-log", [*words[:-1], "--files", words[-1]]) == 0
            assert "is damaged" not in capsys.readouterr().err
        path.write_bytes(sound)


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_zeros_that_kafka_allocated_in_advance_are_no_damage(
    tmp_path: Path, capsys: Capture, kind: str
) -> None:
    """As Kafka's tool does, the command prints that the first zero entry does not match the log."""
    log = open_log(tmp_path)
    log.append_bytes(some(b"a", b"b"), 0)
    log.append_bytes(some(b"c"), 0)
    log.close()
    path = tmp_path / "t-0" / f"{FIRST}.{kind}"
    sound = path.read_bytes()
    zeros = bytes(len(sound) * 12)
    path.write_bytes(zeros)
    assert run("dump", path) == 0
    seen = capsys.readouterr()
    assert len(seen.out.splitlines()) == 2 and "is damaged" not in seen.err
    assert {
        "index": f"Mismatches in :{path}\n  Index offset: 0, log offset: 1\n",
        "timeindex": "The following indexed offsets are not found in the log.\n"
        "Indexed offset: 0, found log offset: 1\n",
    }[kind] == seen.err
    assert run("verify", tmp_path / "t-0") == 0
    path.write_bytes(sound + zeros)
    assert run("dump", path) == 0
    capsys.readouterr()
    wrong = {"index": b"\0\0\0\2\0\0\0\0", "timeindex": bytes(11) + b"\1"}[kind]
    path.write_bytes(bytes(len(wrong)) + wrong + zeros)     # a later entry is still damage
    assert run("dump", path) == 1
    assert f"{path} is damaged" in capsys.readouterr().err
    path.write_bytes(zeros)
    path.with_suffix(".log").write_bytes(b"")               # Kafka has just begun the segment
    assert run("dump", path) == 0
    assert "is damaged" not in capsys.readouterr().err


def test_under_kafkas_name_only_a_file_that_cannot_be_read_to_its_end_gives_status_1(
    tmp_path: Path, capsys: Capture
) -> None:
    path = write_log(tmp_path) / f"{FIRST}.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:62] + bytes([whole[62] ^ 1]) + whole[63:])
    assert main("kafka-dump-log", ["--files", str(path)]) == 0
    path.write_bytes(whole[:8] + bytes(4) + whole[12:])
    assert main("kafka-dump-log", ["--files", str(path)]) == 1
    assert "a batch declares 0 bytes" in capsys.readouterr().err


def test_a_damaged_copy_gets_no_advice_that_verify_would_refuse(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_log(tmp_path / "data") / f"{FIRST}.log"
    copy = tmp_path / "0.log"
    copy.write_bytes(source.read_bytes()[:-1])
    assert run("dump", copy) == 1
    assert capsys.readouterr().err == f"ottla log dump: {copy} is damaged\n"
    assert run("verify", tmp_path) == 2                     # verify refuses this directory
    (tmp_path / "meta.properties").touch()
    assert run("dump", copy) == 1
    assert capsys.readouterr().err.endswith(f"is damaged{ADVICE}{tmp_path}\n")
    source.write_bytes(copy.read_bytes())
    monkeypatch.chdir(source.parent)
    assert run("dump", source.name) == 1
    assert capsys.readouterr().err == f"ottla log dump: {source.name} is damaged{ADVICE}.\n"


def test_the_directory_of_a_file_directly_below_the_root_is_the_root(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.listdir", lambda path: [f"{FIRST}.log"] if path == "/" else [])
    assert advice(f"/{FIRST}.log") == f"{ADVICE}/"


def test_gaps_between_offsets_are_no_damage(tmp_path: Path, capsys: Capture) -> None:
    """Compaction leaves them."""
    log = open_log(tmp_path)
    log.append_bytes(some(b"a", b"b"), 0)
    log.close()
    path = tmp_path / "t-0" / f"{FIRST}.log"
    data = path.read_bytes()
    path.write_bytes(data + (7).to_bytes(8, "big") + data[8:])
    assert run("dump", "--deep-iteration", path) == 0
    assert "1 is followed by 7" in capsys.readouterr().err


MISSING = "No such file or directory"


@pytest.mark.parametrize("name", [f"{FIRST}.log", f"{FIRST}.index", "nothing", "."])
def test_a_file_that_cannot_be_opened_is_one_sentence_and_no_line(
    tmp_path: Path, capsys: Capture, name: str
) -> None:
    assert run("dump", "--files", tmp_path / name) == 1
    seen = capsys.readouterr()
    assert not seen.out and seen.err == (
        f"{tmp_path / name}: {'Is a directory; it has no segments' if name == '.' else MISSING}\n")


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_shown(tmp_path: Path, capsys: Capture, magic: int) -> None:
    path = tmp_path / f"{FIRST}.log"
    path.write_bytes(down_convert(some(b"old", b"older", codec=1), magic))
    lines = dumped(capsys, "--print-data-log", "--files", path)
    stamp = f"CreateTime: {NOW_MS + 1}" if magic else "NoTimestampType: -1"
    assert lines[1].startswith(f"offset: 1 position: 0 {stamp} size: ")
    assert f" magic: {magic} compresscodec: gzip crc: " in lines[1]
    assert lines[3].startswith(f"| offset: 1 {stamp} keySize: 1 valueSize: 5 isValid: true crc: ")
    assert lines[3].endswith(" key: k payload: older")


def consumer_offsets(path: Path) -> Path:
    """A log of __consumer_offsets with a commit, a group and a deleted key."""
    subscription = b"\0\0" + ConsumerProtocolSubscription(topics=["t"]).encode(0)
    made = ConsumerProtocolAssignment.AssignedPartition
    assigned = ConsumerProtocolAssignment(assigned_partitions=[made(topic="t", partitions=[0, 1])])
    member = GroupMetadataValue.Member(
        member_id="m", client_id="c", client_host="/::1", session_timeout=9, rebalance_timeout=8,
        subscription=subscription, assignment=b"\0\0" + assigned.encode(0),
    )  # fmt: skip
    group = GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol="range", leader="m", members=[member],
        current_state_timestamp=5,
    )  # fmt: skip
    commit = OffsetCommitValue(offset=12, leader_epoch=1, metadata="é\x1b", commit_timestamp=4)
    key = b"\0\1" + OffsetCommitKey(group="g", topic="t", partition=2).encode(0)
    records = [
        Record(timestamp=NOW_MS, key=key, value=b"\0\3" + commit.encode(3)),
        Record(
            timestamp=NOW_MS,
            key=b"\0\2" + GroupMetadataKey(group="g").encode(0),
            value=b"\0\3" + group.encode(3),
        ),
        Record(timestamp=NOW_MS, key=key, value=None),
        Record(timestamp=NOW_MS, key=b"\0\x63", value=b""),
    ]
    log = open_log(path, "__consumer_offsets-0")
    log.append_bytes(build_batch(records), 0)
    log.close()
    return path / "__consumer_offsets-0" / f"{FIRST}.log"


def test_groups_and_commits_are_shown_as_json(tmp_path: Path, capsys: Capture) -> None:
    path = consumer_offsets(tmp_path)
    lines = dumped(capsys, "--offsets-decoder", "--skip-record-metadata", "--files", path)[2:]
    key = '| key: {"type":"1","data":{"group":"g","topic":"t","partition":2}} payload: '
    assert lines == [
        key + '{"version":"3","data":{"offset":12,"leaderEpoch":1,"metadata":"é\\u001B",'
        '"commitTimestamp":4}}',
        '| key: {"type":"2","data":{"group":"g"}} payload: {"version":"3","data":{"protocolType":'
        '"consumer","generation":3,"protocol":"range","leader":"m","currentStateTimestamp":5,'
        '"members":[{"memberId":"m","groupInstanceId":null,"clientId":"c","clientHost":"/::1",'
        '"rebalanceTimeout":8,"sessionTimeout":9,"subscription":{"topics":["t"],"userData":null},'
        '"assignment":{"assignedPartitions":[{"topic":"t","partitions":[0,1]}],"userData":null}}]}'
        "}",
        key + "<DELETE>",
        "| key: Unknown record type 99 at offset 3, skipping.",
    ]


def test_kraft_records_are_shown_as_json(tmp_path: Path, capsys: Capture) -> None:
    log = open_log(tmp_path)
    body = TopicRecord(name="t", topic_id=b"\xff" * 16).encode(0)
    log.append_bytes(
        build_batch([
            Record(timestamp=NOW_MS, value=b"\1\2\0" + body),
            Record(timestamp=NOW_MS, value=b"\1\x7f\0"),
        ]),
        0,
    )
    log.close()
    path = tmp_path / "t-0" / f"{FIRST}.log"
    flags = ["--cluster-metadata-decoder", "--skip-record-metadata"]
    assert dumped(capsys, *flags, "--files", path)[2:] == [
        '| payload: {"type":"TOPIC_RECORD","version":0,"data":{"name":"t","topicId":'
        '"_____________________w"}}',
        "| payload: Error at 1, skipping. the metadata record type 127 is unknown",
    ]


def test_numbers_are_read_as_numbers(tmp_path: Path, capsys: Capture) -> None:
    log = open_log(tmp_path)
    log.append_bytes(
        build_batch([Record(timestamp=NOW_MS, key=b"\0\0\0\7", value=b"\0" * 7 + b"\5")]), 0
    )
    log.close()
    path = tmp_path / "t-0" / f"{FIRST}.log"
    flags = ["--key-decoder-class", "org.apache.kafka.tools.api.IntegerDecoder"]
    lines = dumped(capsys, *flags, "--value-decoder-class", "LongDecoder", "--files", path)
    assert lines[2].endswith("key: 7 payload: 5")
    assert run("dump", "--value-decoder-class", "no.such.Thing", "--files", path) == 2
    assert "no.such.Thing is unknown" in capsys.readouterr().err
    assert run("dump", "--key-decoder-class", "LongDecoder", "--files", path) == 1
    assert "4 bytes are not a long of 8 bytes" in capsys.readouterr().err
