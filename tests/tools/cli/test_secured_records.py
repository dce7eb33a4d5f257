"""Every command that reads or sends records logs in over SASL with the file that it is given."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from ottla.client.errors import LoginFailed, NotAllowed, Refused
from ottla.tools.cli.next_steps import RIGHTS, with_next_step
from ottla.tools.commands.table import read
from ottla.tools.kafka_names.grammar import parse
from ottla.wire.errors import ErrorCode
from tests.broker.running import RunningBroker
from tests.broker.security.logging_in import SaslBroker
from tests.tools.cli.ottla_command import Ottla
from tests.tools.kafka_names.stage import OVERRIDES

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
FILE = """security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config={jaas} username="alice" password="{password}";
"""


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ottla]:
    """The listener of a broker that requires a login."""
    with SaslBroker(tmp_path_factory.mktemp("inside") / "data") as broker:
        yield Ottla("{}:{}".format(*broker.inside))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ottla]:
    with RunningBroker(tmp_path_factory.mktemp("target") / "data", **OVERRIDES) as running:
        yield Ottla(f"127.0.0.1:{running.port}")


@pytest.fixture
def login(tmp_path: Path) -> str:
    path = tmp_path / "alice.properties"
    path.write_text(FILE.format(jaas=JAAS, password="alice-secret"))
    return str(path)


def test_records_are_sent_and_read_with_a_login(inside: Ottla, login: str) -> None:
    topic, more = "letters", f"--command-config {login}"
    inside.ok(f"topic create {topic} --command-config {login}")
    inside.ok(f"produce {topic} {more}", b"a\nb\n")
    # With -Z, the empty value is sent as null.
    inside.ok(f"produce {topic} -Z {more}", b"\n")
    assert inside.ok(f"consume {topic} -e {more}") == "a\nb\n\n"
    in_group = inside.ok(f"consume {topic} -G team -o beginning -n 2 {more}")
    assert in_group == "a\nb\n"


def test_a_login_may_be_given_as_properties_too(inside: Ottla, login: str) -> None:
    inside.ok(f"topic create flagged --command-config {login}")
    librdkafka = ("-X security.protocol=SASL_PLAINTEXT -X sasl.mechanisms=PLAIN "
                  "-X sasl.username=alice -X sasl.password=alice-secret")  # fmt: skip
    inside.ok(f"produce flagged {librdkafka}", b"0\n")
    assert inside.ok(f"consume flagged -e {librdkafka}") == "0\n"
    assert inside.ok(f"kcat -b {inside.address} -C -t flagged -e -q {librdkafka}") == "0\n"


def test_kafkas_console_tools_log_in(inside: Ottla, login: str) -> None:
    at = f"--bootstrap-server {inside.address} --topic console"
    inside.ok(f"topic create console --command-config {login}")
    inside.ok(f"kafka-console-producer {at} --command-config {login}", b"a\n")
    inside.ok(f"kafka-console-producer {at} --producer.config {login}", b"b\n")
    for flag in ("command-config", "consumer.config"):
        printed = inside.ok(
            f"kafka-console-consumer {at} --{flag} {login} --from-beginning --max-messages 2")
        assert printed.splitlines()[-2:] == ["a", "b"]


def test_reading_without_a_group_needs_no_right_on_one(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data", **OVERRIDES | {"super.users": "User:root"}) as running:
        ottla = Ottla(f"127.0.0.1:{running.port}")
        ottla.ok("topic create letters")
        ottla.ok("produce letters", b"a\n")
        ottla.ok(["acl", "add", "User:ANONYMOUS", "all", "group/*", "--deny"])
        assert ottla.ok("consume letters -e") == "a\n"
        done = ottla("consume letters -e -G team")
        assert done.status == 1 and "authoriz" in done.err.lower(), done


def test_a_refused_producer_says_which_right_its_user_lacks(tmp_path: Path, login: str) -> None:
    """An idempotent producer gets no producer id, which is a fatal error of librdkafka. Any other
    producer gets the topic's error."""
    with SaslBroker(tmp_path / "data", AUTHORIZED | {"super.users": "User:ANONYMOUS"}) as running:
        anybody = Ottla(f"127.0.0.1:{running.port}")
        anybody.ok("topic create letters")
        anybody.ok("acl add User:alice read topic/letters")
        ottla = Ottla("{}:{}".format(*running.inside))
        for more, code in (("", "CLUSTER"), ("-X enable.idempotence=false", "TOPIC")):
            done = ottla(f"produce letters --command-config {login} {more}", b"a\n")
            assert (done.status, done.out, done.err) == (1, "", (
                "ottla produce: User:alice may not write topic letters "
                f"({code}_AUTHORIZATION_FAILED); an administrator can allow it: "
                "ottla acl add User:alice write topic/letters\n"))
        done = ottla(f"kcat -b {ottla.address} -P -t letters -F {login}", b"a\n")
        assert done.status == 1 and "CLUSTER_AUTHORIZATION_FAILED" in done.err, done


