"""Numbers that are too large, flags that exclude each other and other wrong values are refused in
one line, and nothing is done. The exit status of a wrong command line of `ottla` is 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.cli.ottla_command import Ottla

HUGE = "99999999999999999999"
MOST = "9223372036854775807"
NO_OFFSET = f"{HUGE}: the highest offset is {MOST}"


@pytest.mark.parametrize(("line", "said"), [
    (f"consume t --offset {HUGE} -e", f"--offset {NO_OFFSET}; see ottla consume --help"),
    (f"consume t -o {HUGE}", f"-o {NO_OFFSET}"), (f"consume t --offset=-{HUGE}", f"-{NO_OFFSET}"),
    (f"consume t --offset @{HUGE}", f"'{HUGE}' is not a time: expected at most {MOST} millisec"),
    (f"consume t --until {HUGE}", "is not a time"), ("consume t --until 1969-01-01", "before 1970"),
    (f"consume t --offset {'9' * 5000}", "the highest offset"),
    (f"consume t -p {HUGE}", "expected a whole number, 0 to 2147483647; see ottla consume"),
    ("consume t -p 2147483648", "argument --partition/-p: '2147483648': expected a whole number, "),
    (f"consume t -n {HUGE}", f"expected a whole number, 0 to {MOST}"),
    (f"produce t -p {'9' * 5000}", "2147483647"),
    (f"topic trim t --before {HUGE} --yes", f"--before {NO_OFFSET}"),
    (f"topic trim t --partition {HUGE} --before end --yes", " to 2147483647"),
    (f"topic offsets t --at {HUGE}", "is not a time"),
    (f"topic browse t --offset {HUGE}", f"--offset {NO_OFFSET}"),
    (f"topic create u -p {HUGE}", "argument --partitions/-p: "),
    (f"topic grow t -p {HUGE}", " to 2147483647"),
    (f"group reset g --to {HUGE}", f"--to {NO_OFFSET}"),
    (f"group reset g --to +{HUGE}", f"--to +{NO_OFFSET}"),
    (f"group reset g --to @{HUGE}", "is not a time"),
    (f"cluster check --without {HUGE}", "argument --without: "),
    ("topic create u -r 70000", "--replication-factor/-r: '70000': expected a whole number, 1 to"
     " 32767; see"), ("topic create u -r 0", "expected a whole number, 1 to 32767; see"),
    ("cluster start --port 65536", "expected a whole number, 0 to 65535"),
    ("server dev --port 65536", "expected a whole number, 0 to 65535"),
    ("topic list --timeout 99999999999d", "'99999999999d' is too much: expected 36500d or less"),
    (f"transaction list --older {HUGE[:18]}w", "36500d or less"),
    ("perf produce t -s 9TB", "argument --size/-s: '9TB' is too much: expected 2147483647 bytes"),
    (f"perf produce t -n {HUGE}", f"expected a whole number, 1 to {MOST}"),
    (f"log import k --data-dir d --node-id {HUGE}", " to 2147483647"),
])
def test_a_number_that_is_too_large_is_refused(ottla: Ottla, line: str, said: str) -> None:
    refused(ottla, line, said)


def refused(ottla: Ottla, line: str, said: str) -> None:
    done = ottla(line)
    assert done.status == 2 and said in done.err and not done.out, done
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(("line", "said"), [
    ("consume t -o jsonl -f %v", "--output and --format exclude each other: give one of them; see"),
    ("consume t -f %v -K :", "--format and --key-delimiter exclude each other"),
    ("consume t -o 5 -f %v -K :", "--format and --key-delimiter exclude each other"),
    ("consume t -o jsonl -K :", "--key-delimiter has no effect with -o jsonl, which prints keys"),
    ("consume t -G g -X group.id=h", "--group and --property group.id exclude each other"),
    ("consume t -X group.id=h", "--property group.id has no effect: --group names the group"),
    ("consume t --committed -X isolation.level=read_uncommitted", "--committed and --property iso"),
    ("consume t -X client.id=a -X client.id=b", "--property client.id is given twice"),
    ("produce t -b {} -X bootstrap.servers={}", "--bootstrap-server and --property bootstrap.serv"),
    ("produce t --acks 1 -X acks=all", "--acks and --property acks exclude each other"),
    ("produce t -z gzip -X compression.type=lz4", "--compression and --property compression.type"),
    ("produce t -k a -K :", "--key and --key-delimiter exclude each other"),
    ("produce t -p 0 --any-partition -i jsonl", "--partition and --any-partition exclude"),
    ("produce t --any-partition", "--any-partition has no effect without -i jsonl"),
    ("produce t -i jsonl -K :", "--key-delimiter has no effect with -i jsonl"),
    ("produce t -i jsonl -k a", "--key has no effect with -i jsonl"),
    ("produce t -i jsonl -Z", "--null has no effect with -i jsonl"),
    ("produce t -i raw -K :", "--key-delimiter has no effect with -i raw"),
    ("produce t -i raw -D :", "--delimiter has no effect with -i raw"),
    ("produce t -K ''", "--key-delimiter '': expected one or more characters"),
    ("topic create t -c flush.ms=1 -c flush.ms=2", "--config flush.ms is given twice"),
    ("config set topic/t retention.ms=1d retention.ms=2d", "setting retention.ms is given twice"),
    ("topic trim t --partition 0 --partition 1 --before end", "--partition is given twice"),
    ("cluster check --without 1 --without 2", "--without is given twice"),
    ("acl add User:a read topic/t --host 1.1.1.1 --host 1.1.1.2", "--host is given twice"),
    ("acl list --principal User:a --principal User:b", "--principal is given twice"),
    ("quota set user/a user/b consumer_byte_rate=1", "user/b: user/ is given twice; quotas are"),
    ("quota delete client/a client/b consumer_byte_rate", "client/b: client/ is given twice"),
    ("topic create t -p 1 --partitions=2", "--partitions is given twice"),
    ("topic browse --partition 0", "--partition was given without a topic"),
    ("server status --data-dir d -b {}", "--data-dir and --bootstrap-server exclude each other"),
    ("server connections --url http://h -b {}", "--url and --bootstrap-server exclude each other"),
])
def test_flags_of_which_one_would_have_no_effect_are_refused(
    ottla: Ottla, line: str, said: str
) -> None:
    refused(ottla, line.replace("{}", ottla.address), said)


def test_of_a_flag_that_an_alias_may_contain_the_last_one_counts(ottla: Ottla) -> None:
    ottla.ok(f"cluster info -b localhost:1 -o wide --timeout 1 -b {ottla.address} -o json"
             " --timeout 5")


@pytest.mark.parametrize(("line", "said"), [
    ("produce t -X foo=bar", "foo is not a setting of Kafka's clients; see ottla produce --help"),
    ("produce t -X linger.ms=soon", 'linger.ms=soon: Invalid value for configuration prop'),
    ("produce t -X acks=5000", "acks=5000: "), ("consume t -X fetch.wait.max.ms=-7", "ms=-7: "),
    ("consume t -X security.protocol=none", "security.protocol=none: Invalid value"),
    ("topic why t --url nonsense", "--url nonsense: expected http://HOST:PORT, the address of a"),
    ("group why g --url http://", "--url http://: expected http://HOST:PORT"),
    ("server connections --url localhost:9308", "--url localhost:9308: expected http://HOST:PORT"),
    ("server connections --url http://localhost:x", "expected http://HOST:PORT"),
    ("cluster restart-broker x", "argument BROKER: 'x': expected a whole number, 0 or more"),
    ("cluster stop-broker x", "argument BROKER: 'x': expected a whole number"),
    ("group reset g --to noon", "--to noon: expected beginning, end, N, +N, -N or @TIME; see"),
    ("group reset g --topic t:x --to end", "--topic t:x: expected TOPIC, or TOPIC:0,1 for"),
    ("elect t:x", "'t:x': expected TOPIC, or TOPIC:0 for one partition"),
    ("topic browse t --offset noon", "--offset noon: expected beginning, end, N, -N or @TIME"),
    ("produce t -H name", "--header 'name': expected NAME=VALUE"),
    ("quota set user/a producer_byte_rate=nan", "producer_byte_rate=nan: expected a number"),
    ("server dev --override foo", "--override 'foo': expected NAME=VALUE"),
    ("server dev --topic t:99999999999", "2147483647"),
    ("cluster start --override foo /nowhere/c", "--override 'foo': expected NAME=VALUE"),
    ("cluster start --zookeeper a:b:c /nowhere/c", "--zookeeper: 'a:b:c' in 'a:b:c' is not of"),
    ("cluster create --from /nowhere --zookeeper a:b", "--zookeeper: 'a:b' in 'a:b' is not of the"),
])
def test_a_value_is_checked_before_a_broker_is_asked(line: str, said: str) -> None:
    refused(Ottla("127.0.0.1:1"), line, said)


@pytest.mark.parametrize(("line", "argument"), [
    ("acl add User:a read topic/t --host ''", "--host"),
    ("acl delete User:a any '' --yes", "RESOURCE"), ("acl delete User:a '' --yes", "OPERATION"),
    ("mirror --from a:1 --to b:1 --topics ''", "--topics"), ("consume t --until ''", "--until"),
    ("consume t -G ''", "--group/-G"), ("server stop --data-dir ''", "--data-dir"),
    ("topic list --command-config ''", "--command-config"), ("topic describe ''", "TOPIC"),
    ("cluster stop-broker 1 --dir ''", "--dir"), ("topic list ''", "PATTERN"),
])
def test_an_empty_value_is_not_taken_as_none(line: str, argument: str) -> None:
    """An unset variable of a script gives an empty value. If this counted as no value, the command
    would do more than the user wants."""
    refused(Ottla("127.0.0.1:1"), line, f"{argument}: '' is empty: give a value, or leave it out")


def test_a_record_has_every_header_that_is_given(ottla: Ottla) -> None:
    ottla.ok("topic create headed")
    ottla.ok("produce headed -H a=1 -H a=2", b"v\n")
    assert ottla.ok("consume headed -e -f %h") == "a=1,a=2"


@pytest.mark.parametrize(("line", "said"), [
    ("topic trim parts --partition 7 --before end --yes", "parts has no partition 7, only 0 to 2"),
    ("elect parts:7", "parts has no partition 7, only 0 to 2"),
    ("group reset g --topic parts:7 --to end", "parts has no partition 7, only 0 to 2"),
    ("produce parts -p 7 --dry-run", "parts has no partition 7, only 0 to 2"),
    ("consume one -p 7", "one has no partition 7, only 0\n"),
    ("kcat -b {} -Q -t parts:7:0", "% ERROR: parts has no partition 7, only 0 to 2"),
    ("kcat -b {} -C -e -t a:b", "because of ':'"),
])
def test_a_partition_or_a_topic_that_cannot_be_there_is_explained(
    ottla: Ottla, line: str, said: str
) -> None:
    ottla.ok("topic create parts --partitions 3 --if-not-exists")
    ottla.ok("topic create one --partitions 1 --if-not-exists")
    done = ottla(line.format(ottla.address), b"x\n")
    assert done.status == 1 and said in done.err and len(done.err.splitlines()) == 1, done


@pytest.mark.parametrize(("line", "said"), [
    ("kafka-leader-election {} --election-type preferred --topic parts --partition 7",
     "could not be elected; parts has no partition 7, only 0 to 2"),
    ("kafka-transactions {} describe-producers --topic parts --partition 7",
     "parts has no partition 7, only 0 to 2"),
    ("kafka-get-offsets {} --topic parts --partitions 7", "parts has no partition 7, only 0 to 2"),
    ("kafka-get-offsets {} --topic-partitions parts:7", "parts has no partition 7, only 0 to 2"),
    ("kafka-consumer-groups {} --reset-offsets --group g --topic parts:7 --to-latest --dry-run",
     'The partitions "parts-7" do not exist; parts has no partition 7, only 0 to 2'),
    ("kafka-console-consumer {} --topic parts --partition 7 --timeout-ms 200",
     "parts has no partition 7, only 0 to 2"),
])
def test_kafkas_tools_say_on_stderr_which_partitions_there_are(
    ottla: Ottla, line: str, said: str
) -> None:
    """Kafka's tools do not say this, so only standard error has it. Standard output and exit status
    are those of Kafka's tools."""
    ottla.ok("topic create parts --partitions 3 --if-not-exists")
    done = ottla(line.format(f"--bootstrap-server {ottla.address}"))
    assert said in done.err and "has no partition" not in done.out, done


