"""Settings: DescribeConfigs (key 32), AlterConfigs (33), IncrementalAlterConfigs (44), and
ListConfigResources (74).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ottla.broker.cluster.metadata_log import NotController, for_each
from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.access import (
    CLUSTER_REFUSED,
    GROUP_REFUSED,
    TOPIC_REFUSED,
    Access,
)
from ottla.broker.security.decisions import by_item, on_cluster
from ottla.broker.settings.change_rules import NODE_ID, rules_for, without_effect
from ottla.broker.settings.entries import (
    TYPES,
    Entry,
    ResourceType,
    Source,
    all_brokers_entries,
    broker_entries,
    client_metrics_entries,
    group_entries,
    logger_entries,
    topic_entries,
)
from ottla.broker.settings.loggers import alter_levels
from ottla.broker.threads.slices import Slices, run
from ottla.replication.controller.access import Operation as AclOperation
from ottla.replication.controller.configs import (
    Alteration,
    ConfigChange,
    ConfigRules,
    Operation,
    alter_configs,
    forget_eligible,
)
from ottla.replication.controller.elections import MIN_ISR, UNCLEAN
from ottla.replication.controller.reassignment import complete_reassignments
from ottla.replication.topic_names import require_legal_name
from ottla.wire.apis import ApiKey
from ottla.wire.errors import (
    ErrorCode,
    InvalidRequest,
    ProtocolError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from ottla.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

log = logging.getLogger("ottla.config")

AnyAlter = AlterConfigsRequest | IncrementalAlterConfigsRequest
Rules = Mapping[str, ConfigRules]
Errors = list[ProtocolError | None]
Decide = Callable[[RequestContext, Sequence[Alteration], Rules, bool], Awaitable[Errors]]

KINDS = {
    ResourceType.TOPIC: "topic",
    ResourceType.BROKER: "broker",
    ResourceType.CLIENT_METRICS: "client-metrics",
    ResourceType.GROUP: "group",
}
"""The names of resource types in metadata records, which do not contain logger levels."""


@handles(ApiKey.DESCRIBE_CONFIGS, access=by_item)
async def describe_configs(
    request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    """Report the named settings of each resource, or all its settings if none are named.

    Settings of a topic or a group require DESCRIBE_CONFIGS on the topic or the group. All other
    settings require DESCRIBE_CONFIGS on the cluster.
    """
    access = context.access
    asked, refused = await access.divide(
        request.resources, lambda each: not _refusal(access, AclOperation.DESCRIBE_CONFIGS, each)
    )
    results = [_describe(each, request, context) async for each in Slices().each(asked)]
    return DescribeConfigsResponse(
        results=results + _refused(
            DescribeConfigsResponse.Result, access, AclOperation.DESCRIBE_CONFIGS, refused
        )
    )


def _refusal(access: Access, operation: int, resource: Any) -> int:
    """The error code if the client may not access a resource's settings, else 0."""
    kind, name = resource.resource_type, resource.resource_name
    if kind == ResourceType.TOPIC:
        return 0 if access.topic(operation, name) else TOPIC_REFUSED
    if kind == ResourceType.GROUP:
        return 0 if access.group(operation, name) else GROUP_REFUSED
    return 0 if access.cluster(operation) else CLUSTER_REFUSED


def _refused(
    made: Any, access: Access, operation: int, resources: Iterable[Any]
) -> list[Any]:
    return [
        made(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            error_code=_refusal(access, operation, resource),
            error_message="Authorization failed.",
        )
        for resource in resources
    ]


