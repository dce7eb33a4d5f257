"""A pipeline that cannot run is refused in one sentence before a JVM starts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.client.addresses import show_address
from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import DataLost
from ottla.spark_interop.pipelines import command, progress, replay, steps
from ottla.spark_interop.spark_session import spark_version
from ottla.testing import Broker
from ottla.wire.messages import CreateAclsRequest
from tests.broker.running import RunningBroker
from tests.broker.security.authority import Authority
from tests.broker.security.logging_in import SaslBroker
from tests.foreign_server import HTTP, foreign_server

TOPIC, LITERAL, ALLOW, READ, WRITE, DESCRIBE = 2, 3, 3, 3, 4, 8  # in Kafka's requests about ACLs
ACLS = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true"}  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        one.create_topic("six", 6)
        one.create_topic("one", 1)
        yield one


@pytest.fixture(autouse=True)
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise AssertionError("a JVM would have started")

    monkeypatch.setattr(command, "_session", refuse)
    monkeypatch.setattr(command, "spark_version", lambda: "4.2.0")      # pyspark is not needed


def refusal(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    status = command.main(["pipeline", *map(str, words)])
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1, told.err
    name = f"ottla pipeline {words[0]}"
    text = told.err.strip()
    if status == 2:         # the command line is wrong, whatever the cluster has
        assert text.startswith(f"{name}: ") and text.endswith(f"; see {name} --help"), text
        return text.removeprefix(f"{name}: ").removesuffix(f"; see {name} --help")
    assert status == 1
    return text.removeprefix("ottla pipeline: ")


def archive_at(path: Path, partitions: int) -> Path:
    """Write the description and one commit of an archive with this many partitions; returns its
    path."""
    commits = path / "_ottla" / "commits"
    commits.mkdir(parents=True)
    about = {"kind": "archive", "layout": 1, "topic": "six"}
    (path / "_ottla" / "table.json").write_text(json.dumps(about))
    entry = {"bytes": 1, "ranges": {str(p): [0, 1, 2] for p in range(partitions)}}
    commit = {"add": {"data/f": entry}, "remove": [], "batches": {}}
    (commits / "00000000.json").write_text(json.dumps(commit))
    return path


def test_a_replay_into_the_archived_topic_itself_is_refused(
    capsys: pytest.CaptureFixture[str], broker: Broker, tmp_path: Path
) -> None:
    """A user mistyped the topic of a replay. The error suggested the archived topic, the user took
    it, and the replay wrote all of its records a second time."""
    archive = archive_at(tmp_path, 1)
    about = json.loads((archive / "_ottla" / "table.json").read_text())
    about["topic_id"] = Cluster(broker.bootstrap_servers).topic_id("six")
    (archive / "_ottla" / "table.json").write_text(json.dumps(about))
    words = ["replay", "--bootstrap", broker.bootstrap_servers, "--path", archive, "--topic", "six"]
    assert refusal(capsys, *words, "--create") == (
        "the archive was made from six, so six would have the records twice: name another topic, or"
        " delete six and replay with --create")


def test_a_second_replay_of_the_same_name_is_refused_before_a_jvm_starts(
    capsys: pytest.CaptureFixture[str], broker: Broker, tmp_path: Path
) -> None:
    archive, topic = archive_at(tmp_path, 1), broker.create_topic("replayed")
    cluster = Cluster(broker.bootstrap_servers)
    about = json.loads((archive / "_ottla" / "table.json").read_text())
    earlier = replay.destination(cluster, topic, None, about, "archive of another")
    progress.prepare(cluster)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    told = progress.value(7, earlier.source, {topic: cluster.topic_id(topic)})
    producer.produce(progress.TOPIC, told, earlier.key(0), earlier.partition)
    assert producer.flush(30) == 0
    words = ["replay", "--bootstrap", broker.bootstrap_servers, "--path", archive, "--topic", topic]
    assert refusal(capsys, *words) == (
        "`replay-replayed` has written to replayed from another source (archive of another), not"
        " from archive of six  : give this pipeline a name of its own with --name (name=)")
    with pytest.raises(AssertionError, match="a JVM would have started"):
        command.main(["pipeline", *map(str, words), "--name", "second"])


def test_other_windows_on_the_same_path_are_refused_before_a_jvm_starts(
    capsys: pytest.CaptureFixture[str], broker: Broker, tmp_path: Path
) -> None:
    (tmp_path / "_ottla").mkdir()
    about = {"kind": "windows", "layout": 1, "topic": "six", "window": "1 hour", "slide": "",
             "watermark": "10 minutes", "time_column": "_timestamp", "to": "t",
             "name": "n"}  # fmt: skip
    (tmp_path / "_ottla" / "table.json").write_text(json.dumps(about))
    words = ["windows", "--bootstrap", broker.bootstrap_servers, "--topic", "six", "--path",
             tmp_path, "--aggregates", "n=count(*)", "--format", "raw", "--window"]
    kept = ["--watermark", "10 minutes", "--to", "t", "--name", "n"]
    assert refusal(capsys, *words, "2 hours", *kept) == (
        f"{tmp_path} was written with --window 1 hour, but this run has --window 2 hours: give"
        " --window 1 hour again, or name another path")
    said = refusal(capsys, *words, "1 hour", *kept, "--watermark", "1 minute")
    assert "with --watermark 10 minutes, but this run has --watermark 1 minute: give" in said
    said = refusal(capsys, *words, "1 hour")
    assert "with --watermark 10 minutes, but this run has --watermark 1 hour (the default)" in said
    said = refusal(capsys, *words, "1 hour", *kept, "--name", "another")
    assert "with --name n, but this run has --name another" in said
    with pytest.raises(AssertionError, match="a JVM would have started"):
        command.main(["pipeline", *map(str, words), "1 hour", *kept])


def written(place: Path, broker: Broker, kind: str, **options: Any) -> Path:
    """Write the description of a table of the topic `six`, with these options; returns its file."""
    about = Cluster(broker.bootstrap_servers).identity("six") | {"kind": kind, "layout": 1}
    file = place / "_ottla" / "table.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(about | options))
    return file


def test_an_archive_by_another_grain_is_refused_before_a_jvm_starts(
    capsys: pytest.CaptureFixture[str], broker: Broker, tmp_path: Path
) -> None:
    """A trial user saw this refusal only after Spark had started, which took 46 s."""
    written(tmp_path, broker, "archive", by="date", isolation="read_committed")
    words = ["archive", "--bootstrap", broker.bootstrap_servers, "--topic", "six", "--path",
             tmp_path]  # fmt: skip
    assert refusal(capsys, *words, "--by", "hour") == (
        f"{tmp_path} was written with --by date, but this run has --by hour: give --by date again,"
        " or name another path")
    assert "but this run has --by hour (the default): give" in refusal(capsys, *words)
    said = refusal(capsys, *words, "--by", "date", "--isolation", "read_uncommitted")
    assert "with --isolation read_committed, but this run has --isolation read_uncommitted" in said
    with pytest.raises(AssertionError, match="a JVM would have started"):
        command.main(["pipeline", *map(str, words), "--by", "date"])


@pytest.mark.parametrize("kind", ["archive", "latest"])
def test_a_topic_that_was_created_again_is_refused_before_a_jvm_starts(
    capsys: pytest.CaptureFixture[str], broker: Broker, tmp_path: Path, kind: str
) -> None:
    file = written(tmp_path, broker, kind)
    about = json.loads(file.read_text())
    words = [kind, "--bootstrap", broker.bootstrap_servers, "--topic", "six", "--path", tmp_path]
    file.write_text(json.dumps(about | {"topic_id": "another"}))
    assert refusal(capsys, *words).startswith(f"{tmp_path} belongs to an earlier topic named six")
    file.write_text(json.dumps(about | {"cluster": "another"}))
    assert f"{tmp_path} was written with cluster another, but" in refusal(capsys, *words)


@pytest.mark.parametrize(("more", "said"), [
    ("--aggregates m=count(*)",
     "with --aggregates n = count(*), but this run has --aggregates m = count(*): give"),
    ("--by carrier",
     "with --by dep_delay, but this run has --by carrier: give --by dep_delay again"),
    ("--slide 1minute", "with no --slide, but this run has --slide 1minute: leave --slide out, or"),
    ("--session-gap",
     "with no --session-gap, but this run has --session-gap: leave --session-gap out"),
    ("--schema dep_delay:INT", "with the schema carrier string, dep_delay int, but this run has "
     "dep_delay:INT: give the same schema again, or name another path"),
    ("", None),
])  # fmt: skip
def test_windows_with_other_options_are_refused_before_a_jvm_starts(
    capsys: pytest.CaptureFixture[str], broker: Broker, tmp_path: Path, more: str, said: str | None
) -> None:
    written(
        tmp_path, broker, "windows", window="1 hour", slide="", by=["dep_delay"], name="", to="",
        aggregates={"n": "count(*)"}, time_column="_timestamp", watermark="1 hour", updates=False,
        session_gap=False, format="json", schema="carrier string, dep_delay int", schemas="",
    )  # fmt: skip
    words = ["windows", "--bootstrap", broker.bootstrap_servers, "--topic", "six", "--path",
             str(tmp_path), "--aggregates", "n=count(*)", "--by", "dep_delay", "--window", "1 hour",
             "--schema", "carrier STRING, dep_delay INT", *more.split()]  # fmt: skip
    if said is not None:
        assert f"{tmp_path} was written {said}" in refusal(capsys, *words)
        return
    with pytest.raises(AssertionError, match="a JVM would have started"):
        command.main(["pipeline", *words])
    assert capsys.readouterr().err.startswith("starting Spark: ")
    (tmp_path / "_ottla" / "notes").mkdir()
    (tmp_path / "_ottla" / "notes" / "final.json").write_text("true")
    assert f"closed the windows at {tmp_path}" in refusal(capsys, *words)


def test_windows_of_an_older_release_go_on_in_their_topic(broker: Broker, tmp_path: Path) -> None:
    """Older releases did not record the pipeline's name."""
    written(tmp_path, broker, "windows", to="one", window="1 hour")
    with pytest.raises(AssertionError, match="a JVM would have started"):
        command.main([
            "pipeline", "windows", "--bootstrap", broker.bootstrap_servers, "--topic", "six",
            "--path", str(tmp_path), "--aggregates", "n=count(*)", "--window", "1 hour",
            "--to", "one", "--schema", "carrier STRING"])  # fmt: skip


