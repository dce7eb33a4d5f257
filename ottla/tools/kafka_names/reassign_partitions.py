"""kafka-reassign-partitions: the lines of Apache Kafka's ReassignPartitionsCommand."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError, Refused
from ottla.client.similar_names import near_partition
from ottla.tools.admin import configs, partitions, topics
from ottla.tools.kafka_names import reassignment_plan
from ottla.tools.kafka_names.common import compact_json, connect
from ottla.tools.kafka_names.grammar import Options, UsageError
from ottla.tools.kafka_names.java import ERRORS, exception_of
from ottla.tools.kafka_names.main import Failed
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.admin.offsets import Place
    from ottla.tools.admin.partitions import Moving
    from ottla.tools.kafka_names.reassignment_plan import Plan

    Replica = tuple[Place, int]

CUT_OFF = "Unexpected end-of-input within/between Object entries"
"""The error of Apache Kafka's tool for a file that is not JSON, without the file's name."""
TIMEOUT_MS = 10_000
AGAIN_SECONDS = 0.1
BROKER_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
TOPIC_LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
NEEDED = {
    "generate": ("broker-list", "topics-to-move-json-file"),
    "list": (),
    "execute": ("reassignment-json-file",),
    "verify": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
}


def run(options: Options) -> int:
    """Checks the flags, then performs the action. Prints errors on stdout, as Kafka's tool does."""
    given = [name for name in options.command.actions if options.has(name)]
    if len(given) != 1:
        raise UsageError(
            "Command must include exactly one action: --generate, --execute, "
            "--verify, --cancel, --list"
        )
    if not options.has("bootstrap-server") and not options.has("bootstrap-controller"):
        raise UsageError("Please specify either --bootstrap-server or --bootstrap-controller")
    options.needs(*NEEDED[given[0]])
    act = {
        "generate": generate,
        "execute": execute,
        "verify": verify,
        "cancel": cancel,
        "list": show_list,
    }[given[0]]
    try:
        with connect(options) as cluster:
            act(options, cluster)
    except Refused as refused:
        text = exception_of(refused.number, refused.said)
        raise Failed(text, f"Error: {text}") from refused
    except reassignment_plan.NotJson as failed:
        raise Failed(str(failed), f"Error: {CUT_OFF}\n at {failed}") from failed
    except ClientError as failed:
        raise Failed(str(failed), f"Error: {failed}") from failed
    return 0


def generate(options: Options, cluster: ClusterClient) -> None:
    names = reassignment_plan.topics_of(options.one("topics-to-move-json-file"))
    brokers = reassignment_plan.brokers_of(options.one("broker-list"))
    racks = racks_of(options, cluster, brokers)
    described = topics.describe(cluster, names)
    for topic in described:
        if topic.error:
            raise unknown(cluster, topic.name)
    current = {
        (topic.name, part.index): part.replicas for topic in described for part in topic.partitions
    }
    print("Current partition replica assignment")
    print(compact_json(with_directories(cluster, current)))
    proposed = reassignment_plan.spread(current, racks)
    print("\nProposed partition reassignment configuration")
    print(compact_json(reassignment_plan.as_json(proposed, {})))


def unknown(cluster: ClusterClient, topic: str) -> Failed:
    """The error about a topic that does not exist."""
    text = f"{ERRORS}UnknownTopicOrPartitionException: Topic {topic} not found."
    return Failed(text, f"Error: {text}", near=near_partition(cluster, topic, 0))


def racks_of(options: Options, cluster: ClusterClient, brokers: list[int]) -> dict[int, str | None]:
    """The racks of the listed brokers; all None with --disable-rack-aware."""
    if options.has("disable-rack-aware"):
        return dict.fromkeys(brokers)
    cluster.refresh()
    racks = {node_id: cluster.racks.get(node_id) for node_id in brokers}
    if None in racks.values() and any(racks.values()):
        raise ClientError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to "
            "make replica assignment without rack information."
        )
    return racks