class LosesErrors(confluent_kafka.Producer):
    """Loses a fatal error, as confluent-kafka may do if two callbacks fail in one call."""

    def flush(self, *timeout: float) -> int:
        with contextlib.suppress(confluent_kafka.KafkaException, SystemError):
            super().flush(30)
        raise SystemError("<built-in method flush> returned NULL without setting an exception")


@pytest.mark.parametrize(("right", "said"), [
    ("read", "User:ANONYMOUS may not write topic letters (CLUSTER_AUTHORIZATION_FAILED); an "
             "administrator can allow it: ottla acl add User:ANONYMOUS write topic/letters"),
    ("write", "librdkafka ended with a fatal error that confluent-kafka does not name. Send "
              "the unacknowledged records again (1 record sent)"),
])
def test_a_refusal_that_librdkafkas_client_loses_is_asked_for_again(
    tmp_path: Path, login: str, monkeypatch: pytest.MonkeyPatch, right: str, said: str
) -> None:
    monkeypatch.setattr(confluent_kafka, "Producer", LosesErrors)
    with SaslBroker(tmp_path / "data", AUTHORIZED | {"super.users": "User:alice"}) as running:
        root = Ottla("{}:{}".format(*running.inside))
        root.ok(f"topic create letters --command-config {login}")
        root.ok(f"acl add User:ANONYMOUS {right} topic/letters --command-config {login}")
        done = Ottla(f"127.0.0.1:{running.port}")("produce letters", b"a\n")
        assert (done.status, done.err) == (1, f"ottla produce: {said}\n")


@pytest.mark.parametrize("more", ["", "--input jsonl"])
def test_a_user_who_may_not_create_the_topic_reads_how_to_get_that_right(
    tmp_path: Path, login: str, more: str
) -> None:
    line = b'{"value": "v", "topic": "nope", "partition": 0}\n' if more else b"v\n"
    with SaslBroker(tmp_path / "data", AUTHORIZED | {"super.users": "User:alice"}) as running:
        root = Ottla("{}:{}".format(*running.inside))
        anybody = Ottla(f"127.0.0.1:{running.port}")
        write, create = "User:ANONYMOUS write topic/nope", "User:ANONYMOUS create topic/nope"
        done = anybody(f"produce nope {more}", line)
        assert done.status == 1 and done.err.endswith(
            f"an administrator can allow it: ottla acl add {write}; if the topic does not exist"
            f" yet, also: ottla acl add {create}\n"), done
        root.ok(f"acl add {write} --command-config {login}")
        done = anybody(f"produce nope {more}", line)
        assert done.err.endswith(f"allow it: ottla acl add {create}\n"), "only this one is left"
        root.ok(f"acl add {create} --command-config {login}")
        assert anybody(f"produce nope {more}", line).status == 0


def test_dry_runs_need_only_the_rights_to_create_and_to_write(tmp_path: Path, login: str) -> None:
    """A broker hides the partitions and settings of a topic that the user may only create."""
    with SaslBroker(tmp_path / "data", AUTHORIZED | {"super.users": "User:alice"}) as running:
        root = Ottla("{}:{}".format(*running.inside))
        for right in ("create", "write"):
            root.ok(f"acl add User:ANONYMOUS {right} topic/fresh --command-config {login}")
        anybody = Ottla(f"127.0.0.1:{running.port}")
        line = b'{"value": "v", "partition": 5}\n'
        for command, given in (("produce fresh", b"v\n"), ("produce fresh -i jsonl", line),
                               ("produce fresh -p 5", b"v\n")):
            done = anybody(f"{command} --dry-run", given)
            assert done.status == 0 and "would have sent 1 record" in done.err, (command, done)
        done = anybody("perf produce fresh -n 1 -s 1 --dry-run")
        assert done.status == 0, done
        assert done.err.endswith("would have sent 1 record of 1 byte each to fresh\n"), done
        anybody.ok("produce fresh", b"v\n")
        done = anybody("produce fresh --dry-run", b"v\n")
        assert done.status == 0 and "would have sent 1 record" in done.err, "it exists now"


