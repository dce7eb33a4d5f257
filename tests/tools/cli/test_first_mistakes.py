"""Commands name at once what a newcomer mistyped or did not install, and leave nothing behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from ottla.client.cluster import ClusterClient
from ottla.client.errors import Refused
from ottla.tools.admin import offsets
from ottla.tools.cli.config import check_spelling
from ottla.tools.zookeeper import local
from ottla.tools.zookeeper.local import ZooKeeperFailed, run_maven
from ottla.wire.environment import pip_install
from tests.broker.running import RunningBroker
from tests.tools.cli.ottla_command import Ottla

CREATED = "did not exist: the broker created it with 1 partition; similar: payments"


def test_a_mistyped_topic_to_produce_to_is_named_with_similar_ones(ottla: Ottla) -> None:
    """The broker creates the mistyped topic, as it does for every producer."""
    ottla.ok("topic create payments")
    done = ottla("produce paymnets", b"first\n")
    assert done.status == 0
    assert done.err == f"topic 'paymnets' {CREATED}\n"
    for topic in ("paymnets", "payments"):
        assert ottla(f"produce {topic}", b"second\n").err == ""
    done = ottla("perf produce paymentz -n 1")
    assert done.status == 0 and f"topic 'paymentz' {CREATED}" in done.err


@pytest.mark.parametrize(("line", "begin"), [
    ("kcat -b {b} -P -t {t}", "% "),
    ("kafka-console-producer --bootstrap-server {b} --topic {t}", "kafka-console-producer: "),
    ("kafka-producer-perf-test --bootstrap-server {b} --topic {t} --num-records 1 --record-size 1"
     " --throughput -1", "kafka-producer-perf-test: "),
    ("kafka-verifiable-producer --bootstrap-server {b} --topic {t} --max-messages 1",
     "kafka-verifiable-producer: "),
    ("kafka-e2e-latency --bootstrap-server {b} --topic {t} --num-records 1 --producer-acks 1"
     " --record-size 1", "kafka-e2e-latency: "),
])
def test_producers_of_kafka_and_kcat_create_a_mistyped_topic_as_theirs_do_and_say_so(
    ottla: Ottla, line: str, begin: str
) -> None:
    ottla("topic create payments --if-not-exists")
    topic = f"payments{sum(map(ord, begin))}"
    words = line.format(b=ottla.address, t=topic)
    done = ottla(words, b"one\n")
    assert done.status == 0 and done.err.startswith(f"{begin}topic '{topic}' {CREATED}"), done
    assert len(done.err.splitlines()) == 1
    assert ottla(words, b"two\n").err == ""


def test_a_setting_that_cannot_be_changed_at_run_time_is_one_of_the_file(ottla: Ottla) -> None:
    [known] = json.loads(ottla.ok("cluster info -o json"))
    entity, name = f"broker/{known['broker']}", "log.retention.check.interval.ms"
    for line in (f"config set {entity} {name}=2s", f"config reset {entity} {name}"):
        done = ottla(line)
        assert done.status == 1 and done.err.endswith(
            f": Cannot update these configs dynamically: [{name}]; change it in the broker's"
            " settings file, and restart the broker (Ottla's brokers read the file again at SIGHUP,"
            " too, and log whether a change needs a restart)\n"
        ), done


def test_a_producer_without_input_creates_no_topic(ottla: Ottla) -> None:
    for line in ("kcat -b {} -P -t unasked", "kafka-console-producer --topic unasked"
                 " --bootstrap-server {}"):
        assert ottla(line.format(ottla.address)).err == ""
    assert "unasked" not in ottla.ok("topic list -o name")


def test_no_topic_is_created_for_a_file_that_is_not_there(ottla: Ottla) -> None:
    done = ottla("produce unwanted --file nowhere")
    assert done.status == 1 and done.err == "ottla produce: nowhere: no such file or directory\n"
    assert "unwanted" not in ottla.ok("topic list -o name")


def test_a_log_directory_that_is_not_there_is_named(ottla: Ottla) -> None:
    done = ottla("log verify nowhere")
    assert done.status == 2 and done.err == "ottla log verify: nowhere: no such file or directory\n"


def test_a_certificate_that_is_not_there_is_named(ottla: Ottla, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    for name in (
        "ssl.truststore.location", "ssl.ca.location", "ssl.keystore.location",
        "ssl.certificate.location", "ssl.key.location",
    ):
        config.write_text(f"security.protocol=SSL\n{name}=none.pem\n")
        done = ottla(f"topic list --command-config {config}")
        assert done.status == 1
        assert done.err == f"ottla topic list: {name}: none.pem: no such file or directory\n"


@pytest.mark.parametrize("line", ["log verfy", "log dump", "log import x", "log verify --x"])
def test_a_wrong_command_line_is_answered_by_one_line(ottla: Ottla, line: str) -> None:
    done = ottla(line)
    assert done.status == 2 and not done.out, done
    assert done.err.count("\n") == 1 and done.err.endswith("--help\n"), done


def test_a_cluster_without_kazoo_fetches_nothing(
    ottla: Ottla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    monkeypatch.setattr(local, "jars", lambda: pytest.fail("it fetches jars"))
    done = ottla(["cluster", "start", str(tmp_path / "cluster")])
    assert done.status == 1
    assert f"not installed in this environment: {pip_install('kazoo')}" in done.err
    assert not (tmp_path / "cluster").exists()


def test_every_jar_that_maven_fetches_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    said = "[INFO] Downloaded from central: https://repo/org/x/x-1.2.jar (1.3 MB at 2.0 MB/s)"
    run_maven(["echo", said])
    assert capsys.readouterr().err == "  x-1.2.jar (1.3 MB at 2.0 MB/s)\n"
    with pytest.raises(ZooKeeperFailed, match="could not download ZooKeeper's jars:\nno network"):
        run_maven(["sh", "-c", "echo no network; exit 1"])


def test_a_mistyped_setting_of_a_topic_is_answered_by_a_similar_one(ottla: Ottla) -> None:
    ottla.ok("topic create invoices")
    for line in ("config set topic/invoices retention=1d", "topic create late -c retention=1d"):
        done = ottla(line)
        assert done.status == 1 and done.err.endswith("; did you mean retention.ms?\n"), done


def test_similar_names_follow_a_brokers_sentence(ottla: Ottla) -> None:
    done = ottla("config show topic/invoises")
    assert done.err.endswith("not found; similar: invoices\n"), done


@pytest.mark.parametrize(("line", "said"), [
    ("group describe billling", "consumer group 'billling' not found; similar: billing"),
    ("group delete billling --yes", "group 'billling' not found; similar: billing"),
    ("group describe nope", "consumer group 'nope' not found"),
    ("group reset biling --to beginning", "committed offsets; similar: billing. Use --topic to"),
    ("topic delete b2 --yes", "topic 'b2' not found; similar: b1"),
    ("elect bils", "topic 'bils' not found; similar: bills"),
    ("kafka-topic --list", "kafka-topic: no such tool; similar: kafka-topics"),
    ("user delete alicia", "user 'alicia' has no credentials; similar: alice"),
    ("quota set user/alice producr_byte_rate=1", "producr_byte_rate; similar: producer_byte_rate"),
    ("quota delete user/alice producr_byte_rate", "similar: producer_byte_rate"),
    ("transaction describe paymnets", "transactional id not found; similar: payments"),
    ("config reset topic/bills cleanup.polcy", "setting 'cleanup.polcy'; similar: cleanup.policy"),
    ("config reset metrics/m interval", "no setting 'interval'; similar: interval.ms"),
    ("config reset broker/{broker} num.io.threadz", "similar: num.io.threads"),
    ("config reset broker/default num.io.threadz", "similar: num.io.threads"),
    ("config set group/billing consumer.session.timeout=9s", "mean consumer.session.timeout.ms?"),
    ("config set metrics/m metric=org", "configuration: metric; did you mean metrics?"),
    ("config set loggers/{broker} ottla.sever=debug", "does not exist; did you mean ottla.server?"),
    ("quota set ip/1.2.3.4 connection_creation_rat=1", "similar: connection_creation_rate"),
    ("kafka-configs {users} --add-config producr_byte_rate=1", "; similar: producer_byte_rate"),
    ("kafka-configs {groups} --add-config consumer.session.timeout=9", "session.timeout.ms?"),
    ("kafka-configs {loggers} --add-config ottla.sever=DEBUG", "; similar: ottla.server"),
    ("config show broker/99", "the cluster has no broker 99; known brokers: {broker}"),
    ("reassign plan --without 99",
     "is not running and has no replicas assigned; running brokers: {broker}"),
])
def test_mistyped_names_of_all_kinds_are_answered_by_similar_ones(
    ottla: Ottla, line: str, said: str
) -> None:
    ottla.ok("topic create bills b1 --if-not-exists")
    ottla("produce bills", b"one\n")
    ottla.ok("consume bills --group billing -n 1")
    ottla.ok("user set alice", b"secret\n")
    producer = Producer({"bootstrap.servers": ottla.address, "transactional.id": "payments"})
    producer.init_transactions()
    [known] = json.loads(ottla.ok("cluster info -o json"))
    broker = known["broker"]
    kinds = {"users": "alice", "groups": "billing", "broker-loggers": str(broker)}
    alter = f"--bootstrap-server {ottla.address} --alter --entity-name"
    done = ottla(line.format(broker=broker, **{
        kind.removeprefix("broker-"): f"{alter} {name} --entity-type {kind}"
        for kind, name in kinds.items()
    }))
    expected = said.format(broker=broker)
    assert done.status == 1 and not done.out and expected in done.err.splitlines()[-1], done


def test_a_misspelled_setting_of_a_broker_is_refused_except_by_kafkas_tool(ottla: Ottla) -> None:
    [known] = json.loads(ottla.ok("cluster info -o json"))
    why = "num.io.threadz is not a setting of Kafka or Ottla; did you mean num.io.threads?"
    for name in (known["broker"], "default"):
        for more in ("", " --dry-run"):
            assert ottla(f"config set broker/{name} num.io.threadz=2{more}") == (1, "", (
                f"ottla config set: {why} (for settings of plug-ins, kafka-configs accepts any"
                " name)\n"))
    done = ottla(f"config set broker/{known['broker']} listeners=PLAINTEXT://localhost:9093")
    assert done.status == 0
    assert done.err.splitlines()[-1] == "only read at start, from the properties: listeners"
    done = ottla(f"kafka-configs --bootstrap-server {ottla.address} --alter --entity-type brokers"
                 f" --entity-name {known['broker']} --add-config num.io.threadz=2")
    assert done.out == f"Completed updating config for broker {known['broker']}.\n"
    assert done.err.splitlines()[-1] == f"without effect in Ottla: num.io.threadz; {why}"
    ottla.ok(f"config reset broker/{known['broker']} num.io.threadz")


def test_a_brokers_setting_of_a_plug_in_is_taken_with_a_note(ottla: Ottla) -> None:
    done = ottla("config set broker/default acme.auditor.url=x")
    assert done.status == 0 and "without effect in Ottla: acme.auditor.url" in done.err, done
    ottla.ok("config reset broker/default acme.auditor.url")
    check_spelling(["listener.name.internal.ssl.keystore.location", "config.providers.x"])


def test_every_partition_that_cannot_be_trimmed_is_named_with_its_offsets(ottla: Ottla) -> None:
    ottla.ok("topic create ledger --partitions 2")
    ottla.ok("produce ledger --partition 1", b"one\n")
    done = ottla("topic trim ledger --before 5 --yes")
    assert done.status == 1 and done.err == (
        "ottla topic trim: ledger-0: offset out of range: 5 is not one of the offsets 0 to 0;"
        " ledger-1: offset out of range: 5 is not one of the offsets 0 to 1\n")
    below = {("ledger", index): 1 for index in (0, 1)}
    with ClusterClient(ottla.address) as cluster, pytest.raises(Refused) as refused:
        offsets.delete_or_raise(cluster, below)     # without the check that `topic trim` makes
    assert str(refused.value) == (
        "ledger-0: offset out of range: 1 is not one of the offsets 0 to 0; trimmed: ledger-1")


def test_a_group_that_is_not_found_is_named_once(ottla: Ottla) -> None:
    assert ottla("group describe nope").err == (
        "ottla group describe: consumer group 'nope' not found; to see all: ottla group list\n")


def test_a_group_with_members_is_neither_deleted_nor_reset_and_its_members_can_be_seen(
    ottla: Ottla,
) -> None:
    ottla.ok("topic create watched")
    member = Consumer({"bootstrap.servers": ottla.address, "group.id": "watchers"})
    member.subscribe(["watched"])
    while not member.assignment():
        member.poll(0.1)
    said = ("group 'watchers' has 1 member, which must stop first;"
            " to see them: ottla group describe watchers --members\n")
    for line in ("delete watchers --yes", "delete watchers --dry-run",
                 "reset watchers --topic watched --to end", "reset watchers --to end --yes"):
        done = ottla(f"group {line}")
        assert done == (1, "", f"ottla group {line.split()[0]}: {said}"), line
    assert ottla.ok("group describe watchers --members -o name").strip()
    member.close()
    ottla.ok("group delete watchers --yes")


@pytest.mark.parametrize(("line", "status", "said"), [
    ("group delete xyzzy --yes", 1, "'xyzzy' not found; to see all: ottla group list\n"),
    ("transaction describe xyzzy", 1, "not found; to see all: ottla transaction list\n"),
    ("topic describe xyzzy", 1, "topic 'xyzzy' not found; to see all topics: ottla topic list\n"),
    ("topic create there", 1, "exists; with --if-not-exists, existing topics are skipped\n"),
    ("topic create wide -r 9", 1, "registered; to see the brokers: ottla cluster info\n"),
    ("topic list -b localhost:abc", 2, "'localhost:abc': expected HOST:PORT; see ottla topic list"),
    ("topic list -b 9092", 2, "expected HOST:PORT, such as localhost:9092; see ottla topic list"),
    ("feature set group.version=99999", 2, "=99999': expected NAME=LEVEL, with a level from 0 to"),
    ("user delete xyzzy --yes", 1, "has no credentials; to see all users: ottla user list\n"),
    ("user set xyzzy --iterations 10", 2, "--iterations 10: expected 4096 to 16384; see ottla"),
    ("acl delete User:xyzzy --yes", 1, "has no ACLs; to see all ACLs: ottla acl list\n"),
    ("acl delete User:xyzzy rea --yes", 2, "operation 'rea' is unknown; similar: read;"),
    ("acl add User:a rea topic/t", 2, "operation 'rea' is unknown; similar: read;"),
    ("acl add User:a xyzzy topic/t", 2, "operation 'xyzzy' is unknown: expected one of all, read"),
    ("acl add User:a write group/g", 2, "group/g has no operation 'write', so the ACL would have"
     " no effect: expected one of read, describe, delete, describe_configs, alter_configs, all;"),
    ("acl list --principal alice", 2, "principal 'alice': expected User:NAME; see ottla acl list"),
    ("acl delete alice --yes", 2, "principal 'alice': expected User:NAME; see ottla acl delete"),
    ("acl add User:a read tpic/t", 2, "user/NAME; similar: topic;"),
    ("config show topc/t", 2, "for all brokers; similar: topic;"),
    ("quota set usr/alice producer_byte_rate=1", 2, "then the quotas to change; similar: user;"),
])
def test_a_refusal_names_the_next_step(ottla: Ottla, line: str, status: int, said: str) -> None:
    ottla("topic create there --if-not-exists")
    done = ottla(line, b"secret\n")
    assert done.status == status and not done.out and said in done.err, done


def test_a_record_that_is_too_large_for_a_topic_is_refused_by_name(ottla: Ottla) -> None:
    ottla.ok("topic create small")
    done = ottla("produce small -i raw", b"x" * 2_000_000)
    assert done.status == 1 and done.err == (
        "ottla produce: records were not acknowledged: topic small: MESSAGE_TOO_LARGE: "
        "Message size too large; the limit is the topic's max.message.bytes: ottla config show "
        "topic/small (0 records sent, 1 not acknowledged)\n")
    ottla.ok("config set topic/small max.message.bytes=5MiB")
    ottla.ok("produce small -i raw", b"x" * 2_000_000)


@pytest.mark.parametrize("line", [
    "produce small -X max.request.size=1000000 -i raw", "kcat -b {address} -P -t small"
])
def test_the_clients_own_limit_is_called_so(ottla: Ottla, line: str) -> None:
    ottla("topic create small --if-not-exists")
    done = ottla(line.format(address=ottla.address), b"x" * 2_000_000)
    assert done.status == 1 and (
        "small: a record of 2000000 bytes exceeds the client's own limit: raise it from "
        "1000000, as with -X message.max.bytes=4000000") in done.err, done


def test_a_time_that_a_topic_does_not_take_is_refused_by_name(ottla: Ottla) -> None:
    ottla.ok("topic create timed")
    done = ottla("produce timed -i jsonl", b'{"value":"v","timestamp":9999999999999}\n')
    assert done.status == 1 and "topic timed: INVALID_TIMESTAMP: Invalid timestamp" in done.err


def test_an_offset_that_a_groups_commits_outweigh_is_said_to_be_none(ottla: Ottla) -> None:
    ottla.ok("topic create flights")
    ottla.ok("produce flights", b"one\n")
    done = ottla("consume flights -G fg --offset beginning --exit")
    assert (done.out, done.err) == ("one\n", "")
    done = ottla("consume flights -G fg --offset beginning --exit")
    assert done == (0, "", (
        "group fg continues at its committed offsets; --offset beginning applies only to"
        " partitions without a committed offset. To change the committed offsets:"
        " ottla group reset fg --to beginning --yes\n"))


def test_partitions_that_a_group_has_not_committed_are_said_to_be_there(ottla: Ottla) -> None:
    """Kafka's tool omits these partitions. A reset without --topic omits them too, and says so."""
    ottla.ok("topic create halves --partitions 2")
    ottla.ok("produce halves --partition 1", b"one\ntwo\n")
    ottla.ok("consume halves -G half --partition 0 --exit")
    ottla.ok("group reset half --topic halves:0 --to end --yes")
    head, *_, second = ottla.ok("group describe half").splitlines()
    assert head.endswith("total lag 0, 1 partition without a committed offset")
    assert second.split() == ["halves", "1", "-", "2", "-", "-"]
    [listed] = [row for row in ottla.ok("group list").splitlines() if row.startswith("half ")]
    assert listed.split() == ["half", "classic", "Empty", "0", "1"]
    done = ottla("group reset half --to beginning")
    assert done.out.count("halves") == 1 and done.err.startswith(
        "the reset skips partitions without a committed offset of group half: halves:1."
        " With --topic TOPIC, it resets all partitions of a topic\n")


