"""Creates topics at their first use: topics that may be created automatically, and internal
topics."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.settings.topic import TopicConfig, check_topic_configs
from ottla.replication.controller.topics import (
    NewTopic,
    TopicAlreadyExists,
    TopicAnswer,
    TopicDefaults,
    create_topics,
)
from ottla.replication.metadata import Decision, MetadataImage
from ottla.replication.topic_names import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
    is_legal_name,
)
from ottla.wire.errors import ErrorCode, ProtocolError, RequestTimedOut
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext
    from ottla.broker.quotas.quotas import Mutations
    from ottla.broker.security.client import Client
    from ottla.broker.settings.config import BrokerConfig

log = logging.getLogger("ottla.topics")

CREATE_TOPICS_VERSION = 7
FORWARDED_TIMEOUT_MS = 30_000

INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})

FACTOR = "default.replication.factor"
FACTORS = {
    OFFSETS_TOPIC: "offsets.topic.replication.factor",
    TRANSACTIONS_TOPIC: "transaction.state.log.replication.factor",
}
"""The settings of the internal topics' replication factors; FACTOR applies to all other topics."""


def new_topic_id() -> bytes:
    """A random id (UUID version 4)."""
    return uuid.uuid4().bytes


def topic_defaults(broker: BrokerContext, image: MetadataImage) -> TopicDefaults:
    """The defaults of new topics."""
    config = broker.config
    return TopicDefaults(
        config.num_partitions,
        attainable_factor(broker, FACTOR, config.default_replication_factor, image),
        check_topic_configs,
    )


def attainable_factor(
    broker: BrokerContext, setting: str, wanted: int, image: MetadataImage
) -> int:
    """The replication factor of a setting, limited by `Role.attainable_factor`."""
    factor = broker.role.attainable_factor(wanted, image)
    warned = broker.kept.warned_of_factors
    if factor < wanted and setting in broker.config.static and (setting, factor) not in warned:
        warned.add((setting, factor))
        log.warning(
            "%s=%d is more than the number of brokers: new topics get the replication factor %d",
            setting, wanted, factor,
        )
    return factor


def is_internal(name: str) -> bool:
    """Whether a topic is internal: only brokers write to it."""
    return name in INTERNAL_TOPICS


async def create_missing(
    broker: BrokerContext, names: Collection[str], client: Client | None = None
) -> None:
    """Create the topics in `names` that are legal and do not exist; returns when they are usable.

    If `client` is given, its quota of mutations applies (KIP-599). `client` is None if a broker
    itself needs the topics; then no quota applies. A failure is logged; the topic is then not in
    the image.
    """
    missing = [n for n in names if n not in broker.image.topics and _may_be_automatic(n)]
    if client is not None and missing:
        await _create(broker, missing, client)
        return
    for name in missing:
        # All callers that wait for an internal topic share one request. If the topic cannot be
        # created, thousands of callers may retry. One request for each of them would delay the
        # changes of in-sync sets, which use the same connection.
        task = broker.creating.get(name)
        if task is None:
            task = broker.creating[name] = asyncio.create_task(_create(broker, [name], None))
            task.add_done_callback(partial(_created, broker, name))
        await asyncio.shield(task)


def _created(broker: BrokerContext, name: str, _: asyncio.Task[None]) -> None:
    del broker.creating[name]


async def _create(broker: BrokerContext, missing: Sequence[str], client: Client | None) -> None:
    if not broker.role.decides():
        await _ask_controller(broker, missing, client)
        return
    quota = None if client is None else broker.quotas.mutations(client, True)
    try:
        answers = await broker.metadata_log.decide(_create_missing, broker, missing, quota)
    except ProtocolError as error:
        if error.code == ErrorCode.NOT_CONTROLLER:
            # This broker is no longer the controller.
            await _ask_controller(broker, missing, client)
        else:
            # For instance, the disk is full. Clients retry.
            _none_created(broker, missing, error)
        return
    for answer in answers:
        if answer.error is None:
            log.info("topic %s: created at its first use", answer.name)
        elif not isinstance(answer.error, TopicAlreadyExists):
            _not_created(broker, answer.name or "", answer.error.code, answer.error.message)