def test_one_right_is_taken_back_by_the_words_that_gave_it(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data", **OVERRIDES) as running:
        ottla = Ottla(f"127.0.0.1:{running.port}")
        for right in ("read topic/letters", "write topic/letters", "write topic/bills"):
            ottla.ok(f"acl add User:bob {right}")
        done = ottla("acl delete User:bob write topic/letters --yes")
        assert (done.status, done.err) == (0, "removed 1 ACL of User:bob\n")
        left = ottla.ok("acl list --principal User:bob -o jsonl")
        assert "letters" in left and "bills" in left and len(left.splitlines()) == 2
        ottla.ok("acl delete User:bob any topic/letters --yes")
        ottla.ok("acl delete User:bob write --yes")
        assert ottla.ok("acl list --principal User:bob -o jsonl") == ""


def test_kafka_acls_with_an_empty_host_is_refused_and_does_not_mean_every_host(
    tmp_path: Path,
) -> None:
    with RunningBroker(tmp_path / "data", **OVERRIDES) as running:
        ottla = Ottla(f"127.0.0.1:{running.port}")
        for hosts in ("--allow-host ''", "--allow-host ' '",
                      "--deny-principal User:eve --deny-host ''"):
            done = ottla(f"kafka-acls --bootstrap-server {ottla.address} --add --topic letters"
                         f" --allow-principal User:bob {hosts} --operation Read")
            assert done.status == 1, done
            assert "Host pattern cannot be null or empty" in done.out + done.err
            assert "eve" not in ottla.ok("acl list -o jsonl")
        done = ottla(f"kafka-acls --bootstrap-server {ottla.address} --add --topic letters"
                     " --allow-principal User:bob --deny-host '' --operation Read")
        assert done.status == 1 and "must specify principals where you specify hosts" in done.err


NOBODY = [
    ("User:", "*", "principal 'User:': expected User:NAME, or User:* for every user"),
    ("User: ", "*", "principal 'User: ': expected User:NAME"),
    (":bob", "*", "principal ':bob': expected User:NAME"),
    ("user:bob", "*", "principal 'user:bob': expected User:NAME"),
    ("User:bob", " ", "host ' ': expected an IP address, a network such as 10.0.0.0/8, or * for"),
    ("User:bob", "foo", "host 'foo': expected an IP address"),
    ("User:bob", "10.0.0", "host '10.0.0': expected an IP address"),
    ("User:bob", "10.0.0.0/99", "every client (the prefix length 99 is greater than 32)"),
]


@pytest.mark.parametrize(("principal", "host", "said"), NOBODY)
def test_an_acl_that_matches_no_client_is_refused(principal: str, host: str, said: str) -> None:
    """A mistyped deny rule would protect nothing."""
    done = Ottla("127.0.0.1:1")(f"acl add '{principal}' read topic/t --deny --host '{host}'")
    assert done.status == 2 and said in done.err and len(done.err.splitlines()) == 1, done


def test_kafka_acls_adds_such_a_rule_as_kafkas_tool_does_and_says_that_it_matches_no_client(
    tmp_path: Path,
) -> None:
    with RunningBroker(tmp_path / "data", **OVERRIDES) as running:
        ottla = Ottla(f"127.0.0.1:{running.port}")
        for principal, host, said in NOBODY:
            if host.strip() and "/" not in host:        # the broker refuses the others
                done = ottla(f"kafka-acls --bootstrap-server {ottla.address} --add --topic letters"
                             f" --deny-principal '{principal}' --deny-host '{host}'"
                             " --operation Read --operation Write")
                said = said.replace("'User: '", "'User:'")      # Kafka's tool strips principals
                assert done.status == 0 and said in done.err, done
                assert done.err.startswith("kafka-acls: an added rule matches no client: ")
                assert len(done.err.splitlines()) == 1, done
        for host in ("*", "192.0.2.1", "0:0:0:0:0:0:0:1", "10.0.0.0/8", "2001:db8::/32"):
            done = ottla(f"kafka-acls --bootstrap-server {ottla.address} --add --topic letters"
                         f" --deny-principal User:bob --deny-host '{host}' --operation Read")
            assert (done.status, done.err) == (0, ""), done
            ottla.ok(f"acl add User:bob read topic/letters --deny --host '{host}'")


def test_a_user_without_a_right_reads_which_one_and_how_to_get_it() -> None:
    failed = NotAllowed("x", ErrorCode.TOPIC_AUTHORIZATION_FAILED, "alice", "read", "topic/orders")
    assert with_next_step("x", failed) == (
        "User:alice may not read topic orders (TOPIC_AUTHORIZATION_FAILED); an administrator can "
        "allow it: ottla acl add User:alice read topic/orders")
    group = "group/my \x1b[1m"
    failed = NotAllowed("x", ErrorCode.GROUP_AUTHORIZATION_FAILED, "o'k", "read", group)
    line = with_next_step("x", failed)
    command = line.partition("ottla acl add ")[2]
    assert shlex.split(command) == ["User:o'k", "read", r"group/my \x1b[1m"]


@pytest.mark.parametrize(("what", "command", "said", "step"), [
    ("topic 'letters'", "produce", None, "write topic/letters; if the topic does not exist yet,"
     " also: ottla acl add User:alice create topic/letters"),
    ("topic 'letters'", "consume", None, "read topic/letters"),
    ("topic 'letters'", "topic describe", None, "describe topic/letters"),
    ("topic 'letters'", "topic describe", "Topic authorization failed.",
     "describe-configs topic/letters"),
    ("letters-0", "topic trim", None, "delete topic/letters"),
    ("billing-2: orders-0", "group reset", None, "read topic/orders"),
    ("topic 'letters'", "mirror", None, "OPERATION topic/letters"),
])
def test_a_refused_topic_is_answered_by_the_whole_command(
    what: str, command: str, said: str | None, step: str
) -> None:
    failed = Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, said, what)
    failed.user = "alice"
    assert with_next_step("x", failed, "", command) == (
        f"x; an administrator can allow it: ottla acl add User:alice {step}")