def test_a_missing_argument_is_named_with_its_choices(ottla: Ottla) -> None:
    done = ottla("completion")
    assert done.status == 2 and "required: {bash,zsh,fish}; see ottla completion" in done.err


def test_a_brokers_settings_are_those_that_were_set_and_all_where_that_is_asked(
    ottla: Ottla,
) -> None:
    given = ottla.ok("server config").splitlines()[1:]
    everything = ottla.ok("server config --all").splitlines()[1:]
    assert given and not [line for line in given if line.endswith("DEFAULT_CONFIG")]
    assert len(everything) > 100 and {line.split()[0] for line in given} < {
        line.split()[0] for line in everything}


def test_the_lag_of_a_group_that_has_committed_nothing_is_not_made_up(ottla: Ottla) -> None:
    ottla.ok("topic create unread --partitions 2")
    ottla.ok("produce unread", b"one\n")
    member = Consumer({
        "bootstrap.servers": ottla.address, "group.id": "silent", "enable.auto.commit": False})
    member.subscribe(["unread"])
    while not member.assignment():
        member.poll(0.1)
    [listed] = [row for row in ottla.ok("group list").splitlines() if row.startswith("silent ")]
    assert listed.split() == ["silent", "classic", "Stable", "-", "2"]
    head = ottla.ok("group describe silent").splitlines()[0]
    assert head.endswith("1 member, total lag -, 2 partitions without a committed offset")
    member.close()