def with_directories(cluster: ClusterClient, replicas: dict[Place, list[int]]) -> object:
    """The assignment as JSON with the log directory of each replica."""
    where = {
        (found.topic, found.partition, found.broker): found.directory
        for found in partitions.replicas(cluster, replicas)
        if not found.future
    }
    return reassignment_plan.as_json(replicas, where)


def current_replicas(cluster: ClusterClient, plan: Plan) -> dict[Place, list[int]]:
    """The current replicas of the plan's partitions. Omits partitions that do not exist."""
    described = topics.describe(cluster, {topic for topic, _ in plan})
    return {
        (topic.name, part.index): part.replicas
        for topic in described
        for part in topic.partitions
        if (topic.name, part.index) in plan
    }


def execute(options: Options, cluster: ClusterClient) -> None:
    plan = reassignment_plan.read(options.one("reassignment-json-file"))
    current = current_replicas(cluster, plan)
    live = set(cluster.live())
    for place, item in plan.items():
        for broker in item.replicas:
            # A broker that is down may keep its replicas: the partition's other replicas can move.
            if broker not in live and broker not in current.get(place, []):
                raise ClientError(f"Unknown broker id {broker}")
    moving = partitions.reassignments(cluster)
    if moving and not options.has("additional"):
        raise ClientError(
            "Cannot execute because there is an existing partition assignment.  Use "
            "--additional to override this and create a new partition assignment in "
            "addition to the existing one. The --additional flag can also be used to "
            "change the throttle by resubmitting the current reassignment."
        )
    if missing := sorted({topic for topic, _ in plan} - {topic for topic, _ in current}):
        raise unknown(cluster, missing[0])
    print("Current partition replica assignment\n")
    print(compact_json(with_directories(cluster, current)))
    print("\nSave this to use as the --reassignment-json-file option during rollback")
    limit(options, cluster, plan, current, moving)
    results = partitions.reassign(
        cluster,
        {place: item.replicas for place, item in plan.items()},
        allow_factor_change=not options.has("disallow-replication-factor-change"),
    )
    refuse("reassigning", results)
    print(
        f"Successfully started partition reassignment{'s' * (len(plan) > 1)} for "
        + ",".join(f"{topic}-{index}" for topic, index in sorted(plan))
    )
    pending: dict[int, dict[Place, str]] = {}
    for (place, broker), path in wanted_directories(plan).items():
        pending.setdefault(broker, {})[place] = path
    move_directories(cluster, pending, options.number("timeout", TIMEOUT_MS) / 1000)


def wanted_directories(plan: Plan) -> dict[Replica, str]:
    """The log directories that a plan chooses."""
    return {
        (place, broker): path
        for place, item in plan.items()
        for broker, path in zip(item.replicas, item.directories, strict=False)
        if path != "any"
    }


def refuse(doing: str, results: dict[Place, tuple[int, str | None]]) -> None:
    """Raises an error that lists the refused partitions, if there are any."""
    failed = {place: result for place, result in results.items() if result[0]}
    if not failed:
        return
    shown = "\n".join(
        f"{topic}-{index}: {exception_of(code, message).partition(': ')[2]}"
        for (topic, index), (code, message) in sorted(failed.items())
    )
    what = "partition(s)"
    if doing == "cancelling":
        what = f"partition reassignment{'s' * (len(failed) > 1)} for"
    raise ClientError(f"Error {doing} {what}:\n{shown}")


def move_directories(
    cluster: ClusterClient, pending: dict[int, dict[Place, str]], seconds: float
) -> None:
    """Starts moves between the log directories of each broker in `pending`. Waits for replicas that
    are still being copied to their brokers, since they cannot move yet."""
    deadline = time.monotonic() + seconds
    while pending:
        start_moves(cluster, pending)
        if pending and time.monotonic() >= deadline:
            unmoved = [f"{p[0]}-{p[1]}-{broker}" for broker in pending for p in pending[broker]]
            raise ClientError(
                f"Timed out before log directory move{'s' * (len(unmoved) > 1)} could be "
                "started for: "
                + ",".join(unmoved)
            )
        if pending:
            time.sleep(AGAIN_SECONDS)