def test_other_refused_rights_are_answered_by_the_whole_command_too() -> None:
    for code, what, command, step in (
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "group 'g'", "group reset", "read group/g"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "", "acl list", "describe cluster"),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional id 'x y'",
         "transaction abort", "write 'transaction/x y'"),
    ):
        line = with_next_step("x", Refused(code, None, what), "", command)
        assert line.endswith(f"ottla acl add User:NAME {step}"), line
    known = read("ottla")
    assert not [words for rights in RIGHTS.values() for many in rights.values() for words in many
                if words not in known]


def test_a_user_who_may_see_a_topic_but_not_write_it_reads_how_to_get_the_right(
    tmp_path: Path
) -> None:
    with RunningBroker(tmp_path / "data", **OVERRIDES | {"super.users": "User:root"}) as running:
        ottla = Ottla(f"127.0.0.1:{running.port}")
        ottla.ok("topic create letters")
        for operation, command in (
            ("write", "produce letters"), ("describe", "topic describe letters"),
            ("read", "consume letters -e"),
        ):
            ottla.ok(["acl", "add", "User:ANONYMOUS", operation, "topic/letters", "--deny"])
            done = ottla(command, b"a\n")
            assert done.status == 1 and "an administrator can allow it: ottla acl add " in done.err
            assert "User:ANONYMOUS" in done.err and "OPERATION" not in done.err, done
            assert "topic/letters" in done.err


