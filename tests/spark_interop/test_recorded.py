"""A run that contradicts what earlier runs recorded is refused before a JVM starts."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.pipelines import command, progress, replay
from ottla.testing import Broker
from tests.spark_interop.preflights import archive_at, refusal

pytestmark = pytest.mark.usefixtures("no_jvm")


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


@pytest.mark.parametrize(("written", "given", "times", "refused"), [
    ("one", "one", "", False), (None, "one", "", False), ("two", "one", "", True),
    ("one", "one", ", times 5 to ", True), (None, "one", ", times 5 to ", True),
])  # fmt: skip
def test_a_replays_name_stands_for_one_archive_and_one_range_before_a_jvm_starts(
    capsys: pytest.CaptureFixture[str], broker: Broker, tmp_path: Path, written: str | None,
    given: str, times: str, refused: bool,
) -> None:  # fmt: skip
    """Of two archives of one topic, the second one may have earlier records. Its replay under the
    first one's name once counted them as written. Older releases did not record the archive's
    id."""
    archive, topic = archive_at(tmp_path, 1), broker.create_topic(f"again-{uuid.uuid4().hex}")
    file = archive / "_ottla" / "table.json"
    about = json.loads(file.read_text())
    file.write_text(json.dumps(about | {"id": given}))
    cluster = Cluster(broker.bootstrap_servers)
    of = about if written is None else about | {"id": written}
    earlier = replay.destination(cluster, topic, None, of, times)
    progress.prepare(cluster)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    told = progress.value(7, earlier.source, {topic: cluster.topic_id(topic)})
    producer.produce(progress.TOPIC, told, earlier.key(0), earlier.partition)
    assert producer.flush(30) == 0
    words = ["replay", "--bootstrap", broker.bootstrap_servers, "--path", archive, "--topic", topic]
    if refused:
        assert refusal(capsys, *words) == (
            f"`replay-{topic}` has written to {topic} from another source ({earlier.source}), not"
            " from archive one of six  : give this pipeline a name of its own with --name (name=);"
            " it then writes all of its records")
        words += ["--name", "second"]
    with pytest.raises(AssertionError, match="a JVM would have started"):
        command.main(["pipeline", *map(str, words)])


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
     "with --aggregates n = count(*), but this run has --aggregates n = count(*), m = count(*):"),
    ("--by carrier",
     "with --by dep_delay, but this run has --by dep_delay, carrier: give --by dep_delay again"),
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


def test_sessions_that_were_written_with_slide_go_on_without_it(
    capsys: pytest.CaptureFixture[str], broker: Broker, tmp_path: Path
) -> None:
    """A former version accepted `slide` beside `session_gap`, ignored it, and recorded it."""
    written(tmp_path, broker, "windows", window="1 hour", slide="1 minute", session_gap=True,
            by=["_key"], to="")  # fmt: skip
    words = ["windows", "--bootstrap", broker.bootstrap_servers, "--topic", "six", "--path",
             str(tmp_path), "--aggregates", "n=count(*)", "--by", "_key", "--window", "1 hour",
             "--format", "raw"]  # fmt: skip
    with pytest.raises(AssertionError, match="a JVM would have started"):
        command.main(["pipeline", *words, "--session-gap"])
    capsys.readouterr()
    assert "give --session-gap again" in refusal(capsys, *words), "not that --slide is missing"


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
