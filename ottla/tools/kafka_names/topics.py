"""kafka-topics: the lines of Apache Kafka's TopicCommand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.client.command_line import INT32_MOST
from ottla.client.errors import NotSupported, Refused
from ottla.tools.admin import configs, partitions, topics
from ottla.tools.admin.uuids import show_uuid, uuid_of
from ottla.tools.kafka_names.common import connect, matching, needs_server
from ottla.tools.kafka_names.grammar import Options, UsageError, java_integer
from ottla.tools.kafka_names.java import message_of
from ottla.tools.kafka_names.main import Failed
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.admin.offsets import Place
    from ottla.tools.admin.partitions import Moving
    from ottla.tools.admin.topics import Partition, Topic

COLLISIONS = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') "
    "could collide. To avoid issues it is best to use either, but not both."
)
FILTERS = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
)
DEFAULT_CONFIG = 5  # the source of a setting that neither the topic nor the broker has set


def run(options: Options) -> int:
    """Checks the flags as TopicCommand does, then performs the action."""
    given = [name for name in options.command.actions if options.has(name)]
    if len(given) != 1:
        raise UsageError(
            "Command must include exactly one action: --list, --describe, --create, --alter or "
            "--delete"
        )
    check_flags(options)
    needs_server(options)
    action = {
        "list": show_list,
        "describe": describe,
        "create": create,
        "alter": alter,
        "delete": delete,
    }[given[0]]
    try:
        with connect(options) as cluster:
            action(options, cluster)
    except UsageError as wrong:
        raise failure(str(wrong)) from wrong
    except Refused as refused:
        raise failure(message_of(refused.number, refused.said)) from refused
    return 0


def failure(message: str, mistyped: str = "", known: Iterable[str] = ()) -> Failed:
    """The error that prints a message on stdout, as Kafka's TopicCommand does."""
    shown = f"Error while executing topic command : {message}"
    return Failed(message, shown, mistyped=mistyped, known=known)


def check_flags(options: Options) -> None:
    """Raises UsageError for flags that are missing, or may not be combined."""
    if (options.has("create") or options.has("delete")) and not options.has("topic"):
        raise UsageError('Missing required argument "[topic]"')
    if options.has("describe") and not options.has("topic") and options.has("if-exists"):
        raise UsageError('Missing required argument "[topic]"')
    if options.has("alter"):
        options.needs("topic", "partitions")
    options.only_with("create alter", "partitions", "replica-assignment")
    options.only_with("create", "replication-factor", "config", "if-not-exists")
    options.only_with("describe", "topic-id", *FILTERS, "topics-with-overrides")
    options.only_with("alter delete describe", "if-exists")
    options.only_with("list describe", "exclude-internal")
    if options.has("replica-assignment") and options.has("create"):
        for name in ("partitions", "replication-factor"):
            if options.has(name):
                raise UsageError(
                    f'Option "[replica-assignment]" can\'t be used with option "[{name}]"'
                )


def wanted(options: Options, cluster: ClusterClient, *, required: bool) -> list[str]:
    """The topics selected by `--topic`. With `required`, raises Failed if `--topic` matches no
    topic, unless --if-exists is given."""
    pattern = options.one("topic") if options.has("topic") else None
    names = topics.names(cluster, internal=not options.has("exclude-internal"))
    matched = matching(pattern, names)
    if required and not matched and pattern is not None:
        if options.has("if-exists"):
            return []
        raise failure(f"Topic '{pattern}' does not exist as expected", pattern, names)
    return matched


def show_list(options: Options, cluster: ClusterClient) -> None:
    print("\n".join(wanted(options, cluster, required=False)))


def assignment_of(text: str) -> list[list[int]]:
    """The replicas of each partition in `0:1,1:2`. Raises Failed for lists of different lengths, or
    with duplicates."""
    placed: list[list[int]] = []
    for index, part in enumerate(text.split(",")):
        try:
            replicas = [java_integer(one.strip(), INT32_MOST) for one in part.split(":")]
        except ValueError:
            raise failure(f'For input string: "{part}"') from None
        twice = sorted({one for one in replicas if replicas.count(one) > 1})
        if twice:
            raise failure(
                "Partition replica lists may not contain duplicate entries: "
                + ", ".join(map(str, twice))
            )
        if placed and len(replicas) != len(placed[0]):
            shown = ", ".join(map(str, replicas))
            raise failure(f"Partition {index} has different replication factor: [{shown}]")
        placed.append(replicas)
    return placed


def create(options: Options, cluster: ClusterClient) -> None:
    name = options.one("topic")
    if "." in name or "_" in name:
        print(COLLISIONS)
    settings = {}
    for item in options.all("config"):
        key, equals, value = item.partition("=")
        if not equals:
            raise failure(
                "requirement failed: Invalid topic config: all configs to be added must "
                'be in the format "key=val".'
            )
        settings[key.strip()] = value.strip()
    partitions = options.number("partitions", -1)
    if options.has("partitions") and partitions < 1:
        raise failure("The partitions must be greater than 0")
    factor = options.number("replication-factor", -1)
    if options.has("replication-factor") and not 0 < factor < 32768:
        raise failure("The replication factor must be between 1 and 32767 inclusive")
    placed: Sequence[Sequence[int]] = ()
    if options.has("replica-assignment"):
        placed = assignment_of(options.one("replica-assignment"))
    if options.has("if-not-exists") and name in topics.names(cluster):
        return
    try:
        topics.create(
            cluster,
            name,
            partitions=partitions,
            replication_factor=factor,
            assignments=placed,
            configs=settings,
        )
    except Refused as refused:
        # The topic may be so new that the broker that listed the names did not know it yet.
        if refused.code == ErrorCode.TOPIC_ALREADY_EXISTS and options.has("if-not-exists"):
            return
        raise
    print(f"Created topic {name}.")