@pytest.mark.parametrize("schema", [
    "carrier STRING /* two words, or none */, dep_delay INT", "carrier STRING COMMENT 'a, b',"
    " dep_delay INT", "carrier STRING, dep_delay INT -- minutes, as text",
])  # fmt: skip
def test_a_schema_with_comments_is_left_to_spark(
    broker: Broker, tmp_path: Path, schema: str
) -> None:
    written(tmp_path, broker, "windows", schema="carrier string, dep_delay int", format="json")
    with pytest.raises(AssertionError, match="a JVM would have started"):
        command.main([
            "pipeline", "windows", "--bootstrap", broker.bootstrap_servers, "--topic", "six",
            "--path", str(tmp_path), "--aggregates", "n=count(*)", "--window", "1 hour",
            "--schema", schema])  # fmt: skip


def test_damaged_records_of_earlier_runs_are_one_sentence(
    capsys: pytest.CaptureFixture[str], broker: Broker, tmp_path: Path
) -> None:
    at = broker.bootstrap_servers
    words = ["dead-letter", "--bootstrap", at, "--topic", "six", "--to", "good", "--dead-letters",
             "bad", "--name", "n", "--checkpoint", tmp_path]  # fmt: skip
    (tmp_path / "ottla-topic.json").write_text("[1]")
    assert refusal(capsys, *words).endswith(
        "ottla-topic.json cannot be read: it is not a JSON object")
    (tmp_path / "ottla-topic.json").unlink()
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text("v1")
    assert "is incomplete: it lacks" in refusal(capsys, *words)
    file = written(tmp_path / "table", broker, "archive")
    file.write_text("[]")
    assert "table.json cannot be read: it is not a JSON object" in refusal(
        capsys, "archive", "--bootstrap", at, "--topic", "six", "--path", tmp_path / "table")


