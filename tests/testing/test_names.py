"""A wrong name in a test raises an error that suggests similar names, before a broker starts."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from ottla.testing import Broker, BrokerFailed
from ottla.testing.names import api_key_of, error_of, settings_of
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import MetadataRequest


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("NOT_LEADER", "NOT_LEADER_OR_FOLLOWER"),
        ("NOT_LEADER_FOR_PARTITION", "NOT_LEADER_OR_FOLLOWER"),
        ("REQUEST_TIMEOUT", "REQUEST_TIMED_OUT"),
        ("UnknownTopic", "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_a_mistyped_error_is_answered_by_similar_ones(written: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"{written}' is not an error .* did you mean .*{meant}"):
        error_of(written)


def test_an_error_may_have_javas_name_or_its_code() -> None:
    for written in ("NOT_LEADER_OR_FOLLOWER", "NotLeaderOrFollowerException", 6):
        assert error_of(written) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(ValueError, match="999 is not a valid ErrorCode"):
        error_of(999)


def test_a_mistyped_api_is_answered_by_similar_ones() -> None:
    assert api_key_of("create_topics") == api_key_of("CreateTopics") == 19
    with pytest.raises(ValueError, match=r"'Produced' is not an API .* did you mean Produce"):
        api_key_of("Produced")
    with Broker() as broker, broker.record() as recording:
        with pytest.raises(ValueError, match=r"'Fetched' is not an API"):
            recording.requests("Fetched")


@pytest.mark.parametrize(("written", "near"), [
    ("Prodce", "Produce"), ("Produced", "Produce"), ("Fetched", "Fetch"),
    ("CreatTopics", "CreateTopics"),
])
def test_only_near_names_are_suggested_if_there_are_any(written: str, near: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean {near}") as raised:
        api_key_of(written)
    assert "InitProducerId" not in str(raised.value)


def test_a_broker_refuses_what_is_no_settings() -> None:
    """A project that used `KafkaContainer("image")` may pass an image to Broker."""
    with pytest.raises(TypeError, match=r"the first argument is a mapping.*There is no image"):
        Broker("confluentinc/cp-kafka:7.6.0")       # type: ignore[arg-type]
    wanted = re.escape("""did you mean Broker({'num.partitions': '3'})?""")
    with pytest.raises(TypeError, match=wanted):
        Broker("num.partitions=3")                  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"no argument 'image': it takes settings.*is no image"):
        Broker(image="confluentinc/cp-kafka:7.6.0")     # type: ignore[arg-type]
    with pytest.raises(AttributeError, match=r"no attribute 'with_kraft': leave it out"):
        Broker().with_kraft()                       # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"no attribute 'with_env': settings are its first"):
        Broker().with_env("KAFKA_NUM_PARTITIONS", "3")      # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"'get_exposed_port': its port is broker\.port"):
        Broker().get_exposed_port(9093)             # type: ignore[attr-defined]
    assert settings_of({"num.partitions": 3}) == {"num.partitions": "3"}


def test_a_duration_without_a_known_unit_is_answered_by_the_units() -> None:
    broker: Any = Broker()
    for given, shown in (((3600,), {}), "3600"), (((), {"weeks": 1}), "weeks=1"):
        with pytest.raises(TypeError, match=rf"advance\({shown}\): say how long with days, hours"):
            broker.advance(*given[0], **given[1])


def test_a_mistyped_setting_is_answered_by_a_similar_one() -> None:
    """A broker that is started by hand only logs a warning. Nobody reads the log of a test's
    broker, so there it is an error."""
    wanted = r"num\.partition is not a setting .*did you mean num\.partitions\?"
    with pytest.raises(ValueError, match=wanted):
        Broker({"num.partition": 3})
    for name in ("listener.name.tls.ssl.client.auth", "log.retention.ms", "ssl.keystore.type"):
        Broker({name: "1"})


def test_a_request_that_is_only_a_name_is_answered_by_the_message() -> None:
    broker: Any = Broker()
    for given, shown in (
        ("Metadata", r"'Metadata'\): expected a request .*such as MetadataRequest\(…\)"),
        ("create_topics", r"such as CreateTopicsRequest\(…\)"),
        (3, r"request\(3\): expected a request of ottla\.wire\.messages"),
        (MetadataRequest, r"not its class: write MetadataRequest\(…\)"),
    ):
        with pytest.raises(TypeError, match=shown):
            broker.request(given)
    with pytest.raises(ValueError, match=r"'Metadat' is not an API .* did you mean Metadata"):
        broker.request("Metadat")
    with pytest.raises(BrokerFailed, match="not running"):
        broker.request(MetadataRequest(topics=None))


def test_one_import_is_enough() -> None:
    """Another Python process is needed, because this one has already imported the packages."""
    program = (
        "import ottla; print(ottla.testing.Broker.__name__, ottla.spark_interop.__name__);"
        " assert not hasattr(ottla, 'tests')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "Broker ottla.spark_interop\n"


@pytest.mark.parametrize(("name", "hint"), [
    ("listeners", r"broker\.bootstrap_servers"), ("log.dirs", r"Broker\(directory=…\)"),
])  # fmt: skip
def test_a_setting_that_the_test_broker_chooses_itself_is_refused(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=rf"the test broker chooses {name} itself; .*{hint}"):
        Broker({name: "PLAINTEXT://localhost:9592"})
    with pytest.raises(ValueError, match=r"log_level='loud': expected one of .*info"):
        Broker(log_level="loud")


def test_a_fault_that_would_never_apply_is_refused() -> None:
    with Broker() as broker:
        at: Any = broker                # a test's mistakes, which a type checker would find
        for wrong in ("three", 0, -1, True, 1.5):
            with pytest.raises((TypeError, ValueError), match=rf"count={wrong!r}: "):
                at.fail("Produce", "NOT_LEADER_OR_FOLLOWER", count=wrong)
        with pytest.raises(ValueError, match="NONE is not an error"):
            broker.fail("Produce", "NONE")
        for wrong in ("2s", -1, True, float("nan"), float("inf")):
            with pytest.raises((TypeError, ValueError), match=rf"seconds={wrong!r}: "):
                at.delay("Produce", wrong)
        with pytest.raises(TypeError, match="after='no': expected True or False"):
            at.drop(after="no")
        with pytest.raises(TypeError, match="client_id=7: expected text"):
            at.drop(client_id=7)
        with pytest.raises(TypeError, match="partitions='3': expected a whole number"):
            at.create_topic("orders", "3")
        with pytest.raises(TypeError, match="hours='2': expected a number"):
            at.advance(hours="2")
        with pytest.raises(ValueError, match="bytes_left=-5: the lowest value is 0"):
            at.fill_disk(-5)
        assert at.fail("Produce", "NOT_LEADER_OR_FOLLOWER", count=2).hits == 0