def start_moves(cluster: ClusterClient, pending: dict[int, dict[Place, str]]) -> None:
    """Starts the moves that can be started, and removes them from `pending`."""
    for broker, wanted in sorted(pending.items()):
        for place, code in partitions.move_directories(cluster, broker, wanted).items():
            if code == ErrorCode.REPLICA_NOT_AVAILABLE:
                continue
            if code:
                raise ClientError(
                    f"Failed to move {place[0]}-{place[1]} to another directory on "
                    f"broker {broker}: {exception_of(code)}"
                )
            print(f"Successfully started moving log directory to {wanted.pop(place)} for replica"
                  f" {place[0]}-{place[1]} with broker {broker} ")    # Kafka's space at the end
        if not wanted:
            del pending[broker]


def limit(
    options: Options, cluster: ClusterClient, plan: Plan, current: dict[Place, list[int]],
    moving: Mapping[Place, Moving],
) -> None:
    """Set the throttles of --throttle and --replica-alter-log-dirs-throttle. The throttle between
    brokers applies to all moves: those of the plan, and those in progress."""
    between = options.number("throttle", -1)
    inside = options.number("replica-alter-log-dirs-throttle", -1)
    if between < 0 and inside < 0:
        return
    print(
        "Warning: You must run --verify periodically, until the reassignment completes, to "
        "ensure the throttle is removed."
    )
    sources = current | {
        place: [b for b in move.replicas if b not in move.adding] for place, move in moving.items()}
    targets = {place: move.adding for place, move in moving.items()} | {
        place: item.replicas for place, item in plan.items()}
    concerned = {b for replicas in (*sources.values(), *targets.values()) for b in replicas}
    # A plan may take replicas from a broker that is down, which needs no throttle and accepts none.
    brokers = sorted(concerned & set(cluster.live()))
    if between >= 0:
        for name in {topic for topic, _ in targets}:
            old, new = [], []
            for place in sorted(place for place in targets if place[0] == name):
                before = sources.get(place, [])
                old += [f"{place[1]}:{b}" for b in before]
                new += [f"{place[1]}:{b}" for b in targets[place] if b not in before]
            if new:
                values = dict(zip(TOPIC_LISTS, (",".join(old), ",".join(new)), strict=True))
                configs.alter(cluster, configs.TOPIC, name, values)
        for broker in brokers:
            configs.alter(
                cluster, configs.BROKER, str(broker), dict.fromkeys(BROKER_RATES, str(between))
            )
        print(f"The inter-broker throttle limit was set to {between} B/s")
    if inside >= 0:
        for broker in brokers:
            configs.alter(cluster, configs.BROKER, str(broker), {DIRECTORY_RATE: str(inside)})
        print(f"The replica-alter-dir throttle limit was set to {inside} B/s")


def verify(options: Options, cluster: ClusterClient) -> None:
    plan = reassignment_plan.read(options.one("reassignment-json-file"))
    moving = partitions.reassignments(cluster)
    current = current_replicas(cluster, plan)
    print("Status of partition reassignment:")
    done = True
    for place, item in sorted(plan.items()):
        name = f"{place[0]}-{place[1]}"
        replicas = current.get(place, [])
        if place in moving:
            print(f"Reassignment of partition {name} is still in progress.")
            done = False
        elif replicas == item.replicas:
            print(f"Reassignment of partition {name} is completed.")
        else:
            print(
                f"There is no active reassignment of partition {name}, but replica set is "
                f"{joined(replicas)} rather than {joined(item.replicas)}."
            )
    done = verify_directories(cluster, plan) and done
    print()
    if done and not moving and not options.has("preserve-throttles"):
        clear(cluster, sorted({topic for topic, _ in plan}))


