"""A pipeline that cannot run is refused in one sentence before a JVM starts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.client.addresses import show_address
from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import DataLost
from ottla.spark_interop.pipelines import command, progress, steps
from ottla.spark_interop.spark_session import spark_version
from ottla.testing import Broker
from ottla.wire.messages import CreateAclsRequest
from tests.broker.running import RunningBroker
from tests.broker.security.authority import Authority
from tests.broker.security.logging_in import SaslBroker
from tests.foreign_server import HTTP, foreign_server
from tests.spark_interop.preflights import archive_at, refusal

pytestmark = pytest.mark.usefixtures("no_jvm")
TOPIC, LITERAL, ALLOW, READ, WRITE, DESCRIBE = 2, 3, 3, 3, 4, 8  # in Kafka's requests about ACLs
WINDOWS = "windows --topic t --path {new} --window 1day --aggregates n=count(*)"
ACLS = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true"}  # fmt: skip


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
    (f"{WINDOWS} --schema a:INT --time-column tt", 2), (f"{WINDOWS} --schema a:INT --by b", 2),
    (f"{WINDOWS} --schema a:INT --time-column a", 2), (f"{WINDOWS} --schema a:TIMESTMP", 2),
    (f"{WINDOWS} --schema {{new}}.ddl", 1), (f"{WINDOWS} --schema a:INT -b 127.0.0.1:1", 1),
    (f"{WINDOWS} --schema a:INT --aggregates n=sum(a)", 2),
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
    ("quality-report --topic six --archive {archive}",
     "a report is about a topic or about an archive: leave out --topic or --archive"),
    ("slice --topic six --since 2013-06-02 --until 2013-06-02",
     "--since 2013-06-02 is not before --until 2013-06-02: there is no record between them"),
    ("replay --path {archive} --topic six --since 2013-06-02 --until 2013-06-01",
     "--since 2013-06-02 is not before --until 2013-06-01"),
    ("slice --topic six --output json", "--output is a file, not a format"),
    ("slice --topic six --lateness 1h", "--lateness has an effect only with --until: give --until"),
    ("windows --topic six --path {new} --window 1month --aggregates n=count(*) --format raw",
     "'1month' is not valid for --window: months and years have no fixed length"),
    ("windows --topic six --path {new} --window 1.5ms --aggregates n=count(*) --format raw",
     "--window: '1.5ms' is not a whole number of milliseconds: write e.g. 1ms"),
    ("windows --topic six --path {new} --window 0s --aggregates n=count(*) --format raw",
     "'0 seconds' is not valid for --window: it must be above 0"),
    ("windows --topic six --path {new} --window 1h --slide 90m --aggregates n=count(*)"
     " --format raw", "--slide 90m is longer than --window 1h, so records between"),
    ("windows --topic six --path {new} --window 1h --slide 1m --session-gap --by value"
     " --aggregates n=count(*) --format raw", "windows with --session-gap do not overlap: leave"),
    ("windows --topic six --path {new} --window 1h --session-gap --aggregates n=count(*)"
     " --format raw", "--session-gap needs groups: name their columns with --by"),
    ("windows --topic six --path {new} --window 1h --by value --aggregates value=count(*)"
     " --format raw", "the result has a column value already: give another name to it in"),
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


def test_a_session_may_end_after_months(broker: Broker, tmp_path: Path) -> None:
    """Spark refuses months only as the length of a window."""
    words = (f"windows --topic six --path {tmp_path}/new --window 1month --session-gap --by _key"
             f" --aggregates n=count(*) --format raw --bootstrap {broker.bootstrap_servers}")
    with pytest.raises(AssertionError, match="a JVM would have started"):
        command.main(["pipeline", *words.split()])


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
    assert told.err.startswith("ottla pipeline run: pyspark is not installed: run `make spark`")


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
    assert told.err == "ottla pipeline run: step 2 of 2 (latest): records are gone\n"


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
