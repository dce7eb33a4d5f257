"""docs/settings.md agrees with the declarations, and the declarations with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.broker.security.tls.zookeeper import REVOCATION
from ottla.broker.settings import broker, topic
from ottla.broker.settings.broker import BrokerSettings
from ottla.broker.settings.page import PAGE, page, without_effect
from ottla.broker.settings.topic import TopicConfig

PACKAGE = Path(broker.__file__).parents[2]
DECLARATIONS = {"broker/settings/broker.py", "broker/settings/topic.py", "log/partition/config.py"}
SOURCES = "\n".join(
    path.read_text()
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyx")])
    if str(path.relative_to(PACKAGE)) not in DECLARATIONS
)
EFFECTS = {
    "cleanup_policy": r"config\.(?:deletes|compacts)",    # the properties of LogConfig that read it
    **{f"compression_{codec}_level": "compression_{config.compression_type}_level"
       for codec in ("gzip", "lz4", "zstd")},
    # `zookeeper_context` reads these settings under the names of a listener's settings.
    **{name.replace(".", "_"): rf"\.{name.removeprefix('zookeeper.').replace('.', '_')}\b"
       for name in BrokerSettings.declared if name.startswith("zookeeper.ssl.")
       and name != "zookeeper.ssl.client.enable"},
    # The code reads these settings only to refuse them if they are true.
    **{name.replace(".", "_"): "in REVOCATION" for name in REVOCATION},
    # Read as text from the properties, before the broker has checked them.
    "sasl_mechanism_inter_broker_protocol": r"texts\.get\(MECHANISM_OF_PEERS",
    # The throttle composes the names of its settings.
    **{f"{side}_replication_throttled_replicas": r"\{side\}\.replication\.throttled\.replicas"
       for side in ("leader", "follower")},
}


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "run make generate"


def test_no_setting_that_has_an_effect_is_said_to_be_accepted_only() -> None:
    """Kafka 4.0 removed ZooKeeper's settings, but Ottla uses them."""
    _, removed = re.split(r"Kafka 4\.0 removed\s+these properties", page())
    listed = set(re.findall(r"`([a-z.A-Z]+)`", removed))
    assert "zookeeper.set.acl" in listed and not listed & BrokerSettings.declared.keys()


@pytest.mark.parametrize(
    "name",
    sorted(
        BrokerSettings.declared.keys()
        | (TopicConfig.declared.keys() - topic.IDLE.keys() - topic.REFUSED.keys())
    ),
)
def test_a_setting_that_is_said_to_have_an_effect_is_read_somewhere(name: str) -> None:
    attribute = name.replace(".", "_")
    assert re.search(EFFECTS.get(attribute, rf"\.{attribute}\b"), SOURCES)


def test_every_property_is_either_used_or_without_effect() -> None:
    unused = {setting.name for setting in without_effect()}
    assert "num.io.threads" in unused and "background.threads" in unused
    assert not unused & {"log.flush.interval.ms", "compression.type"}
    assert not unused & BrokerSettings.declared.keys()
    assert "log.retention.hours" not in unused