@pytest.mark.parametrize(("line", "said"), [
    (f"kafka-console-consumer {{}} --topic t --partition 0 --offset {HUGE}",
     f"The provided offset value '{HUGE}' is incorrect."),
    ("kafka-console-consumer {} --topic t --partition 2147483648",
     "Cannot parse argument '2147483648' of option partition"),
    (f"kafka-consumer-groups {{}} --reset-offsets --group g --topic t --to-offset {HUGE} --dry-run",
     f"Cannot parse argument '{HUGE}' of option to-offset"),
    (f"kafka-get-offsets {{}} --topic t --time {HUGE}", f"Malformed time argument {HUGE}"),
    (f"kcat -b {{}} -C -t t -o {HUGE} -e", f"-o {HUGE}: the highest offset is {MOST}"),
    ("kcat -b {} -C -t t -p 2147483648 -e", "-p 2147483648: expected a number from -2147"),
    ("kcat -b {} -L -m 2147483648", "-m 2147483648: expected a number from -2147483647"),
    (f"kcat -b {{}} -Q -t t:0:{HUGE}", "the partition or the timestamp is too large"),
    ("kafka-log-dirs {} --describe --broker-list x", "--broker-list x: expected ids of brokers"),
])
def test_a_number_that_is_too_large_is_refused_by_other_tools(
    ottla: Ottla, line: str, said: str
) -> None:
    ottla.ok("topic create t --if-not-exists")
    own = ottla.address if line.startswith("kcat") else f"--bootstrap-server {ottla.address}"
    done = ottla(line.format(own))
    assert done.status == 1 and said in done.err, done