@pytest.mark.parametrize(("text", "said"), [
    ("hello\n", "has no setting of Kafka's clients: hello is not a setting of Kafka's clients"
     " and has no effect; each line has the form name=value"),
    ("bootstrap.server=localhost:9292\n", "has no setting of Kafka's clients: bootstrap.server is"
     " not a setting of Kafka's clients and has no effect; did you mean bootstrap.servers?"),
    ("some.other.program=1\n", "has no setting of Kafka's clients"),
    ('{"bootstrap.servers": "a:1"}', "appears to be JSON"),
    ("-----BEGIN CERTIFICATE-----\nMIIB\n", "is a certificate or a key in PEM form; a properties"),
    ("\x7fELF\x01\x00", "is not a text file"),
])
def test_a_file_without_a_setting_of_clients_is_refused(
    ottla: Ottla, tmp_path: Path, text: str, said: str
) -> None:
    config = tmp_path / "client.properties"
    config.write_text(text)
    for line in (
        f"topic list --command-config {config}",
        f"kafka-topics --list --bootstrap-server {ottla.address} --command-config {config}",
        f"mirror --from {ottla.address} --to {ottla.address} --from-config {config}",
    ):
        done = ottla(line)
        assert done.status != 0 and not done.out, (line, done)
        assert str(config) in done.err and said in done.err, (line, done)