def test_a_checkpoint_of_other_topics_is_refused_before_a_jvm_starts(
    capsys: pytest.CaptureFixture[str], broker: Broker, tmp_path: Path
) -> None:
    at = broker.bootstrap_servers
    claimed = {"topic": "one", "to": "good", "dead_letters": "bad", "name": "n"}
    (tmp_path / "ottla-topic.json").write_text(json.dumps(claimed))
    words = ["dead-letter", "--bootstrap", at, "--to", "good", "--dead-letters", "bad",
             "--checkpoint", tmp_path, "--topic"]  # fmt: skip
    said = refusal(capsys, *words, "six")
    assert said.startswith(f"{tmp_path} was written with topic one, but this run has six: ")
    said = refusal(capsys, *words, "one", "--name", "m")
    assert said.startswith(f"{tmp_path} was written with name n, but this run has m: ")
    mirror = ["mirror", "--source", at, "--destination", at, "--checkpoint", tmp_path, "--topic"]
    said = refusal(capsys, *mirror, "one", "--to", "copy", "--name", "n")
    assert said.startswith(f"{tmp_path} was written with the target good, but this run has copy")


def test_the_checkpoint_of_a_query_on_another_topic_is_refused_before_a_jvm_starts(
    capsys: pytest.CaptureFixture[str], broker: Broker, tmp_path: Path
) -> None:
    for folder, text in ("commits", "v1"), ("offsets", 'v1\n{}\n{"one":{"0":5}}'):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0").write_text(text)
    words = ["dead-letter", "--bootstrap", broker.bootstrap_servers, "--to", "good", "--name", "n",
             "--dead-letters", "bad", "--checkpoint", tmp_path, "--topic", "six"]  # fmt: skip
    assert refusal(capsys, *words) == (
        f"{tmp_path} is the checkpoint of a query that reads one, but this run reads six: name "
        "another path")