def _describe(
    resource: DescribeConfigsRequest.Resource,
    request: DescribeConfigsRequest,
    context: RequestContext,
) -> DescribeConfigsResponse.Result:
    answer = DescribeConfigsResponse.Result(
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    wanted = frozenset(resource.configuration_keys or ())
    try:
        for entry in _entries(resource.resource_type, resource.resource_name, context):
            if not wanted or entry.name in wanted:
                answer.configs.append(_described(entry, request, context.version))
    except ProtocolError as error:
        answer.error_code = int(error.code)
        answer.error_message = error.message
    return answer


def _entries(resource_type: int, name: str, context: RequestContext) -> Iterator[Entry]:
    broker, image = context.broker, context.broker.image
    if resource_type == ResourceType.TOPIC:
        require_legal_name(name)
        if name not in image.topics:
            raise UnknownTopicOrPartition("This server does not host this topic-partition.")
        return topic_entries(broker, image, image.config_of("topic", name))
    if resource_type == ResourceType.BROKER:
        if not name:
            return all_brokers_entries(image)
        _require_this_broker(name, broker.node_id, " or empty string,")
        return broker_entries(broker, image)
    if resource_type == ResourceType.BROKER_LOGGER:
        if not name:
            raise InvalidRequest("Broker id must not be empty")
        _require_this_broker(name, broker.node_id, "")
        return logger_entries()
    if resource_type == ResourceType.GROUP:
        if not name:
            raise InvalidRequest("Group name must not be empty")
        return group_entries(broker, image, image.config_of("group", name))
    if resource_type == ResourceType.CLIENT_METRICS:
        if not name:
            raise InvalidRequest("Client metrics subscription name must not be empty")
        return client_metrics_entries(image.config_of("client-metrics", name))
    raise InvalidRequest(f"Unsupported resource type: {resource_type}")


def _require_this_broker(name: str, node_id: int, or_what: str) -> None:
    if NODE_ID.fullmatch(name) is None:
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise InvalidRequest(
            f"Unexpected broker id, expected {node_id}{or_what} but received {name}"
        )


def _described(
    entry: Entry, request: DescribeConfigsRequest, version: int
) -> DescribeConfigsResponse.Result.Config:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResponse.Result.Config(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=version == 0 and entry.source == Source.DEFAULT,
        config_source=int(entry.source),
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsResponse.Result.Config.Synonym(
                name=each.name, value=each.value, source=int(each.source)
            )
            for each in synonyms
        ],
        config_type=TYPES[entry.kind],
        documentation=entry.documentation if request.include_documentation else None,
    )