@pytest.mark.parametrize(("resource", "line", "step"), [
    ("cluster", "topic describe letters", "User:ANONYMOUS describe cluster"),
    ("cluster", "cluster check", "User:ANONYMOUS describe cluster"),
    ("cluster", "feature set group.version=1", "User:ANONYMOUS alter cluster"),
    ("topic/letters", "topic trim letters --before 0 --yes",
     "User:ANONYMOUS delete topic/letters"),
    ("group/team", "group delete team --yes", "User:ANONYMOUS delete group/team"),
])
def test_the_command_that_gives_a_refused_right_can_be_typed_as_it_is(
    resource: str, line: str, step: str, tmp_path: Path
) -> None:
    """Parts of it were placeholders: OPERATION, User:NAME, group/ID."""
    with RunningBroker(tmp_path / "data", **OVERRIDES | {"super.users": "User:root"}) as running:
        ottla = Ottla(f"127.0.0.1:{running.port}")
        ottla.ok("topic create letters --partitions 2")
        ottla.ok("group reset team --topic letters --to beginning --yes")
        operation = "describe" if step.endswith("describe cluster") else step.split()[1]
        if resource != "cluster":
            ottla.ok(["acl", "add", "User:ANONYMOUS", "describe", resource])
        ottla.ok(["acl", "add", "User:ANONYMOUS", operation, resource, "--deny"])
        done = ottla(line)
        assert done.status == 1
        assert done.err.endswith(f"can allow it: ottla acl add {step}\n"), done.err


def test_a_refused_login_is_followed_by_who_can_change_the_password() -> None:
    scram = LoginFailed("a:1: no", "SCRAM-SHA-512", "o'k")
    assert with_next_step("a:1: no", scram).endswith(
        """can set a new password: ottla user set 'o'"'"'k' --mechanism SCRAM-SHA-512""")
    token = LoginFailed("a:1: no", "SCRAM-SHA-256", "x", token=True)
    command = with_next_step("", token).partition("whether it has expired: ottla ")[2]
    parse(read("kafka")["kafka-delegation-tokens"], command.split()[1:]).needs(
        "bootstrap-server", "command-config")


@pytest.mark.parametrize("line", [
    "produce letters", "consume letters -e", "topic list",
    "mirror --from {} --to {} --from-config {login} --once",
])  # fmt: skip
def test_a_wrong_password_is_one_line(
    inside: Ottla, tmp_path: Path, line: str
) -> None:
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(FILE.format(jaas=JAAS, password="guessed"))
    mirrors = line.startswith("mirror")
    given = line.replace("{login}", str(wrong)).replace("{}", inside.address)
    given += "" if mirrors else f" --command-config {wrong}"
    done = inside(given, b"a\n")
    assert done.status == 1 and "Authentication failed" in done.err, done
    assert "; check the user's name and password" in done.err, done
    assert "listener.name.LISTENER.plain.sasl.jaas.config" in done.err, done
    assert len(done.err.splitlines()) == 1 and "guessed" not in done.err


def test_a_mirror_logs_in_to_each_cluster_by_its_own_file(
    inside: Ottla, target: Ottla, login: str, tmp_path: Path
) -> None:
    topic = "mirrored"
    inside.ok(f"topic create {topic} --partitions 1 --command-config {login}")
    inside.ok(f"produce {topic} --command-config {login}", b"1\n2\n")
    inside.ok(f"consume {topic} -G {topic} -o beginning -n 1 --command-config {login}")
    with Path(login).open("a") as file:
        file.write(f"bootstrap.servers={inside.address}\n")
    once = f"--topics {topic} --groups {topic} --once"
    target.ok(f"mirror --from-config {login} --to {target.address} {once}")
    assert target.ok(f"consume {topic} -G {topic} -n 1") == "2\n"
    target.ok("topic create other --partitions 1")
    target.ok("produce other", b"3\n")
    other = "--topics other --once"
    target.ok(f"mirror --from {target.address} --to-config {login} {other}")
    assert inside.ok(f"consume other -e --command-config {login}") == "3\n"


def test_a_file_of_mirrormaker_2_logs_in(
    inside: Ottla, target: Ottla, login: str, tmp_path: Path
) -> None:
    inside.ok(f"topic create made --partitions 1 --command-config {login}")
    inside.ok(f"produce made --command-config {login}", b"1\n")
    secured = "".join(f"a.{line}\n" for line in Path(login).read_text().splitlines())
    (tmp_path / "mm2").write_text(
        f"clusters=a,b\na.bootstrap.servers={inside.address}\n{secured}"
        f"b.bootstrap.servers={target.address}\na->b.enabled=true\na->b.topics=made\n"
    )
    target.ok(["kafka-mirror-maker", str(tmp_path / "mm2"), "--once"])
    assert target.ok("consume a.made -e") == "1\n"