@pytest.mark.parametrize(("words", "said"), [
    ("--memory lots", "'lots' is not an amount of memory: write 2g or 512m"),
    ("--memory 0g", "'0g' is not an amount"), ("--memory 2gb", "'2gb' is not an amount"),
    ("--master locl", "'locl' is not a master of Spark: use local[*]"),
    ("--master local[0]", "'local[0]' is not a master"),
])  # fmt: skip
def test_a_jvm_that_cannot_start_is_not_started(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: str, said: str
) -> None:
    assert said in refusal(capsys, "compact", "--path", tmp_path, *words.split())


@pytest.mark.parametrize(("words", "status"), [
    ("archive --topic t --path {new} --by minute", 2),
    ("archive --topic t --path {new} --memory lots", 2),
    ("windows --topic t --path {new} --window 1dya --aggregates n=count(*)", 2),
    ("windows --topic t --path {new} --window 1day --aggregates n", 2),
    ("replay --topic t --path {new} --since yesterday", 2), ("replay --topic t --path {new}", 1),
    ("dead-letter --topic t --to t --dead-letters b --checkpoint {new}", 2),
    ("run {new}", 1), ("run {new} --memory lots", 2),
    ("archive --topic t --path {new} -b a:b:c", 2),
    ("windows --topic t --path {new} --window 1day --aggregates n=count(*) --time-column t", 2),
    ("slice --topic t --format xml", 2), ("slice --topic t --format json", 2),
])  # fmt: skip
def test_only_an_error_of_the_command_line_alone_has_status_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: str, status: int
) -> None:
    given = words.format(new=tmp_path / "new").split()
    assert command.main(["pipeline", *given]) == status
    assert capsys.readouterr().err.count("--help") == (status == 2)


@pytest.mark.parametrize("words", [
    "--memory 512m", "--memory 2G", "--master local", "--master local[2]", "--master local[2, 3]",
    "--master local[*,4]", "--master spark://host:7077", "--master yarn",
])  # fmt: skip
def test_what_spark_takes_is_accepted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: str
) -> None:
    said = refusal(capsys, "compact", "--path", tmp_path / "no", *words.split(" ", 1))
    assert "is not a table of `archive`" in said


def test_an_unreachable_broker_is_one_sentence_before_spark_is_asked_for(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """If Spark were started before the broker is asked, the error would be that pyspark is missing,
    or a JVM would print lines of its own."""
    said = refusal(capfd, "archive", "--bootstrap", "127.0.0.1:1", "--topic", "t",
                   "--path", tmp_path / "a")  # fmt: skip
    assert said == (
        "no broker answers at 127.0.0.1:1 (127.0.0.1:1: connection refused): check the address; is "
        "a broker running there? `ottla server start` starts one")
    said = refusal(capfd, "archive", "--bootstrap", "localhost", "--topic", "t", "--path", "a")
    assert said == "'localhost' is not an address: write host:port"


@pytest.mark.parametrize(("says", "told"), [
    (None, "cannot reach a broker at {at}: no answer within 0.2 s; perhaps the service at"),
    (b"", "cannot reach a broker at {at}: the broker closed the connection; perhaps it expects TLS"
     " or a login: this client has security.protocol=PLAINTEXT"),
    (HTTP, "{at}: this is an HTTP server"),
])  # fmt: skip
def test_a_server_that_is_no_broker_is_told_at_once(
    broker: Broker, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    says: bytes | None, told: str,
) -> None:
    monkeypatch.setattr(Cluster, "admin", lambda _: pytest.fail("librdkafka would wait"))
    if says is None:
        monkeypatch.setattr("ottla.spark_interop.cluster.CONNECT_SECONDS", 0.2)
    here = broker.bootstrap_servers
    with foreign_server(says) as at:
        for words in (
            f"archive -b {at} --topic t --path a",
            f"mirror --topic t --source {here} --destination {at} --checkpoint c",
        ):
            assert refusal(capfd, *words.split()).startswith(told.format(at=at))


def test_a_wrong_password_is_told_before_spark_starts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "admin", lambda _: pytest.fail("librdkafka would wait"))
    config = tmp_path / "client.properties"
    with SaslBroker(tmp_path / "data") as running:
        at = show_address(running.inside)
        words = ("archive", "-b", at, "--topic", "t", "--path", "a")
        assert "perhaps it expects TLS or a login" in refusal(capfd, *words)
        config.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
                          "sasl.username=alice\nsasl.password=wrong\n")
        said = refusal(capfd, *words, "--command-config", config)
    assert "password" in said and "check the user's name and password" in said


