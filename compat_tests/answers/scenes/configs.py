"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

from typing import Any

from compat_tests.answers.conversation import Talk
from compat_tests.answers.scenes.topics import BAD_SETTINGS
from compat_tests.answers.variants import Body
from compat_tests.answers.versions import COMMON_VERSIONS
from ottla.wire.apis import ApiKey

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe_body(kind: int, name: str, keys: list[str] | None = None, **more: Any) -> Body:
    """A DescribeConfigs of one resource."""
    return {
        "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}],
        "include_synonyms": False, "include_documentation": False,
    } | more  # fmt: skip


def describe_configs(talk: Talk) -> None:
    """DescribeConfigs of all or some settings, for existing and missing resources of every type."""
    topic = talk.topic("t", 1, retention_ms="5000")
    keys = ["retention.ms", "cleanup.policy", "no.such"]
    talk.explore("DescribeConfigs", lambda: describe_body(TOPIC, topic, keys),
                 skip=("include_documentation",), stride=1)
    for version in COMMON_VERSIONS[ApiKey.DESCRIBE_CONFIGS]:
        for synonyms in (False, True):
            for asked in (None, []):
                talk.ask("DescribeConfigs", version,
                         describe_body(TOPIC, topic, asked, include_synonyms=synonyms))
        for kind, name in (
            (TOPIC, "nobody"), (TOPIC, ""), (TOPIC, "a b"), (BROKER, "9"), (BROKER, "x"),
            (BROKER, ""), (LOGGER, ""), (LOGGER, "9"), (METRICS, ""), (METRICS, "nobody"),
            (GROUP, ""), (GROUP, "nobody"), (0, "x"), (1, "x"), (3, "x"), (64, "x"), (-1, "x"),
        ):
            talk.ask("DescribeConfigs", version, describe_body(kind, name))
        body = describe_body(TOPIC, topic, keys)
        talk.ask("DescribeConfigs", version, body | {"resources": body["resources"] * 2})
        for names in (["log.retention.ms", "num.partitions"], ["no.such"]):
            talk.ask("DescribeConfigs", version, describe_body(BROKER, "1", names))


def group_settings(talk: Talk) -> None:
    """Settings of groups and of client metrics, and the list of resources that have settings."""
    group, metrics = talk.fresh("g"), talk.fresh("m")
    for kind, name, key, value in (
        (GROUP, group, "consumer.session.timeout.ms", "46000"),
        (GROUP, group, "consumer.session.timeout.ms", "1"),
        (GROUP, group, "consumer.heartbeat.interval.ms", "x"),
        (GROUP, group, "no.such", "1"), (GROUP, "", "consumer.session.timeout.ms", "46000"),
        (METRICS, metrics, "interval.ms", "1000"), (METRICS, metrics, "interval.ms", "1"),
        (METRICS, metrics, "metrics", "a,b"), (METRICS, metrics, "match", "nonsense"),
        (METRICS, metrics, "no.such", "1"), (METRICS, "", "metrics", "a"),
    ):
        for version in (0, 1):
            for operation in (SET, DELETE, APPEND):
                talk.ask("IncrementalAlterConfigs", version, {
                    "resources": [{
                        "resource_type": kind, "resource_name": name, "configs": [
                            {"name": key, "config_operation": operation, "value": value}],
                    }], "validate_only": operation != SET,
                })  # fmt: skip
        talk.ask("DescribeConfigs", 4, describe_body(kind, name))
    for types in ([], [TOPIC], [GROUP], [METRICS], [LOGGER, BROKER], [0], [99], [GROUP, GROUP]):
        for version in (0, 1):
            talk.ask("ListConfigResources", version, {"resource_types": types})
            answer = talk.entries[-1].answer
            if isinstance(answer, dict):
                answer["config_resources"] = [
                    each for each in answer["config_resources"]
                    if each["resource_name"].startswith((talk.scene, "1"))
                ]


def alter_configs(talk: Talk) -> None:
    """AlterConfigs, which replaces all settings of a resource."""
    topic = talk.topic("t")

    def make(kind: int = TOPIC, name: str = topic, validate: bool = True) -> Body:
        configs = [{"name": "retention.ms", "value": "7000"},
                   {"name": "cleanup.policy", "value": "compact"}]
        resource = {"resource_type": kind, "resource_name": name, "configs": configs}
        return {"resources": [resource], "validate_only": validate}

    talk.explore("AlterConfigs", make, skip=("validate_only", "resources"), stride=1)
    for version in COMMON_VERSIONS[ApiKey.ALTER_CONFIGS]:
        for validate in (True, False):
            for configs in ([], *BAD_SETTINGS):
                body = make(validate=validate)
                body["resources"][0]["configs"] = configs
                talk.ask("AlterConfigs", version, body)
        for kind, name in ((TOPIC, "nobody"), (TOPIC, ""), (GROUP, ""), (LOGGER, "1"), (0, "x"),
                           (BROKER, "9"), (BROKER, "x"), (99, "x"), (TOPIC, "a b")):
            talk.ask("AlterConfigs", version, make(kind, name))
        talk.ask("AlterConfigs", version, make(validate=False))
        talk.ask("DescribeConfigs", 4, describe_body(TOPIC, topic))


def incremental_configs(talk: Talk) -> None:
    """IncrementalAlterConfigs, which changes single settings."""
    topic = talk.topic("t")

    def make(
        name: str = "retention.ms", operation: int = SET, value: str | None = "7000",
        kind: int = TOPIC, resource: str = topic, validate: bool = True,
    ) -> Body:
        config = {"name": name, "config_operation": operation, "value": value}
        return {"resources": [{"resource_type": kind, "resource_name": resource,
                               "configs": [config]}], "validate_only": validate}

    talk.explore("IncrementalAlterConfigs", make, skip=("validate_only",), stride=1)
    for version in (0, 1):
        for validate in (True, False):
            for configs in BAD_SETTINGS:
                for operation in (SET, DELETE, APPEND, SUBTRACT):
                    body = make(validate=validate)
                    body["resources"][0]["configs"] = [
                        each | {"config_operation": operation} for each in configs]
                    talk.ask("IncrementalAlterConfigs", version, body)
        for operation, value in ((APPEND, "compact"), (APPEND, "compact"), (SUBTRACT, "delete"),
                                 (SUBTRACT, "burn"), (SUBTRACT, "compact"), (DELETE, "x"),
                                 (DELETE, None), (SET, None), (APPEND, None), (SUBTRACT, None),
                                 (APPEND, ""), (SUBTRACT, ""), (SET, ""), (4, "x"), (-1, "x")):
            talk.ask("IncrementalAlterConfigs", version,
                     make("cleanup.policy", operation, value, validate=False))
            talk.ask("DescribeConfigs", 4, describe_body(TOPIC, topic, ["cleanup.policy"]))
        for kind, name in ((TOPIC, "nobody"), (TOPIC, ""), (GROUP, ""), (0, "x"), (BROKER, "9"),
                           (BROKER, "x"), (99, "x"), (TOPIC, "a b"), (LOGGER, ""), (LOGGER, "9")):
            talk.ask("IncrementalAlterConfigs", version, make(kind=kind, resource=name))
        for key, value in (("log.retention.ms", "5000"), ("log.retention.ms", "x"),
                           ("no.such", "1"), ("num.network.threads", "0"), ("node.id", "5"),
                           ("log.cleaner.threads", "1"), ("log.dirs", "/x")):
            for resource in ("1", ""):
                talk.ask("IncrementalAlterConfigs", version,
                         make(key, SET, value, BROKER, resource))


SCENES = (describe_configs, group_settings, alter_configs, incremental_configs)