@pytest.mark.parametrize(("line", "said"), [
    ("produce t -X acks=17", "acks=17: expected 0, 1 or all; see ottla produce --help"),
    ("produce t -X enable.idempotence=true -X acks=1",
     ": `acks` must be set to `all` when `enable.idempotence` is true; see"),
    ("produce t --acks 1 -X enable.idempotence=true", "when `enable.idempotence` is true; see"),
    ("consume t -X fetch.max.bytes=1000", "=1000: `fetch.max.bytes` must be >= `message.max.bytes"),
    ("produce t -X sasl.mechanism=foo", "sasl.mechanism=foo: Unsupported SASL mechanism: foo; see"),
    ("consume t -X sasl.mechanism=foo", "sasl.mechanism=foo: Unsupported SASL mechanism: foo; see"),
    ("consume t -X enable.auto.commit=maybe", "Expected bool value for \"enable.auto.commit\": tr"),
    ("consume t -X max.poll.records=abc", "max.poll.records: 'abc' is not allowed, must be a who"),
    ("produce t -X partitioner.ignore.keys=1", "'1' is not allowed, must be true or false; see"),
    ("consume t -X fetch.max.wait.ms=4294967297", "fetch.max.wait.ms=4294967297: expected a number"
     " up to 2147483647; see ottla consume"),
    ("consume t -X foo=bar", "foo is not a setting of Kafka's clients; see ottla consume --help"),
])
def test_a_setting_of_a_client_that_is_never_right_is_refused_before_anything_is_contacted(
    line: str, said: str
) -> None:
    done = Ottla("localhost:1")(line)
    assert done.status == 2 and said in done.err and not done.out, done
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("mode", ["-L", "-Q -t t:0:1", "-P -t t", "-C -t t", "-G g t"])
@pytest.mark.parametrize(("setting", "said"), [
    ("foo=bar", "foo is not a setting of Kafka's clients"), ("acks=17", "acks=17: expected 0, 1"),
    ("sasl.mechanism=foo", "Unsupported SASL mechanism: foo"), ("linger.ms=abc", "linger.ms=abc: "),
    ("topic.acks=foo", "acks=foo: expected"), ("retries=4294967296", "a number up to 2147483647"),
])
def test_kcat_ends_with_1_for_such_a_setting(mode: str, setting: str, said: str) -> None:
    done = Ottla("localhost:1")(f"kcat -b localhost:1 -X {setting} {mode}")
    assert done.status == 1 and done.err.startswith("% ERROR: ") and said in done.err, done
    assert len(done.err.splitlines()) == 1 and not done.out