def alter(options: Options, cluster: ClusterClient) -> None:
    names = wanted(options, cluster, required=True)
    count = options.number("partitions", -1)
    for topic in topics.describe(cluster, names):
        placed = None
        if options.has("replica-assignment"):
            whole = assignment_of(options.one("replica-assignment"))
            placed = whole[len(topic.partitions) :]
        topics.grow(cluster, topic.name, count, placed)


def delete(options: Options, cluster: ClusterClient) -> None:
    found = wanted(options, cluster, required=True)
    for code, message in topics.delete(cluster, found).values() if found else ():
        if code:
            raise failure(message_of(code, message))


def describe(options: Options, cluster: ClusterClient) -> None:
    if options.has("topic-id"):
        found = [name_of_id(options, cluster)]
        if not found[0]:
            return
    else:
        found = wanted(options, cluster, required=True)
    limit = options.number("partition-size-limit-per-response", 0)
    described = [topic for topic in topics.describe(cluster, found, limit) if not topic.error]
    settings = configs.describe_many(cluster, configs.TOPIC, [topic.name for topic in described])
    alive = set(cluster.live())
    moving = reassignments(cluster)
    for topic in described:
        own = {
            item.name: item.value
            for item in settings[topic.name]
            if item.config_source != DEFAULT_CONFIG
        }
        minimum = next(
            (
                int(item.value)
                for item in settings[topic.name]
                if item.name == "min.insync.replicas"
            ),
            1,
        )
        if not any(options.has(name) for name in FILTERS) and not (
            options.has("topics-with-overrides") and not own
        ):
            print(topic_line(topic, own, moving))
        if options.has("topics-with-overrides"):
            continue
        for part in topic.partitions:
            move = moving.get((topic.name, part.index))
            if shown(options, part, minimum, alive, move):
                print(partition_line(topic, part, move))


def name_of_id(options: Options, cluster: ClusterClient) -> str:
    """The name of the topic with the id in `--topic-id`."""
    text = options.one("topic-id")
    identity = uuid_of(text)
    for topic in cluster.metadata().topics:
        if topic.topic_id == identity:
            return topic.name or ""
    if options.has("if-exists"):
        return ""
    raise failure(f"TopicId '{show_uuid(identity)}' does not exist as expected")


def reassignments(cluster: ClusterClient) -> dict[Place, Moving]:
    """The partitions that are being moved. As in Kafka's tool, there are none if the user is not
    allowed to see them, or the broker does not support the request."""
    try:
        return partitions.reassignments(cluster)
    except (NotSupported, Refused):
        return {}


def factor_of(part: Partition, move: Moving | None) -> int:
    """The number of replicas of a partition without those that a reassignment is adding."""
    return len(part.replicas) if move is None else len(move.replicas) - len(move.adding)


def shown(
    options: Options, part: Partition, minimum: int, alive: set[int], move: Moving | None
) -> bool:
    """Whether a partition matches the filters."""
    tests = {
        "under-replicated-partitions": len(part.isr) < factor_of(part, move),
        "unavailable-partitions": part.leader < 0 or part.leader not in alive,
        "under-min-isr-partitions": len(part.isr) < minimum,
        "at-min-isr-partitions": len(part.isr) == minimum,
    }
    given = [name for name in tests if options.has(name)]
    return not given or any(tests[name] for name in given)


def topic_line(topic: Topic, own: dict[str, str], moving: dict[Place, Moving]) -> str:
    """The line above a topic's partitions."""
    factor = 0
    if topic.partitions:
        factor = factor_of(topic.partitions[0], moving.get((topic.name, 0)))
    settings = ",".join(f"{key}={value}" for key, value in own.items())
    return (
        f"Topic: {topic.name}\tTopicId: {show_uuid(topic.id)}"
        f"\tPartitionCount: {len(topic.partitions)}\tReplicationFactor: {factor}"
        f"\tConfigs: {settings}"
    )


def partition_line(topic: Topic, part: Partition, move: Moving | None) -> str:
    """The line of one partition."""
    leader = part.leader if part.leader >= 0 else "none"
    line = (
        f"\tTopic: {topic.name}\tPartition: {part.index}\tLeader: {leader}"
        f"\tReplicas: {joined(part.replicas)}\tIsr: {joined(part.isr)}"
    )
    if move is not None:
        line += f"\tAdding Replicas: {joined(move.adding)}"
        line += f"\tRemoving Replicas: {joined(move.removing)}"
    elr = "N/A" if part.elr is None else joined(part.elr)
    last = "N/A" if part.last_known_elr is None else joined(part.last_known_elr)
    return f"{line}\tElr: {elr}\tLastKnownElr: {last}"


def joined(brokers: Sequence[int]) -> str:
    """Ids with commas between them."""
    return ",".join(map(str, brokers))
