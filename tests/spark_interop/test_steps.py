"""Files of steps and options are checked before anything starts; times are parsed."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ottla.spark_interop import offsets, schemas
from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import PipelineError
from ottla.spark_interop.pipelines import command, preflight, steps
from ottla.spark_interop.pipelines.query_run import trigger_of
from ottla.spark_interop.pipelines.windows import settings_of
from ottla.spark_interop.times import duration_ms, interval, milliseconds

GOOD = """
bootstrap = "localhost:1"
[[step]]
run = "archive"
topic = "flights"
path = "a"
[[step]]
run = "replay"
path = "a"
topic = "again"
rate = 100
"""


def test_what_steps_have_in_common_reaches_those_that_know_it(tmp_path: Path) -> None:
    file = tmp_path / "good.toml"
    file.write_text(GOOD)
    [(archive, first), (replay, second)] = steps.load_file(file)
    assert (archive.name, replay.name) == ("archive", "replay")
    assert first == {"bootstrap": "localhost:1", "topic": "flights", "path": "a"}
    assert second["bootstrap"] == "localhost:1" and second["rate"] == 100


WINDOWS = 'run = "windows"\npath = "w"\nwindow = "1h"\naggregates = { n = "count(*)" }\n'


@pytest.mark.parametrize(("shared", "step", "given", "left"), [
    ('topic = "t"', 'run = "quality-report"\narchive = "a"', "archive", "topic"),
    ('topic = "t"\narchive = "a"', 'run = "quality-report"', "archive", "topic"),
    ('archive = "a"', 'run = "quality-report"\ntopic = "t"', "topic", "archive"),
    ('topic = "t"', 'run = "quality-report"', "topic", "archive"),
    ('topic = "t"\nlateness = "1h"', 'run = "slice"', "topic", "lateness"),
    ('topic = "t"\nlateness = "1h"', 'run = "slice"\nuntil = 2013-06-01', "lateness", "since"),
    ('topic = "t"\nslide = "1m"\nformat = "raw"',
     WINDOWS + 'by = ["_key"]\nsession_gap = true', "session_gap", "slide"),
    ('topic = "t"\nslide = "1m"\nformat = "raw"', WINDOWS + "session_gap = false", "slide", "to"),
    ('topic = "t"\nupdates = true\nformat = "raw"', WINDOWS, "topic", "updates"),
    ('topic = "t"\nupdates = true\nformat = "raw"', WINDOWS + 'to = "u"', "updates", "every"),
    ('topic = "t"\nevery = "1m"\nformat = "raw"', WINDOWS + "final = true", "final", "every"),
])  # fmt: skip
def test_a_shared_option_that_has_no_effect_on_a_step_is_not_given_to_it(
    tmp_path: Path, shared: str, step: str, given: str, left: str
) -> None:
    """Other steps need the option, so it cannot be left out above the steps."""
    file = tmp_path / "steps.toml"
    file.write_text(f"{shared}\n[[step]]\n{step}\n")
    todo = steps.load_file(file)
    assert given in todo[0][1] and left not in todo[0][1]
    preflight.check_values(todo, str(file))


@pytest.mark.parametrize(("step", "message"), [
    ('run = "quality-report"\narchive = "a"\ntopic = "t"', "leave out `topic` or `archive`"),
    ('run = "slice"\ntopic = "t"\nlateness = "1h"', "`lateness` has an effect only with `until`"),
    (WINDOWS + 'topic = "t"\nby = ["_key"]\nsession_gap = true\nslide = "1m"', "do not overlap"),
])  # fmt: skip
def test_a_steps_own_option_that_has_no_effect_is_refused(
    tmp_path: Path, step: str, message: str
) -> None:
    file = tmp_path / "steps.toml"
    file.write_text(f"[[step]]\n{step}\n")
    with pytest.raises(PipelineError, match=message):
        preflight.check_values(steps.load_file(file), str(file))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('run = "archive"', 'run = "archiv"', "'archiv' is not a pipeline; similar: archive$"),
        ('run = "archive"', 'run = "x"', "'x' is not a pipeline; the pipelines are archive,"),
        ('run = "archive"', 'runs = "archive"', 'lacks the line run = "PIPELINE"; similar: runs$'),
        ('topic = "flights"\n', "", "step 1: archive needs `topic`"),
        ("rate = 100", 'rate = "fast"', "step 2: `rate` must be a number, not 'fast'"),
        ("rate = 100", "ratte = 100", "step 2: replay has no option 'ratte'; similar: rate,"),
        ("rate = 100", "color = 1", "step 2: replay has no option 'color'; its options are path"),
        ("[[step]]", "[[steps]]", r"has no \[\[step\]\]; similar: steps$"),
        ("[[step]]", "[step]", "is not TOML|has no"),
        (
            'bootstrap = "localhost:1"',
            'color = 1\nbootstrap = "x:1"',
            "no step has these options: color$",
        ),
        (
            'bootstrap = "localhost:1"',
            'bootstarp = "x:1"',
            "no step has these options: bootstarp; similar: bootstrap$",
        ),
    ],
)
def test_a_file_that_cannot_run_is_refused_with_its_place(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(GOOD.replace(old, new))
    with pytest.raises(PipelineError, match=message):
        steps.load_file(file)


def test_a_file_has_times_and_home_directories_as_people_write_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory named ~ was created. A date without quotes was refused, and a number as SQL ended
    with a traceback."""
    monkeypatch.setenv("HOME", "/home/me")
    file, step = tmp_path / "steps.toml", '[[step]]\nrun = "replay"\ntopic = "t"\npath = "~/a"\n'
    times = {"2013-06-01": "2013-06-01", "2013-06-01T12:30:00Z": "2013-06-01T12:30:00+00:00",
             "1370044800000": "1370044800000", "'2013-06-01'": "2013-06-01"}  # fmt: skip
    for written, since in times.items():
        file.write_text(f"{step}since = {written}\n")
        [(_, given)] = steps.load_file(file)
        assert given["path"] == "/home/me/a" and given["since"] == since
        assert milliseconds(since)
    words = command.parser().parse_args(["replay", "--topic", "t", "--path=~/a"])
    assert command.given_to(steps.BY_NAME["replay"], words)["path"] == "/home/me/a"
    file.write_text('[[step]]\nrun = "windows"\ntopic = "t"\npath = "p"\nwindow = "1d"\n'
                    'aggregates = { n = 5 }\n')  # fmt: skip
    with pytest.raises(PipelineError, match="the SQL in `aggregates` must be a text, not 5"):
        steps.load_file(file)