@handles(ApiKey.ALTER_CONFIGS, access=by_item)
async def alter_configs_api(
    request: AlterConfigsRequest, context: RequestContext
) -> AlterConfigsResponse:
    """Replace all settings of resources.

    Settings of a topic or a group require ALTER_CONFIGS on the topic or the group. All other
    settings require ALTER_CONFIGS on the cluster.
    """
    made = AlterConfigsResponse
    return made(responses=await _respond(request, made, context))


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, access=by_item)
async def incremental_alter_configs_api(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Change some settings of resources (KIP-339).

    Settings of a topic or a group require ALTER_CONFIGS on the topic or the group. All other
    settings require ALTER_CONFIGS on the cluster.
    """
    made = IncrementalAlterConfigsResponse
    return made(responses=await _respond(request, made, context))


async def _respond(request: AnyAlter, made: Any, context: RequestContext) -> list[Any]:
    """The answer for each resource; `made` is the class of the response."""
    access, resources = context.access, _resources(request)
    if _decided_elsewhere(context):
        return await _respond_elsewhere(request, made, context)
    asked, refused = await access.divide(
        resources, lambda each: not _refusal(access, AclOperation.ALTER_CONFIGS, each)
    )
    errors = await _alter(asked, request, context, _decide)
    if any(isinstance(error, NotController) for error in errors) and _decided_elsewhere(context):
        # This broker is no longer the controller. The call below sets the levels of this broker's
        # loggers once more, to the same values.
        return await _respond_elsewhere(request, made, context)
    return [
        _answer(made, resource, error) for resource, error in zip(asked, errors, strict=True)
    ] + _refused(made.Response, access, AclOperation.ALTER_CONFIGS, refused)


def _resources(request: AnyAlter) -> list[Any]:
    return [*request.resources]


def _decided_elsewhere(context: RequestContext) -> bool:
    """Whether another broker, the controller, decides this client's request."""
    return not context.forwarded and not context.broker.role.decides()


async def _respond_elsewhere(request: AnyAlter, made: Any, context: RequestContext) -> list[Any]:
    """Set this broker's logger levels. Validate the settings that apply to this broker only, since
    the controller does not have this broker's properties file. Forward these settings, if they are
    valid, and all other resources to the controller."""
    access, role, version = context.access, context.broker.role, context.version
    kind: Any = type(request)
    resources = _resources(request)
    of_broker = [each for each in resources if _is_of_one_broker(each, request)]
    asked, refused = await access.divide(
        of_broker, lambda each: not _refusal(access, AclOperation.ALTER_CONFIGS, each)
    )
    errors = await _alter(asked, request, context, _check)
    known = {
        id(resource): _answer(made, resource, error)
        for resource, error in zip(asked, errors, strict=True)
        if error is not None or resource.resource_type == ResourceType.BROKER_LOGGER
    }
    refusals = _refused(made.Response, access, AclOperation.ALTER_CONFIGS, refused)
    known |= {id(each): answer for each, answer in zip(refused, refusals, strict=True)}
    rest = [each for each in resources if id(each) not in known]
    answers: dict[tuple[int, str], list[Any]] = {}
    if rest:
        forwarded = kind(resources=rest, validate_only=request.validate_only)
        response = await role.forward(context, forwarded.encode(version))
        async for told in Slices().each(made.decode(response.encode(version), version).responses):
            answers.setdefault((told.resource_type, told.resource_name), []).append(told)
    return [
        known.get(id(each)) or answers[each.resource_type, each.resource_name].pop(0)
        for each in resources
    ]


def _is_of_one_broker(resource: Any, request: AnyAlter) -> bool:
    kind = resource.resource_type
    return (kind == ResourceType.BROKER and bool(resource.resource_name)) or (
        kind == ResourceType.BROKER_LOGGER and isinstance(request, IncrementalAlterConfigsRequest))


def _answer(made: Any, resource: Any, error: ProtocolError | None) -> Any:
    names = [
        each.name for each in resource.configs
        if getattr(each, "config_operation", Operation.SET) != Operation.DELETE
    ]
    return made.Response(
        error_code=0 if error is None else int(error.code),
        error_message=_message(error, resource, names),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _message(error: ProtocolError | None, resource: Any, names: list[str]) -> str | None:
    """The error's message, or a note that settings were accepted but have no effect."""
    if error is not None:
        return error.message
    if resource.resource_type != ResourceType.BROKER:
        return None
    if resource.resource_name and UNCLEAN in names:
        log.warning(
            "a client has set %s for broker %s alone: it has an effect only if it is set for a"
            " topic or for all brokers", UNCLEAN, resource.resource_name,
        )
    message = without_effect(names)
    if message is not None:
        log.warning("a client has set broker settings that have no effect: %.300s", message)
    return message


async def _alter(
    resources: Sequence[Any], request: AnyAlter, context: RequestContext, decide: Decide
) -> list[ProtocolError | None]:
    """Alter resources; returns an error or None for each, in their order."""
    replace = isinstance(request, AlterConfigsRequest)
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    errors: list[ProtocolError | None] = []
    places, alterations = [], []
    for place, resource in enumerate(resources):
        errors.append(None)
        resource_type, name = resource.resource_type, resource.resource_name
        changes = [
            ConfigChange(each.name, getattr(each, "config_operation", Operation.SET), each.value)
            for each in resource.configs
        ]
        if resource_type in KINDS:
            places.append(place)
            kind = KINDS[ResourceType(resource_type)]
            alterations.append(Alteration(kind, name, changes, replace))
        elif resource_type == ResourceType.BROKER_LOGGER and not replace:
            try:
                if times[resource_type, name] > 1:
                    raise InvalidRequest("Each resource must appear at most once.")
                _alter_loggers(name, changes, request.validate_only, context)
            except ProtocolError as refusal:
                errors[place] = refusal.kept()
        else:
            errors[place] = InvalidRequest(f"Unknown resource type {resource_type}: not supported")
    if alterations:
        broker = context.broker
        rules = rules_for(
            broker.image.brokers.keys() if context.forwarded else {broker.node_id},
            broker.node_id,
            broker.config.static,
            broker.security.check,
            [*map(str, broker.config.log_directories())],
        )
        outcomes = await decide(context, alterations, rules, request.validate_only)
        for place, error in zip(places, outcomes, strict=True):
            errors[place] = error
    return errors


async def _forget_eligible(
    context: RequestContext, alterations: Sequence[Alteration], rules: Rules
) -> None:
    """Remove eligible leader replicas where a change of min.insync.replicas requires it (KIP-966).
    They are removed in parts that each fit into an entry of the metadata log. Errors are ignored
    here, because the caller decides the same alterations next and then gets the same errors."""
    with suppress(ProtocolError):
        for each in alterations:
            while await context.broker.metadata_log.decide(forget_eligible, each, rules):
                pass


async def _decide(
    context: RequestContext, alterations: Sequence[Alteration], rules: Rules, validate_only: bool
) -> Errors:
    several_replicas = context.broker.role.replicated and not validate_only
    if several_replicas:
        await _forget_eligible(context, alterations, rules)
    outcomes: Errors = await context.broker.metadata_log.decide_each(
        for_each(alterations), alter_configs.steps, alterations, rules, validate_only
    )
    if several_replicas:
        await complete_waiting_reassignments(context, alterations, outcomes)
    return outcomes


async def complete_waiting_reassignments(
    context: RequestContext, alterations: Sequence[Alteration], errors: Errors
) -> None:
    """Complete the reassignments that waited because min.insync.replicas was higher before. If this
    broker cannot complete them, for example because it is no longer the controller, `errors` gets
    the error for the alteration. The client can then repeat its request to complete them."""
    for at, (each, error) in enumerate(zip(alterations, errors, strict=True)):
        names_it = each.replace or any(change.name == MIN_ISR for change in each.changes)
        if error is not None or not names_it or each.resource_type not in ("topic", "broker"):
            continue
        if each.resource_type == "broker" and each.resource_name:
            continue                        # min.insync.replicas of a single broker has no effect
        topic = each.resource_name or None
        try:
            while await context.broker.metadata_log.decide(complete_reassignments, topic):
                pass
        except ProtocolError as failure:
            errors[at] = failure.kept()


async def _check(
    context: RequestContext, alterations: Sequence[Alteration], rules: Rules, validate_only: bool
) -> Errors:
    """Validate the alterations against this broker's image, but do not make them. The controller
    validates the forwarded ones again, since its image may be newer."""
    steps = alter_configs.steps(context.broker.image, alterations, rules, True)
    return (await run(steps, Slices())).result


def _alter_loggers(
    name: str, changes: Sequence[ConfigChange], validate_only: bool, context: RequestContext
) -> None:
    node_id = context.broker.node_id
    if NODE_ID.fullmatch(name) is None:
        raise InvalidRequest(f"Node id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise InvalidRequest(f"Unexpected node id. Expected {node_id}, but received {name}")
    alter_levels(changes, validate_only)


@handles(ApiKey.LIST_CONFIG_RESOURCES, access=on_cluster(AclOperation.DESCRIBE_CONFIGS))
def list_config_resources(
    request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """List the resources of the named types, or of all types (KIP-1142). Version 0 lists client
    metrics only."""
    types = {int(ResourceType.CLIENT_METRICS)}
    if context.version > 0:
        types = set(request.resource_types) or set(map(int, ResourceType))
    unknown = types - set(map(int, ResourceType))
    if unknown:
        raise UnsupportedVersion(f"resource type {min(unknown)} is unknown and cannot be listed")
    image = context.broker.image
    resources: list[tuple[int, str]] = []
    for resource_type in sorted(types, reverse=True):
        if resource_type == ResourceType.TOPIC:
            names: Iterable[str] = image.topics
        elif resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
            names = map(str, sorted(image.brokers))
        else:
            kind = KINDS[ResourceType(resource_type)]
            names = sorted(name for k, name in image.configs if k == kind)
        resources += [(resource_type, name) for name in names]
    return ListConfigResourcesResponse(
        error_code=int(ErrorCode.NONE),
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=number)
            for number, name in resources
        ],
    )