def test_settings_of_clients_that_are_right_are_taken(ottla: Ottla) -> None:
    ottla("topic create t --if-not-exists")
    for setting in ("client.id=99999999999999", "sasl.mechanism=SCRAM-SHA-256", "acks=-1",
                    "max.poll.records=5", "group.id=", "metric.reporters=x",
                    "config.providers.file.class=x"):
        ottla.ok(f"kcat -b {ottla.address} -L -X {setting}")


def test_what_a_file_says_for_other_clients_is_no_contradiction(
    ottla: Ottla, tmp_path: Path
) -> None:
    ottla("topic create t --if-not-exists")
    file = tmp_path / "all.properties"
    file.write_text("config.providers.file.class=x\nno.such.setting=1\nlinger.ms=3\n")
    done = ottla(f"consume t -e --command-config {file} -X client.id=a")
    assert done.status == 0 and "no.such.setting" in done.err and "providers" not in done.err


def test_a_wrong_value_in_a_file_is_an_error_and_no_wrong_command_line(
    ottla: Ottla, tmp_path: Path
) -> None:
    file = tmp_path / "wrong.properties"
    file.write_text("fetch.wait.max.ms=-7\n")
    done = ottla(f"consume t -e --command-config {file}")
    assert done.status == 1 and "fetch.wait.max.ms" in done.err, done


