"""Settings of topics, brokers, loggers, groups and client metrics; quotas; SCRAM credentials."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.client.errors import check
from ottla.wire.messages import (
    AlterClientQuotasRequest,
    AlterUserScramCredentialsRequest,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    DescribeUserScramCredentialsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.client.connection import Connection

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""Types of resources that have settings."""
KINDS = {
    "topics": TOPIC,
    "brokers": BROKER,
    "broker-loggers": BROKER_LOGGER,
    "client-metrics": CLIENT_METRICS,
    "groups": GROUP,
}
NOUNS = {TOPIC: "topic", GROUP: "group", CLIENT_METRICS: "client metrics"}
SOURCES = {
    0: "UNKNOWN",
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
EXACT, DEFAULT, ANY = 0, 1, 2
"""How a component of a quota's entity is matched."""
MECHANISMS = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
SCRAM_ITERATIONS = 4096


def resource_text(kind: int, name: str) -> str:
    """How messages name a resource."""
    if kind in (BROKER, BROKER_LOGGER):
        return f"broker {name}" if name else "all brokers"
    return f"{NOUNS[kind]} {name!r}"


def asked_of(cluster: ClusterClient, kind: int, name: str) -> Connection:
    """The connection for requests about a resource: to the broker itself if the resource is one
    broker or its loggers, otherwise to any broker."""
    if kind in (BROKER, BROKER_LOGGER) and name:
        return cluster.node(int(name))
    return cluster.any()


def describe(
    cluster: ClusterClient,
    kind: int,
    name: str,
    *,
    synonyms: bool = True,
    documentation: bool = False,
) -> list[Any]:
    """The settings of one resource, sorted by name."""
    resource = DescribeConfigsRequest.Resource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=synonyms, include_documentation=documentation
    )
    [result] = asked_of(cluster, kind, name).call(request).results
    check(result.error_code, result.error_message, resource_text(kind, name))
    return sorted(result.configs, key=lambda item: str(item.name))


def describe_many(
    cluster: ClusterClient, kind: int, wanted: Sequence[str], asked: Connection | None = None,
    keys: list[str] | None = None,
) -> dict[str, list[Any]]:
    """The settings of several resources, by the resources' names: all settings, or only those in
    `keys`, in the order of the broker's reply. The request goes to `asked` or, without it, to any
    broker."""
    resources = [
        DescribeConfigsRequest.Resource(
            resource_type=kind, resource_name=name, configuration_keys=keys
        )
        for name in wanted
    ]
    if not resources:
        return {}
    results = (asked or cluster.any()).call(DescribeConfigsRequest(resources=resources)).results
    found = {}
    for result in results:
        check(result.error_code, result.error_message, resource_text(kind, result.resource_name))
        found[result.resource_name] = list(result.configs)
    return found


def alter(
    cluster: ClusterClient,
    kind: int,
    name: str,
    set_to: Mapping[str, str],
    reset: Iterable[str] = (),
    *,
    dry_run: bool = False,
) -> str:
    """Sets some settings of a resource and resets others to their defaults. Returns the
    broker's remarks about accepted settings, such as that they have no effect."""
    config = IncrementalAlterConfigsRequest.Resource.Config
    changes = [config(name=key, config_operation=SET, value=value) for key, value in set_to.items()]
    changes += [config(name=key, config_operation=DELETE, value=None) for key in reset]
    resource = IncrementalAlterConfigsRequest.Resource(
        resource_type=kind, resource_name=name, configs=changes
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=dry_run)
    [done] = asked_of(cluster, kind, name).call(request).responses
    check(done.error_code, done.error_message, resource_text(kind, name))
    return done.error_message or ""


def resources(cluster: ClusterClient, kind: int) -> list[str]:
    """The names of groups or client metrics that have settings."""
    response = cluster.any().call(ListConfigResourcesRequest(resource_types=[kind]))
    check(response.error_code)
    return sorted(
        item.resource_name for item in response.config_resources if item.resource_type == kind
    )


def quotas(
    cluster: ClusterClient,
    components: Sequence[tuple[str, int, str | None]],
    *,
    strict: bool = False,
) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """The entities that match `components`, and their quotas. An entity maps types, such as user,
    to names. The name None stands for the default user, client or address."""
    request_components = [
        DescribeClientQuotasRequest.Component(entity_type=kind, match_type=match, match=name)
        for kind, match, name in components
    ]
    response = cluster.any().call(
        DescribeClientQuotasRequest(components=request_components, strict=strict)
    )
    check(response.error_code, response.error_message)
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in response.entries or []
    ]


def alter_quotas(
    cluster: ClusterClient,
    entity: Mapping[str, str | None],
    set_to: Mapping[str, float],
    reset: Iterable[str] = (),
    *,
    dry_run: bool = False,
) -> None:
    """Set and remove quotas of one entity."""
    entry = AlterClientQuotasRequest.Entry
    changes = [entry.Op(key=key, value=value) for key, value in set_to.items()]
    changes += [entry.Op(key=key, remove=True) for key in reset]
    parts = [entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    request = AlterClientQuotasRequest(
        entries=[entry(entity=parts, ops=changes)], validate_only=dry_run
    )
    [done] = cluster.controller().call(request).entries
    check(done.error_code, done.error_message)


def scram_users(cluster: ClusterClient, wanted: Sequence[str] | None = None) -> list[Any]:
    """The SCRAM credentials, without secrets, of these users or (None) of all users."""
    names = None
    if wanted is not None:
        names = [DescribeUserScramCredentialsRequest.User(name=name) for name in wanted]
    response = cluster.any().call(DescribeUserScramCredentialsRequest(users=names))
    check(response.error_code, response.error_message)
    return list(response.results)


def set_scram(
    cluster: ClusterClient,
    user: str,
    mechanism: str,
    password: str,
    iterations: int = SCRAM_ITERATIONS,
) -> None:
    """Give a user a SCRAM credential. The password itself is not sent (RFC 5802)."""
    number, digest = MECHANISMS[mechanism]
    salt = secrets.token_bytes(24)
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    upsertion = AlterUserScramCredentialsRequest.Upsertion(
        name=user, mechanism=number, iterations=iterations, salt=salt, salted_password=salted
    )
    _alter_scram(cluster, AlterUserScramCredentialsRequest(upsertions=[upsertion]))


def delete_scram(cluster: ClusterClient, user: str, mechanism: str) -> None:
    """Deletes a user's SCRAM credential."""
    deletion = AlterUserScramCredentialsRequest.Deletion(
        name=user, mechanism=MECHANISMS[mechanism][0]
    )
    _alter_scram(cluster, AlterUserScramCredentialsRequest(deletions=[deletion]))


def _alter_scram(cluster: ClusterClient, request: Any) -> None:
    for result in cluster.controller().call(request).results:
        check(result.error_code, result.error_message, result.user)