def directories_of(
    cluster: ClusterClient, plan: Plan
) -> dict[Replica, tuple[str | None, str | None]]:
    """For each replica whose directory the plan chooses: its log directory, and the one that it is
    being moved to."""
    wanted = wanted_directories(plan)
    found = partitions.replicas(cluster, list(plan)) if wanted else []
    paths = {
        ((one.topic, one.partition), one.broker, one.future): one.directory for one in found}
    return {
        replica: (paths.get((*replica, False)), paths.get((*replica, True)))
        for replica in wanted
    }


def verify_directories(cluster: ClusterClient, plan: Plan) -> bool:
    """Prints the progress of moves between directories; returns whether all have ended. A move that
    was cancelled, or that failed, has ended."""
    wanted = wanted_directories(plan)
    if not wanted:
        return True
    done = True
    for replica, (current, future) in sorted(directories_of(cluster, plan).items()):
        ((topic, index), broker), path = replica, wanted[replica]
        name = f"{topic}-{index}"
        done = done and current is not None and future is None
        if future == path:
            print(f"Reassignment of replica {name}-{broker} is still in progress.")
        elif future is not None:
            print(f"Partition {name} on broker {broker} is being moved to log dir {future} instead"
                  f" of {path}.")
        elif current == path:
            print(f"Reassignment of replica {name}-{broker} completed successfully.")
        elif current is not None:
            print(f"Partition {name} on broker {broker} is not being moved from log dir {current}"
                  f" to {path}.")
        else:
            print(f"Partition {name} is not found in any live log dir on broker {broker}. There is"
                  " likely an offline log directory on the broker.")
    return done


def joined(brokers: list[int]) -> str:
    """Ids with commas between them."""
    return ",".join(map(str, brokers))


def clear(cluster: ClusterClient, names: list[str]) -> None:
    """Removes the throttles."""
    brokers = cluster.live()
    print(f"Clearing broker-level throttles on broker{'s' * (len(brokers) > 1)} {joined(brokers)}")
    for broker in brokers:
        configs.alter(cluster, configs.BROKER, str(broker), {}, (*BROKER_RATES, DIRECTORY_RATE))
    print(f"Clearing topic-level throttles on topic{'s' * (len(names) > 1)} {','.join(names)}")
    for name in names:
        configs.alter(cluster, configs.TOPIC, name, {}, TOPIC_LISTS)


def cancel(options: Options, cluster: ClusterClient) -> None:
    plan = reassignment_plan.read(options.one("reassignment-json-file"))
    moving = partitions.reassignments(cluster)
    stopped = sorted(place for place in plan if place in moving)
    if stopped:
        refuse("cancelling", partitions.reassign(cluster, dict.fromkeys(stopped)))
        shown = ",".join(f"{topic}-{index}" for topic, index in stopped)
        print(
            f"Successfully cancelled partition reassignment{'s' * (len(stopped) > 1)} for: {shown}"
        )
    else:
        print("None of the specified partition reassignments are active.")
    back: dict[int, dict[Place, str]] = {}      # a move to the present directory ends the other one
    for (place, broker), (here, future) in directories_of(cluster, plan).items():
        if here is not None and future is not None:
            back.setdefault(broker, {})[place] = here
    if not back:
        print("None of the specified partition moves are active.", end="")
    move_directories(cluster, back, options.number("timeout", TIMEOUT_MS) / 1000)
    if not options.has("preserve-throttles"):
        clear(cluster, sorted({topic for topic, _ in plan}))


def show_list(options: Options, cluster: ClusterClient) -> None:
    moving = partitions.reassignments(cluster)
    if not moving:
        print("No partition reassignments found.")
        return
    print("Current partition reassignments:")
    for (topic, index), move in sorted(moving.items()):
        line = f"{topic}-{index}: replicas: {joined(move.replicas)}."
        line += f" adding: {joined(move.adding)}." if move.adding else ""
        line += f" removing: {joined(move.removing)}." if move.removing else ""
        print(line)