def test_a_certificate_that_is_not_trusted_names_the_property_of_pipelines(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    key, other = Authority(tmp_path / "one").issue("server"), Authority(tmp_path / "other")
    config = tmp_path / "client.properties"
    config.write_text(f"security.protocol=SSL\nssl.ca.location={other.file}\n")
    with RunningBroker(tmp_path / "data", **{
        "listeners": "SSL://127.0.0.1:0", "ssl.keystore.type": "PEM", "ssl.keystore.location": key,
    }) as running:
        at = f"127.0.0.1:{running.server.listeners[0].port}"
        said = refusal(capfd, "archive", "-b", at, "--topic", "t", "--path", "a",
                       "--command-config", config)
    assert said.endswith("set ssl.ca.location to the file of certificates to trust")


@pytest.mark.parametrize(("words", "said"), [
    ("archive --topic sx --path {new}", "topic sx not found at {at}; did you mean six?"),
    ("archive --topic six --path {file}/a", "{file} is not a directory"),
    ("archive --topic six --path {new} --starting latests",
     "'latests' is not valid for --starting: use earliest, latest, or an offset for each"),
    ('archive --topic six --path {new} --starting {{"one":{{"0":1}}}}', "'{{\"one\""),
    ('archive --topic six --path {new} --starting {{"six":{{"0":"1"}}}}', "'{{\"six\""),
    ('archive --topic six --path {new} --starting {{"six":{{"0":-3}}}}', "'{{\"six\""),
    ("archive --topic six --path /proc/x", "cannot create files in /proc: "),
    ("mirror --topic six --to made --checkpoint /proc/x", "cannot create files in /proc: "),
    ("slice --topic six --output /proc/x", "cannot create files in /proc: "),
    ("archive --topic one --path {archive}",
     "{archive} was written with topic six, but this run has one"),
    ("latest --topic six --path {archive}", "{archive} was written with kind archive"),
    ("latest --topic six --path {full}",
     "{full} has files, but is not a table of `latest`: name another path"),
    ("compact --path {new}", "{new} is not a table of `archive`: it does not exist"),
    ("replay --path {new} --topic six",
     "{new} is not a table of `archive`: it does not exist"),
    ("replay --path {archive} --topic sx",
     "topic sx not found at {at}; did you mean six? --create (in Python create=True) creates sx"),
    ("replay --path {archive} --topic again",
     "topic again not found at {at}; --create (in Python create=True) creates again"),
    ("replay --path {archive} --topic one", "one has 1 partition, but needs at least"),
    ("replay --path {archive} --topic six --since June", "'June' is not a time"),
    ("dead-letter --topic six --to one --dead-letters d --checkpoint {new}", "one has 1"),
    ("dead-letter --topic six --to a/b --dead-letters d --checkpoint {new}", "topic a/b was not"),
    ("mirror --topic six --to one --checkpoint {new}", "one has 1 partition"),
    ("slice --topic six --output {file}", "{file} already exists: name another"),
    ("slice --topic six --format json --schema {new}.ddl", "the schema {new}.ddl cannot be read"),
    ("slice --topic six --format avro --schemas {new}",
     "--schemas is {new}, which is not a directory"),
    ("windows --topic six --path {new} --window 1hour --aggregates n=count(*)",
     "--schema is missing: the format json"),
    ("windows --topic six --path {new} --window 1hour --aggregates n=count(*) --format raw"
     " --updates", "--updates needs a topic: name one with --to. Without --to, only"),
    ("dead-letter --topic six --to x --dead-letters y --checkpoint {new} --schema {ddl}",
     "the format raw has no schema: name another format with --format (json, avro, protobuf)"),
    ("quality-report --topic six --schemas {full}", "the format raw has no schema: name another"),
    ("slice --topic six --lateness 1",
     "--lateness: '1' is not a duration: write a number and a unit (ms, s, m, h, d, w)"),
    ("slice --topic six --format avro --schemas {full}", "{full} has no schema: expected files"),
    ("slice --topic six --format avro --schemas http://127.0.0.1:1",
     "the schema registry does not answer at http://127.0.0.1:1"),
    ("replay --path {archive} --topic six --timestamps old",
     "--timestamps must be original or now"),
    ("replay --path {archive} --topic six --rate 0", "--rate (records per second) must be above 0"),
    ("dead-letter --topic six --to x --dead-letters x --checkpoint {new}",
     "good and bad records would both go to x: name two topics"),
    ("dead-letter --topic six --to six --dead-letters x --checkpoint {new}",
     "six would be both read and written"),
    ("dead-letter --topic six --to x --dead-letters y --checkpoint {new} --share-max 5",
     "5.0 is not valid for --share-max: use a share from 0 to 1, such as 0.05"),
    ("mirror --topic six --checkpoint {new}", "six would be mirrored into itself"),
    ("quality-report", "give --topic and its cluster's address (--bootstrap), or --archive"),
    ("quality-report --archive {archive} --since 2013-06-01",
     "a report about an archive covers all of its records: leave out --since and"),
    ("archive --topic six --path {new} --by dat", "'dat' is not valid for --by: use hour or date"),
    ("archive --topic six --path {new} --every 1minit", "'1minit' is not valid for --every"),
    ("windows --topic six --path {new} --window 1dya --aggregates n=count(*) --format raw",
     "'1dya' is not valid for --window: write a number and a unit, such as 10m or '10 minutes';"
     " units: ms, s, m, h, d, w, millisecond"),
    ("windows --topic none --path {file}/x --window 1dya --aggregates n=count(*) --schemas {new}",
     "'1dya' is not valid for --window"),      # not that topic none is missing
    ("slice --topic none --format json --since yesterday", "'yesterday' is not a time"),
    ("windows --topic six --path {new} --window 1hour --watermark 10 --aggregates n=count(*)"
     " --format raw", "'10' is not valid for --watermark: write a number and a unit"),
    ("archive --topic six --path {new} --every 1",
     "'1' is not valid for --every: write a number and a unit"),
    ("windows --topic six --path {new} --window 1hour --schema {ddl} --aggregates n=avg(dep_dela)",
     "--aggregates, n = avg(dep_dela): there is no column dep_dela; the columns are carrier, "
     "dep_delay; did you"),
    ("windows --topic six --path {new} --window 1hour --schema {ddl} --aggregates n=count(*)"
     " --by carier",
     "--by: there is no column carier; the columns are carrier, dep_delay; did you mean carrier"),
    ("windows --topic six --path {new} --window 1hour --schema {ddl} --aggregates n=count(*)"
     " --time-column time", "--time-column: there is no column time; the columns are carrier"),
    ("windows --topic six --path {new} --window 1hour --schema {ddl} --aggregates n=count(*)"
     " --time-column carrier", "--time-column: carrier is of type STRING, but the event time must"
     " be a TIMESTAMP: declare carrier as TIMESTAMP in the schema"),
    ("slice --topic six --format json --schema at:TIMESTMP",
     "the schema's column at: there is no type TIMESTMP; did you mean TIMESTAMP?"),
])  # fmt: skip
def test_each_step_is_checked_before_a_jvm_starts(
    broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").touch()
    places = {name: tmp_path / name for name in ("full", "new", "file")}
    places["archive"] = archive_at(tmp_path / "archive", 6)
    at = broker.bootstrap_servers
    (tmp_path / "file").touch()
    more = ["--source", broker.bootstrap_servers, "--destination", broker.bootstrap_servers]
    given = words.format(at=at, ddl="carrier:STRING,dep_delay:INT", **places).split()
    if given[0] != "compact":
        given += more if given[0] == "mirror" else ["--bootstrap", broker.bootstrap_servers]
    assert refusal(capfd, *given).startswith(said.format(at=at, **places))


def allow(broker: Broker, topic: str, operation: int, user: str = "ANONYMOUS") -> None:
    allowed = CreateAclsRequest.Creation(
        resource_type=TOPIC, resource_name=topic, resource_pattern_type=LITERAL,
        principal=f"User:{user}", host="*", operation=operation, permission_type=ALLOW,
    )  # fmt: skip
    made = broker.request(CreateAclsRequest(creations=[allowed]))
    assert made.results[0].error_code == 0


def test_the_right_to_read_settings_is_asked_for_before_a_jvm_starts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Broker(ACLS) as broker:
        at, checkpoint = broker.bootstrap_servers, ("--checkpoint", tmp_path / "c")
        for name in ("t", "free"):
            broker.create_topic(name)
        for operation in (READ, WRITE):
            allow(broker, "t", operation)
        read, free = (("--bootstrap", at, "--topic", name) for name in ("t", "free"))
        path = ("--path", tmp_path / "new")
        windows = ("--window", "1 hour", "--aggregates", "n=count(*)", "--format", "raw")
        mirror = ("mirror", "--source", at, "--destination", at, *checkpoint)
        refused: list[tuple[object, ...]] = [
            ("archive", *read, *path),
            ("dead-letter", *read, *checkpoint, "--to", "a", "--dead-letters", "b"),
            (*mirror, "--topic", "t", "--to", "a"),
            # topics that are written
            ("dead-letter", *free, *checkpoint, "--to", "free-good", "--dead-letters", "t"),
            (*mirror, "--topic", "free", "--to", "t"),
            ("windows", *free, *path, *windows, "--to", "t"),
            ("replay", *read, "--path", archive_at(tmp_path / "archive", 1)),
        ]
        for words in refused:
            assert refusal(capfd, *words) == (
                f"not authorized to read the settings of topic t at {at}: allow the operation"
                " DescribeConfigs on it")
        # Others do not need the right, nor does an archive that has recorded the settings.
        notes = tmp_path / "begun" / "_ottla" / "notes"
        notes.mkdir(parents=True)
        (notes.parent / "table.json").write_text('{"kind": "archive", "layout": 1, "topic": "t"}')
        (notes / "settings.json").write_text("{}")
        runs: list[tuple[object, ...]] = [
            ("slice", *read), ("windows", *read, *path, *windows),
            ("archive", *read, "--path", tmp_path / "begun"),
        ]  # fmt: skip
        for words in runs:
            with pytest.raises(AssertionError, match="a JVM would have started"):
                command.main(["pipeline", *map(str, words)])


def test_rights_are_asked_for_before_a_jvm_starts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Broker(ACLS) as broker:
        at = broker.bootstrap_servers
        users = {"seen-only": "ANONYMOUS", "hidden": "somebody-else", "free": None,
                 progress.TOPIC: "ANONYMOUS"}  # fmt: skip
        for name, user in users.items():
            broker.create_topic(name)
            if user is not None:
                allow(broker, name, DESCRIBE, user)
        words = ("--bootstrap", at, "--topic")
        said = refusal(capfd, "latest", *words, "seen-only", "--path", tmp_path / "a")
        assert said.startswith("not authorized to read topic seen-only at"), said
        assert said.endswith("allow the operation Read on it")
        said = refusal(capfd, "latest", *words, "hidden", "--path", tmp_path / "a")
        assert said.startswith("topic hidden at") and "TOPIC_AUTHORIZATION_FAILED" in said
        more = ("--checkpoint", tmp_path / "c", "--dead-letters", "d", "--to")
        said = refusal(capfd, "dead-letter", *words, "free", *more, "seen-only")
        assert said.startswith("not authorized to write topic seen-only at")
        said = refusal(capfd, "dead-letter", *words, "free", *more, "hidden")
        assert said.startswith("topic hidden at") and "TOPIC_AUTHORIZATION_FAILED" in said
        # The topic with the pipelines' progress is checked, too.
        said = refusal(capfd, "dead-letter", *words, "free", *more, "new")
        assert said.startswith(f"not authorized to read topic {progress.TOPIC} at")
        more = ("--source", at, "--destination", at, "--checkpoint", tmp_path / "c", "--to")
        said = refusal(capfd, "mirror", "--topic", "free", *more, "new")
        assert said.startswith(f"not authorized to read topic {progress.TOPIC} at")


def test_security_properties_that_cannot_be_are_one_sentence(
    broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config, words = tmp_path / "p", ("latest", "--bootstrap", broker.bootstrap_servers, "--topic",
                                     "six", "--path", "a", "--command-config")  # fmt: skip
    assert refusal(capfd, *words, config).endswith("cannot be read: No such file or directory")
    config.write_text("sasl.username=me\nsasl.mechanism=NONE\n")
    assert refusal(capfd, *words, config).startswith("sasl.mechanism=NONE is unknown")
    config.write_text("security.protocol=NONE\n")
    assert "security.protocol" in refusal(capfd, *words, config)


def test_a_file_that_is_not_utf_8_is_refused_in_one_sentence(
    broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """PowerShell writes UTF-16 to files."""
    (tmp_path / "schemas").mkdir()
    names = ("steps.toml", "security", "value.avsc", "schemas/1.avsc")
    steps_file, security, schema, by_id = (tmp_path / name for name in names)
    for file in (steps_file, security, schema, by_id):
        file.write_text('{"type": "string"}', "utf-16")
    at = "--bootstrap", broker.bootstrap_servers, "--topic", "six"
    windows = ("windows", *at, "--path", tmp_path / "w", "--window", "1 hour", "--aggregates",
               "n=count(*)", "--format", "avro")  # fmt: skip
    for words, file in (
        (("run", steps_file), steps_file),
        (("latest", *at, "--path", tmp_path / "l", "--command-config", security), security),
        ((*windows, "--schema", schema), schema),
        ((*windows, "--schemas", tmp_path / "schemas"), by_id),
    ):
        assert refusal(capfd, *words).endswith(f"{file} cannot be read: it is not UTF-8")


def file_of(broker: Broker, tmp_path: Path, *rows: str) -> Path:
    file = tmp_path / "steps.toml"
    steps_text = "\n".join(f"[[step]]\n{row}" for row in rows)
    file.write_text(f'bootstrap = "{broker.bootstrap_servers}"\n{steps_text}\n')
    return file


def test_a_missing_path_is_answered_with_similar_ones(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    archive_at(tmp_path / "flights-archive", 1)
    (tmp_path / "flights-archived").mkdir()     # not suggested: it has no archive
    (tmp_path / "history.jsonl").touch()
    (tmp_path / "flights.ddl").touch()
    assert refusal(capsys, "verify", "--path", tmp_path / "flights-archiv") == (
        f"{tmp_path}/flights-archiv is not a table of `archive`: it does not exist;"
        " similar: flights-archive")
    said = refusal(capsys, "check-history", "--path", tmp_path / "histori.jsonl")
    assert said == f"{tmp_path}/histori.jsonl does not exist; similar: history.jsonl"
    words = "slice", "--topic", "six", "--format", "json", "--schema", tmp_path / "flight.ddl"
    assert refusal(capsys, *words).endswith("no such file; similar: flights.ddl")
    assert refusal(capsys, "verify", "--path", tmp_path / "no" / "x").endswith("does not exist")


def test_a_file_is_checked_whole_with_what_its_steps_make(
    broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    archive_step = f'run = "archive"\ntopic = "six"\npath = "{tmp_path}/a"'
    replay = f'run = "replay"\npath = "{tmp_path}/./a"\ntopic = "again"'
    latest = f'run = "latest"\ntopic = "again"\npath = "{tmp_path}/l"'
    file = file_of(broker, tmp_path, archive_step, replay + "\ncreate = true", latest)
    assert command.main(["pipeline", "run", str(file), "--check"]) == 0
    assert "3 steps" in capfd.readouterr().out
    assert not (tmp_path / "a").exists()
    file = file_of(broker, tmp_path, archive_step, replay)
    assert refusal(capfd, "run", file).startswith(f"{file}, step 2 (replay): topic again not found")
    said = refusal(capfd, "run", file, "-b", "127.0.0.1:1")
    assert "no broker answers at 127.0.0.1:1" in said


def test_a_count_in_a_file_is_at_least_1(
    broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """On the command line, the parser of arguments refuses a count below 1."""
    step = f'run = "archive"\ntopic = "six"\npath = "{tmp_path}/a"\nrecords_per_batch = -5'
    said = refusal(capfd, "run", file_of(broker, tmp_path, step))
    assert "-5 is not valid for `records_per_batch`: use 1 or more" in said


def test_a_wrong_value_in_a_later_step_is_reported_before_any_broker_is_asked(
    broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The error says `by`, not --by: a file has the names of the functions' arguments."""
    first = f'run = "archive"\ntopic = "six"\npath = "{tmp_path}/a"'
    second = f'run = "archive"\ntopic = "six"\npath = "{tmp_path}/b"\nby = "dat"'
    file = file_of(broker, tmp_path, first, second)
    said = refusal(capfd, "run", file, "-b", "127.0.0.1:1")
    assert said.startswith(f"{file}, step 2 (archive): 'dat' is not valid for `by`: use hour or")


def test_a_missing_directory_of_jars_is_refused_before_a_jvm_starts(
    broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["archive", "--topic", "six", "--path", tmp_path / "a", "--jars", tmp_path / "none",
             "--bootstrap", broker.bootstrap_servers]  # fmt: skip
    assert refusal(capfd, *words).startswith(f"--jars {tmp_path / 'none'}: no such directory; ")


def test_a_check_where_pyspark_is_not_installed_says_so(
    broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(command, "spark_version", spark_version)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    file = file_of(broker, tmp_path, f'run = "archive"\ntopic = "six"\npath = "{tmp_path}/a"')
    assert command.main(["pipeline", "run", str(file), "--check"]) == 0
    told = capfd.readouterr()
    assert told.out == f"{file}: 1 step, no errors found\n"
    assert told.err.startswith("ottla pipeline: pyspark is not installed: run `make spark`")


def test_the_summaries_of_completed_steps_are_printed_when_a_later_one_fails(
    broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def run(step: steps.Step, _spark: object, given: dict[str, Any]) -> dict[str, Any]:
        if step.name == "latest":
            raise DataLost("records are gone")
        return {"records": 7}

    monkeypatch.setattr(command, "_session", lambda _: None)
    monkeypatch.setattr(steps.Step, "run", run)
    file = file_of(broker, tmp_path, f'run = "archive"\ntopic = "six"\npath = "{tmp_path}/a"',
                   f'run = "latest"\ntopic = "six"\npath = "{tmp_path}/l"')  # fmt: skip
    assert command.main(["pipeline", "run", str(file), "--quiet"]) == 1
    told = capfd.readouterr()
    assert json.loads(told.out) == [{"step": "archive", "records": 7}]
    assert told.err == "ottla pipeline: step 2 of 2 (latest): records are gone\n"


def test_what_a_first_run_left_that_was_killed_at_once_is_no_obstacle(
    broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "a" / "_ottla"
    place.mkdir(parents=True)
    for name in ("writer.lock", ".table.json.tmp", "..table.json.tmp.crc"):
        (place / name).touch()
    file = file_of(broker, tmp_path, f'run = "archive"\ntopic = "six"\npath = "{tmp_path}/a"')
    assert command.main(["pipeline", "run", str(file), "--check"]) == 0
    assert "1 step, no errors found" in capfd.readouterr().out
    (tmp_path / "a" / "data.csv").touch()
    assert "has files, but is not a table of `archive`" in refusal(capfd, "run", file)