@pytest.mark.parametrize(("entry", "hint"), [
    ("sasl.mechanizm=PLAIN", "did you mean sasl.mechanism?"),
    ("sasl.usernam=me", "did you mean sasl.username?"),
    ("bootstrap.server=nobody:1", "did you mean bootstrap.servers?"),
    ("hello", "each line has the form name=value"),
])
def test_a_misspelled_setting_of_a_client_is_named_once(
    ottla: Ottla, tmp_path: Path, entry: str, hint: str
) -> None:
    ottla("topic create spelled")
    config = tmp_path / "client.properties"
    config.write_text(f"client.id=me\n{entry}\n")
    name = entry.partition("=")[0]
    kafka = f"--bootstrap-server {ottla.address} --topic spelled"
    for line in ("topic list", "consume spelled -e", f"kafka-console-producer {kafka}"):
        done = ottla(f"{line} --command-config {config}")
        assert done.status == 0
        assert done.err == (
            f"{config}: {name} is not a setting of Kafka's clients and has no effect; {hint}\n"
        )


@pytest.mark.parametrize(("entries", "said"), [
    ("foo.bar=1", "foo.bar is not a setting of Kafka's clients and has no effect"),
    ("\n".join(f"app.{letter}=1" for letter in "abcdefg"),
     "app.a, app.b, app.c, app.d, app.e, … (2 more) are not settings of Kafka's clients and have no"
     " effect"),
])
@pytest.mark.parametrize("line", [
    "topic list", "acl list --timeout 1", "produce known", "consume known -e",
    "consume known -e -X client.id=a", "kafka-topics --list {k}",
    "kafka-console-producer {k} --topic known",
    "kafka-console-consumer {k} --topic known --timeout-ms 50",
    "kafka-producer-perf-test {k} --topic known --num-records 1 --record-size 1 --throughput -1",
    "kafka-consumer-perf-test {k} --topic known --num-records 1",
])
def test_unknown_settings_of_a_file_are_named_once_by_every_command(
    ottla: Ottla, tmp_path: Path, line: str, entries: str, said: str
) -> None:
    ottla("topic create known --if-not-exists")
    ottla("produce known", b"one\n")
    config = tmp_path / "client.properties"
    config.write_text(f"client.id=me\nlinger.ms=5\n{entries}\n")
    words = line.format(k=f"--bootstrap-server {ottla.address}")
    done = ottla(f"{words} --command-config {config}", b"two\n")
    assert [one for one in done.err.splitlines() if "Kafka's clients" in one] == [
        f"{config}: {said}"], done