@pytest.mark.parametrize("line", [
    "topic create {}", "topic describe {}", "topic grow {} -p 3", "topic delete {} --yes",
    "topic offsets {}", "topic trim {} --before 1 --yes", "topic browse {}", "topic why {}",
    "consume {} -e", "produce {}", "perf produce {}", "perf consume {}", "reassign plan {}",
    "transaction hanging {}", "elect {}", "elect {}:0", "group reset g --topic {} --to end",
    "group reset g --topic {}:0 --to end", "config show topic/{}", "config set topic/{} a=1",
    "config reset topic/{} a", "server dev --topic {}",
])
def test_a_name_that_no_topic_can_have_is_refused(line: str) -> None:
    done = Ottla("localhost:1")(line.format("a/b"))
    assert done.status == 2 and not done.out, done
    assert "topic 'a/b' cannot exist, because of '/': names of topics have only ASCII" in done.err
    assert "because of ',:': " in Ottla("localhost:1")("topic describe a,b:c").err
    assert "have 1 to 249 characters" in Ottla("localhost:1")("consume .. -e").err


WHOLE = "expected a whole number (64 bits), at least -1, in milliseconds, or with a unit, such as "
BYTES = "expected a whole number (32 bits), at least 1048576, in bytes, or with a unit, such as 64M"


@pytest.mark.parametrize(("line", "said"), [
    ("config set topic/t retention.ms=abc", f"retention.ms=abc: {WHOLE}7d; see ottla config set"),
    ("config set topic/t retention.ms=9223372036854775808", WHOLE),
    ("config set topic/t segment.bytes=abc", f"segment.bytes=abc: {BYTES}"),
    ("config set topic/t preallocate=maybe", "preallocate=maybe: expected true or false; see"),
    ("config set topic/t min.cleanable.dirty.ratio=x", "expected a number, at least 0, at most 1;"),
    ("config set broker/0 log.retention.hours=abc", "in hours, or with a unit, such as 7d; see"),
    ("config set broker/default num.io.threads=x", "whole number (32 bits), at least 1; see"),
    ("config set group/g consumer.session.timeout.ms=x", "(32 bits), at least 1, in milliseconds"),
    ("config set metrics/m interval.ms=x", "expected a whole number (32 bits), in milliseconds, "),
    ("config set loggers/0 root=loud", "'loud' is not a log level; known levels: TRACE, DEBUG, "),
    ("topic create t -c retention.ms=abc", f"retention.ms=abc: {WHOLE}"),
    ("server dev --override log.retention.ms=abc", "log.retention.ms=abc: expected a whole number"),
    ("cluster start d --override ottla.log.scrub.interval.ms=x", "expected a whole number"),
])
def test_a_setting_of_another_type_is_refused_with_type_range_and_unit(
    line: str, said: str
) -> None:
    done = Ottla("localhost:1")(line)
    assert done.status == 2 and said in done.err and not done.out, done
    assert len(done.err.splitlines()) == 1


def test_the_limits_of_settings_are_left_to_the_broker(ottla: Ottla) -> None:
    ottla("topic create t --if-not-exists")
    done = ottla("config set topic/t retention.ms=-2")
    assert done.status == 1 and "'-2' is not allowed" in done.err, done