async def _ask_controller(
    broker: BrokerContext, names: Sequence[str], client: Client | None
) -> None:
    """Ask the controller to create topics. If there is a client, ask on its behalf, so that its
    quota applies. If there is none, ask on behalf of this broker."""
    from ottla.broker.request_context import RequestContext
    from ottla.wire.messages import CreateTopicsRequest, CreateTopicsResponse

    made = CreateTopicsRequest.Topic
    request = CreateTopicsRequest(timeout_ms=FORWARDED_TIMEOUT_MS, topics=[
        made(
            name=topic.name, num_partitions=topic.num_partitions,
            replication_factor=topic.replication_factor, assignments=[],
            configs=[made.Config(name=name, value=value) for name, value in topic.configs],
        )
        for topic in (automatic_topic(broker, broker.image, name) for name in names)
    ])
    version = CREATE_TOPICS_VERSION
    try:
        if client is None:
            answer = await broker.role.ask(request, version)
            await broker.role.caught_up()
        else:
            context = RequestContext(broker, request.API_KEY, version, client)
            response = await broker.role.forward(context, request.encode(version))
            answer = CreateTopicsResponse.decode(response.encode(version), version)
    except RequestTimedOut as error:
        _none_created(broker, names, error)
        return
    for topic in answer.topics:
        code = ErrorCode(topic.error_code)
        if code is ErrorCode.NONE:
            log.info("topic %s: created at its first use", topic.name)
        elif code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            _not_created(broker, topic.name, code, topic.error_message)


def _none_created(broker: BrokerContext, names: Sequence[str], error: ProtocolError) -> None:
    text = f"topics {', '.join(names)}: not created: {error}"
    broker.notes.tell(log, "creation of topics", text)


def _not_created(broker: BrokerContext, name: str, code: int, message: str | None) -> None:
    """Log a failure, at a bounded rate: clients retry many times a second."""
    why = message or ErrorCode(code).name
    if code == ErrorCode.INVALID_REPLICATION_FACTOR:
        why = f"{why.rstrip('.')} ({FACTORS.get(name, FACTOR)}). The next use tries again"
    broker.notes.tell(log, f"topic {name}", f"topic {name}: not created: {why}")


def _may_be_automatic(name: str) -> bool:
    """Whether the first use of the topic may create it."""
    return is_legal_name(name) and name != SHARE_STATE_TOPIC


def _create_missing(
    image: MetadataImage, broker: BrokerContext, names: Sequence[str], quota: Mutations | None
) -> Decision[list[TopicAnswer]]:
    wanted = [automatic_topic(broker, image, name) for name in dict.fromkeys(names)]
    defaults = topic_defaults(broker, image)
    if quota is None:
        return create_topics(image, wanted, defaults, new_topic_id)
    quota.begin()
    return create_topics(image, wanted, defaults, new_topic_id, permit=quota.take)


def automatic_topic(broker: BrokerContext, image: MetadataImage, name: str) -> NewTopic:
    """The topic to create at its first use; internal topics have settings of their own."""
    config = broker.config
    if name == OFFSETS_TOPIC:
        partitions = config.offsets_topic_num_partitions
        factor = config.offsets_topic_replication_factor
    elif name == TRANSACTIONS_TOPIC:
        partitions = config.transaction_state_log_num_partitions
        factor = config.transaction_state_log_replication_factor
    else:
        return NewTopic(name)
    factor = attainable_factor(broker, FACTORS[name], factor, image)
    return NewTopic(name, partitions, factor, configs=internal_configs(config, name, factor))


def lacking_brokers(broker: BrokerContext, name: str) -> str:
    """Say how many brokers the creation of an internal topic still needs, as the end of a sentence;
    "" if there are enough brokers."""
    wanted = automatic_topic(broker, broker.image, name).replication_factor
    there = len(broker.image.brokers)
    if wanted <= there:
        return ""
    return (f": {name} needs {counted(wanted, 'broker')} ({FACTORS[name]}), and {there}"
            f" {'is' if there == 1 else 'are'} registered")


def _segment_bytes(wanted: int) -> str:
    """segment.bytes of an internal topic. As in Apache Kafka, its setting in the file may be lower
    than a topic's segment.bytes may be; with such a value the topic could not be created."""
    return str(max(wanted, int(TopicConfig.declared["segment.bytes"].at_least or 0)))


def internal_configs(config: BrokerConfig, name: str, factor: int) -> list[tuple[str, str]]:
    """The settings of an internal topic with this replication factor."""
    if name == OFFSETS_TOPIC:
        return [
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", _segment_bytes(config.offsets_topic_segment_bytes)),
        ]
    if name == TRANSACTIONS_TOPIC:
        return [
            ("cleanup.policy", "compact"),
            ("compression.type", "uncompressed"),
            ("segment.bytes", _segment_bytes(config.transaction_state_log_segment_bytes)),
            ("min.insync.replicas", str(min(config.transaction_state_log_min_isr, factor))),
            ("unclean.leader.election.enable", "false"),
        ]
    # The topic of share groups' state. In Kafka, the share coordinators delete the records in it
    # that they no longer need.
    return [("cleanup.policy", "delete"), ("retention.ms", "-1")]