def test_settings_of_streams_are_no_mistake(ottla: Ottla, tmp_path: Path) -> None:
    ottla("topic create known --if-not-exists")
    config = tmp_path / "client.properties"
    config.write_text("client.id=me\nnum.stream.threads=4\nmain.consumer.max.poll.records=9\n"
                      "producer.linger.ms=5\nmax.poll.records=7\n")
    for line in ("topic list", "consume known -e", "produce known"):
        done = ottla(f"{line} --command-config {config}")
        assert done.status == 0 and done.err == "", done
    config.write_text("client.id=me\nproducer.linger.mss=5\n")
    assert "producer.linger.mss is not a setting" in ottla(
        f"topic list --command-config {config}").err


def test_a_file_may_serve_other_programs_too(ottla: Ottla, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("client.id=me\nfetch.wait.max.ms=9\nnum.stream.threads=4\nssl.ca.location=\n")
    assert ottla(f"topic list --command-config {config}").err == ""
    config.write_text("# nothing yet\n")
    assert ottla(f"topic list --command-config {config}").err == ""


@pytest.mark.parametrize(("text", "said"), [
    ("", "is empty; JSON is expected"),
    ("hello\n", "is not JSON: expecting value, line 1, column 1"),
    ('{"version":\n', "is not JSON: expecting value, line 2, column 1 (the file ends there)"),
])
@pytest.mark.parametrize("action", ["start", "cancel"])
def test_a_plan_that_is_no_json_is_named(
    ottla: Ottla, tmp_path: Path, action: str, text: str, said: str
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(text)
    done = ottla(f"reassign {action} {plan}")
    assert done == (1, "", f"ottla reassign {action}: {plan} {said}\n")


def test_a_noun_alone_lists_its_actions(ottla: Ottla) -> None:
    for noun, verb in (("log", "verify"), ("topic", "create")):
        done = ottla(noun)
        assert done.status == 2 and done.err == ""
        assert done.out.startswith(f"usage: ottla {noun} COMMAND …\n  {noun} {verb}   ")


def test_an_unknown_unit_is_answered_by_the_known_ones(ottla: Ottla) -> None:
    ottla.ok("topic create units")
    for line in ("topic create other -c retention.ms=7x", "config set topic/units retention.ms=7x"):
        done = ottla(line)
        assert done.status == 2, done
        assert "ms=7x: 'x' is not a unit of time; known units: ms, s, m, h, d, w" in done.err
    done = ottla("config set topic/units segment.bytes=7x")
    assert done.status == 2 and "'x' is not a unit of size; known units: kB, MB" in done.err


def test_scripts_go_into_a_directory(ottla: Ottla, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = ottla(f"install-kafka-scripts {tmp_path / 'file'}")
    assert done == (1, "", f"ottla install-kafka-scripts: {tmp_path / 'file'}: not a directory\n")


def test_acls_without_an_authorizer_name_its_setting(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data") as running:
        done = Ottla(f"127.0.0.1:{running.port}")("acl list")
    assert done.status == 1 and "(authorizer.class.name is not set)" in done.err, done


def test_no_partition_is_trimmed_if_the_offset_is_beyond_the_end_of_another(ottla: Ottla) -> None:
    ottla.ok("topic create uneven --partitions 2")
    ottla.ok("produce uneven --partition 0", b"1\n2\n3\n")
    done = ottla("topic trim uneven --before 2 --yes")
    assert done.status == 1 and "uneven-1: offset out of range: 2 is not one" in done.err
    assert ottla.ok("consume uneven -e") == "1\n2\n3\n"


@pytest.mark.parametrize(("flag", "said"), [
    ("", ""), ("--partitions 2", ""), ("--partitions 1", ", with 2 partitions"),
    ("--partitions 3", ", with 2 partitions: to add some, ottla topic grow made --partitions 3"),
])
def test_an_existing_topic_with_other_partitions_is_named_with_them(
    ottla: Ottla, flag: str, said: str
) -> None:
    ottla("topic create made --partitions 2")
    done = ottla(f"topic create made --if-not-exists {flag}")
    assert (done.status, done.err) == (0, f"topic made exists already{said}\n")