def test_a_directory_of_the_name_tilde_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A former version wrote to ./~/a, so its archive and checkpoint are there."""
    home, file = tmp_path / "home", tmp_path / "steps.toml"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~" / "a").mkdir(parents=True)
    file.write_text('[[step]]\nrun = "archive"\ntopic = "t"\npath = "~/a"\n')
    with pytest.raises(PipelineError) as refused:
        steps.load_file(file)
    assert str(refused.value) == (
        f"{file}, step 1: `path` ~/a is {home}/a, which does not exist, but ./~/a does: a former"
        f" version wrote there. Move it to {home}/a, or write ./~/a")
    (home / "a").mkdir(parents=True)
    assert steps.load_file(file)[0][1]["path"] == f"{home}/a"
    file.write_text(file.read_text().replace("~/a", "./~/a"))
    assert steps.load_file(file)[0][1]["path"] == "./~/a"


def test_an_address_that_no_step_takes_is_not_the_files_mistake(tmp_path: Path) -> None:
    file = tmp_path / "steps.toml"
    file.write_text('[[step]]\nrun = "compact"\npath = "a"\n')
    with pytest.raises(PipelineError, match=r"--bootstrap-server has no effect: leave it out$"):
        steps.load_file(file, "h:1")
    with file.open("a") as more:
        more.write('[[step]]\nrun = "mirror"\ntopic = "t"\nsource = "h:1"\n'
                   'destination = "h:2"\ncheckpoint = "c"\n')  # fmt: skip
    with pytest.raises(PipelineError, match=r"leave it out, and give the addresses in the steps$"):
        steps.load_file(file, "h:1")


def test_every_example_is_a_command_that_is_accepted() -> None:
    for step in steps.STEPS:
        options = command.parser().parse_args(shlex.split(step.example)[2:])
        assert options.command == step.name


def test_a_flag_with_several_values_may_be_repeated() -> None:
    """Of a repeated flag, the command once took only the last value."""
    words = "windows --topic t --path p --window 1d --by a --by b c --aggregates x=count(*)" \
        " --aggregates y=max(d)"
    given = command.given_to(steps.BY_NAME["windows"], command.parser().parse_args(words.split()))
    assert given["by"] == ["a", "b", "c"]
    assert given["aggregates"] == {"x": "count(*)", "y": "max(d)"}
    twice = command.parser().parse_args([*words.split(), "x=min(d)"])
    with pytest.raises(PipelineError, match="--aggregates: two columns have the name x"):
        command.given_to(steps.BY_NAME["windows"], twice)


def test_a_topic_without_an_address_is_where_all_commands_look_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "steps.toml"
    file.write_text('[[step]]\nrun = "latest"\ntopic = "t"\npath = "p"\n')

    def address(line: str) -> str | None:
        options = command.parser().parse_args(shlex.split(line))
        found = command.given_to(steps.BY_NAME[options.command], options).get("bootstrap")
        assert found is None or isinstance(found, str)
        return found

    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVERS", raising=False)
    archive = "archive --topic t --path p"
    assert address(archive) == "localhost:9092"
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "h:1")
    assert address(archive) == address("quality-report --topic t") == "h:1"
    assert steps.load_file(file)[0][1]["bootstrap"] == "h:1"
    for flag in ("--bootstrap-server", "--bootstrap", "-b"):
        given = command.parser().parse_args(["run", str(file), flag, "h:2"])
        assert steps.load_file(given.file, given.bootstrap)[0][1]["bootstrap"] == "h:2"
    for flag in ("--bootstrap-server", "--bootstrap", "-b"):
        assert address(f"{archive} {flag} h:2") == "h:2"
    assert address("verify --path p") is None, "compared with a topic where one is named"
    assert address("quality-report --archive p") is None


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("2013-06-01", "UTC", "2013-06-01T00:00+00:00"),
        ("2013-06-01", "America/New_York", "2013-06-01T04:00+00:00"),
        ("2013-06-01T12:30+02:00", "America/New_York", "2013-06-01T10:30+00:00"),
        ("1370044800000", "America/New_York", "2013-06-01T00:00+00:00"),
        ("@1370044800000", "UTC", "2013-06-01T00:00+00:00"),    # as for the other commands
        ("@2013-06-01", "UTC", "2013-06-01T00:00+00:00"),
        ("0", "America/New_York", "1970-01-01T00:00+00:00"),
    ],
)
def test_times_go_by_their_zone(text: str, zone: str, expected: str) -> None:
    assert milliseconds(text, zone) == int(datetime.fromisoformat(expected).timestamp() * 1000)
    assert milliseconds(datetime(2013, 6, 1, tzinfo=UTC)) == 1_370_044_800_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2013-11-03T01:30", "occurs twice in America/New_York"),
        ("2013-03-10T02:30", "does not exist in America/New_York"),
        ("June", "is not a time"),
    ],
)
def test_times_that_are_none_or_two_are_refused(text: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        milliseconds(text, "America/New_York")


def test_durations_have_units() -> None:
    assert [duration_ms(t) for t in ("500ms", "10s", "5 minutes", "2h", "1 day", "1w")] == [
        500, 10_000, 300_000, 7_200_000, 86_400_000, 604_800_000]  # fmt: skip
    assert [duration_ms(t) for t in ("1h30m", "1.5h", "1 hour 30 minutes")] == [5_400_000] * 3
    for wrong in "10", "1 fortnight", "ms", "-1h", "1h30":
        with pytest.raises(PipelineError, match="is not a duration"):
            duration_ms(wrong)


def test_intervals_have_the_short_units_of_every_other_command() -> None:
    assert [interval(t) for t in ("1h", "90 s", "5M", "2w", "1 day 6 hours", "1hour", "1")] == [
        "1 hour", "90 seconds", "5 minutes", "2 weeks", "1 day 6 hours", "1hour", "1"]
    assert [interval(t) for t in ("1h30m", "1.5h", "1.5 hours", "1 day 6h", "0.25s", "1month")] == [
        "1 hour 30 minutes", "90 minutes", "90 minutes", "1 day 6 hours", "250 milliseconds",
        "1month"]  # fmt: skip
    spark = ["1.5 seconds", "0.0005 Seconds", "1 minute 1.5 second", "2  days"]
    assert [interval(t) for t in spark] == spark, "tables have recorded them"
    assert [interval(t) for t in ("1.5seconds", "1.5 seconds 2m", "1.5 s")] == [
        "1500 milliseconds", "1500 milliseconds 2 minutes", "1500 milliseconds"]
    for wrong in "0.5ms", "0.0001s", "1.5 milliseconds":
        with pytest.raises(PipelineError, match="is not a whole number of milliseconds: write"):
            interval(wrong)
    assert trigger_of("1m") == {"processingTime": "1 minute"}
    recorded = [settings_of({
        "window": window, "slide": slide, "watermark": "1h", "session_gap": False, "to": None,
        "name": None, "time_column": "_timestamp", "by": ["a"], "aggregates": {"n": "count(*)"},
        "format": "raw", "schemas": None, "updates": False,
    }) for window, slide in (("1d", "12h"), ("1 day", "12 hours"))]  # fmt: skip
    assert recorded[0] == recorded[1], "a second run may use the other form"


def test_a_checkpoints_offsets_are_those_of_its_last_committed_batch(tmp_path: Path) -> None:
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    for batch in range(3):
        text = f'v1\n{{"batchWatermarkMs":0}}\n{{"t":{{"0":{batch * 10},"1":5}}}}'
        (tmp_path / "offsets" / str(batch)).write_text(text)
    (tmp_path / "commits" / "0").touch()
    (tmp_path / "commits" / "1").touch()
    assert offsets.offsets_from_checkpoint(tmp_path) == {"t": {0: 10, 1: 5}}
    starting = json.loads(offsets.starting_offsets_from_checkpoint(tmp_path))
    assert starting == {"t": {"0": 10, "1": 5}}
    with pytest.raises(PipelineError, match="is not a checkpoint"):
        offsets.offsets_from_checkpoint(tmp_path / "none")


def test_schemas_of_a_subject_are_its_folders(tmp_path: Path) -> None:
    (tmp_path / "t-value").mkdir()
    (tmp_path / "t-value" / "3.avsc").write_text("three")
    (tmp_path / "9-other.avsc").write_text("nine")
    assert schemas.load(tmp_path, "t-value", "avro").texts == {3: "three"}
    assert schemas.load(tmp_path, "u-value", "avro").newest == 9
    (tmp_path / "name.avsc").touch()
    with pytest.raises(PipelineError, match="does not begin with a schema id"):
        schemas.load(tmp_path, "u-value", "avro")


def test_security_properties_become_those_of_the_java_client(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# a comment\nsecurity.protocol=SASL_SSL\nsasl.mechanism = SCRAM-SHA-256\n"
        'sasl.username=me\nsasl.password=a"b\nssl.ca.location=/ca.pem\n'
    )
    options = Cluster.from_file("h:1", file).spark_options()
    assert options["kafka.ssl.truststore.type"] == "PEM"
    login = options["kafka.sasl.jaas.config"]
    assert "ScramLoginModule required" in login and 'password="a\\"b"' in login
    with pytest.raises(PipelineError, match=r"ssl\.colour is unknown to pipelines"):
        Cluster("h:1", {"ssl.colour": "red"}).spark_options()
