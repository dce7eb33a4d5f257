"""Answers why a group makes no progress: its present state, then its recent events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from ottla.broker.history import topic_answer
from ottla.broker.history.lag_samples import Change, Sample
from ottla.broker.history.open_transactions import Ongoing, ongoing, opened
from ottla.broker.history.topic_answer import refusing_writes
from ottla.broker.threads.slices import Slices
from ottla.groups.errors import GroupIdNotFound
from ottla.groups.history.sentences import sentence
from ottla.groups.history.words import size
from ottla.groups.routing import OFFSETS_TOPIC
from ottla.groups.waits import Finding, Moment, TopicIndex, owners, standing
from ottla.wire.batch import batches
from ottla.wire.errors import ProtocolError
from ottla.wire.wording import counted, duration

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext
    from ottla.broker.http.lag import Lag, Lags
    from ottla.groups.cluster_view import ClusterView
    from ottla.groups.group import Group
    from ottla.groups.history.rings import Event
    from ottla.groups.shard import Shard

TRANSACTION_ABORTED = "transaction_aborted"
LEFT_MS = 10_000
"""A client that left a group more recently than this is not reported as still connected: it needs a
moment to close its connections."""
STALE_MS = 60_000
"""A partition with lag whose last commit is older than this makes no progress."""
FINDINGS_MAX = 50
PARTITIONS_MAX = 10_000
MARKERS_MAX, MARKER_SIZE = 100, 78
"""Up to MARKERS_MAX batches of MARKER_SIZE bytes are read to find out whether they are all
transaction markers."""


async def lag_rows(
    broker: BrokerContext, lags: Lags, shard: Shard, group_id: str
) -> list[dict[str, Any]]:
    """A row for each partition of the topics in a group's commits and assignments, at most
    PARTITIONS_MAX rows.

    The lag is None for a partition without a replica on this broker, or without a commit.
    """
    group, slices = shard.group(group_id), Slices()
    assigned = owners(group, shard.context.cluster)
    committed = shard.offsets.of_group(group_id)
    now_ms = broker.clock.now_ms()
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for place in _whole_topics({*committed, *assigned}, shard.context.cluster):
        offset, member_id = committed.get(place), assigned.get(place)
        partition = broker.replicas.partition(*place)
        rows[place] = {
            "topic": place[0], "partition": place[1],
            "committed": None if offset is None else offset.offset,
            "committed_seconds_ago":
                None if offset is None else round(max(0, now_ms - offset.commit_ms) / 1000, 1),
            "end": None if partition is None else partition.high_watermark,
            "lag": None, "lag_bytes": None, "lag_seconds": None,
            "member": member_id,
        }
        if slices.over:
            await slices.pause()
    for lag in lags.of_group(shard, group_id):
        _fill(rows, lag)
        if slices.over:
            await slices.pause()
    return list(rows.values())


def _whole_topics(places: Iterable[TopicIndex], cluster: ClusterView) -> list[TopicIndex]:
    """These partitions, and all other partitions of their topics."""
    chosen = sorted(places)[:PARTITIONS_MAX]
    known = map(cluster.topic, dict.fromkeys(name for name, _ in chosen))
    others = (
        (topic.name, index)
        for topic in known if topic is not None
        for index in range(topic.partitions)
    )
    return sorted({*chosen, *islice(others, PARTITIONS_MAX)})[:PARTITIONS_MAX]


def _fill(rows: dict[tuple[str, int], dict[str, Any]], lag: Lag) -> None:
    row = rows.get((lag.topic, lag.partition))
    if row is not None:
        row |= {
            "lag": lag.records, "lag_bytes": lag.size,
            "lag_seconds": None if lag.seconds is None else round(lag.seconds, 1),
        }


async def why_group(
    broker: BrokerContext, lags: Lags, group_id: str,
    connected: Mapping[tuple[str | None, str], float] | None = None,
) -> dict[str, Any]:
    """The answer of this broker, if it coordinates the group. `connected` has the age in ms of the
    oldest connection to this broker, by client id and host.

    Raises NotCoordinator, CoordinatorLoadInProgress, GroupIdNotFound.
    """
    runtime = broker.coordinators.groups.runtime
    shard: Shard = runtime.shard(group_id)
    events = runtime.history.events(group_id)
    if group_id not in shard.groups and not events:
        raise GroupIdNotFound(f"group {group_id!r} not found")
    rows = await lag_rows(broker, lags, shard, group_id) if group_id in shard.groups else []
    group = shard.groups.get(group_id)
    moment = Moment(
        broker.clock.now_ms(), runtime.tick_ms(), runtime.history.rebalance(group_id),
        shard.context.cluster, shard.context.settings,
    )
    findings = [Finding("deleted", "the group no longer exists")]
    if group is not None:
        findings = [
            *_log(broker, shard), *standing(group, moment),
            *_left(group, events, moment, connected or {}), *_pending(shard, group_id),
        ]
        findings += await _partitions(broker, group, rows, FINDINGS_MAX - len(findings))
        findings += _lag(broker, group_id, rows, moment.tick_ms)
    return {
        "group": group_id,
        "type": None if group is None else group.type_name,
        "state": None if group is None else group.state_name,
        "members": 0 if group is None else len(group.members),
        "coordinator": broker.node_id,
        "coordinated_since_ms": shard.loaded_ms,
        "at_ms": moment.wall_ms,
        "now": [_as_json(each) for each in findings[:FINDINGS_MAX]],
        "events": sorted(
            [*map(event_as_json, events), *_aborted(broker, rows)],
            key=lambda each: each["at_ms"])[-topic_answer.EVENTS_MAX:],
    }


def _left(
    group: Group, events: list[Event], moment: Moment,
    connected: Mapping[tuple[str | None, str], float],
) -> Iterator[Finding]:
    """If the group has no members, report each client that has left the group but still has a
    connection from the time before it left. A client is recognised by its client id and host, since
    several clients may have the same id, such as librdkafka's default `rdkafka`."""
    if group.members:
        return
    left: dict[tuple[str | None, str], Event] = {
        (each.fields.get("client"), each.fields.get("host") or ""): each
        for each in events if each.kind == "left"}
    for (client, host), each in left.items():
        since_ms = max(each.at_ms, each.last_ms)
        ago_ms = moment.wall_ms - since_ms
        if each.fields.get("by_administrator") or ago_ms < LEFT_MS:
            continue
        if connected.get((client, host), -1) >= ago_ms:
            yield Finding(
                "left_but_connected",
                f"client {client} of {host} has left the group, and a client with the same id and"
                " host is still connected: both may be the same program, since a consumer that"
                " does not call poll() within max.poll.interval.ms leaves but stays connected",
                {"client": client, "host": host, "since_ms": since_ms})


def _aborted(broker: BrokerContext, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The transactions in the group's partitions that an InitProducerId request aborted."""
    for row in rows:
        topic = broker.image.topics.get(row["topic"])
        if topic is None:
            continue
        for each in broker.histories.partitions.rings.of((topic.topic_id, row["partition"])):
            if each.kind == TRANSACTION_ABORTED:
                found = topic_answer.event_as_json(row["partition"], each)
                name = f"{row['topic']}-{row['partition']}"
                yield {**found, "topic": row["topic"], "text": f"{name}: {found['text']}"}


def _as_json(finding: Finding) -> dict[str, Any]:
    return {"kind": finding.kind, "text": finding.text, **finding.fields}


def event_as_json(event: Event) -> dict[str, Any]:
    """An event of a group with its sentence."""
    return {
        "at_ms": event.at_ms, "kind": event.kind, "text": sentence(event), "times": event.times,
        "last_ms": event.last_ms if event.times > 1 else event.at_ms,
        **{name: value for name, value in event.fields.items() if value is not None},
    }


def _log(broker: BrokerContext, shard: Shard) -> Iterator[Finding]:
    """Why the log of the group's coordinator refuses writes; nothing if it accepts them."""
    refusing = refusing_writes(broker, OFFSETS_TOPIC, shard.partition)
    if refusing is not None:
        yield Finding(
            "log_takes_no_writes",
            f"the group's log, {OFFSETS_TOPIC}-{shard.partition}, accepts no writes, so the group"
            f" can neither rebalance nor commit: {refusing.text}; `ottla topic why {OFFSETS_TOPIC}`"
            " shows more", {"partition": shard.partition, "reason_kind": refusing.kind},
        )


def _pending(shard: Shard, group_id: str) -> Iterator[Finding]:
    if shard.offsets.has_pending(group_id):
        yield Finding(
            "open_transaction_of_offsets",
            "an open transaction contains offset commits of the group: a member that asks for the"
            " group's committed offsets, for example when it starts, waits until the transaction"
            " ends",
        )


async def _partitions(
    broker: BrokerContext, group: Group, rows: list[dict[str, Any]], most: int
) -> list[Finding]:
    """The partitions without progress, those with the most lag first."""
    found: list[Finding] = []
    known_open: Ongoing | None = None
    slices = Slices()
    for row in sorted(rows, key=lambda row: -(row["lag"] or 0)):
        if len(found) >= most:
            break
        if known_open is None and row["lag"] and _stable(broker, row) is not None:
            known_open = await ongoing(broker, slices)
        found += _of_partition(broker, group, row, known_open or {})
        if slices.over:
            await slices.pause()
    return found


def _of_partition(
    broker: BrokerContext, group: Group, row: dict[str, Any], known_open: Ongoing
) -> Iterator[Finding]:
    """Why a partition makes no progress."""
    name = f"{row['topic']}-{row['partition']}"
    fields = {"topic": row["topic"], "partition": row["partition"], "member": row["member"]}
    lag, key = row["lag"], (group.group_id, row["topic"], row["partition"])
    if lag and (finding := _held_back(broker, row, fields, known_open)) is not None:
        broker.histories.held.note(key, broker.clock.monotonic_ms())
        yield finding
    elif lag and row["member"] and _was_held_back(broker, row, key):
        yield Finding(
            "released",
            f"{name}: the open transaction that held the group back has ended, and"
            f" {_waiting(row)} can be read now; the group has not committed since then", fields,
        )
    elif lag and row["member"] is None and len(group.members) and _readable(group):
        yield Finding(
            "not_assigned",
            f"{name} is assigned to no member, and"
            f" {counted(lag, 'record waits', 'records wait')}", fields,
        )
    elif (
        lag and row["member"] and row["committed_seconds_ago"] * 1000 >= STALE_MS
        and not _only_markers(broker, row)
    ):
        yield Finding(
            "not_committed",
            f"{name} is assigned to {row['member']} and was last committed"
            f" {duration(row['committed_seconds_ago'] * 1000)} ago, at offset"
            f" {row['committed']}, while {_waiting(row)} wait", fields,
        )
    elif row["committed"] is None and row["member"]:
        yield Finding(
            "never_committed",
            f"{name} is assigned to {row['member']}, but the group has never committed an"
            f" offset of {name}", fields,
        )


def _was_held_back(
    broker: BrokerContext, row: dict[str, Any], key: tuple[str, str, int]
) -> bool:
    """Whether an open transaction has held the group back until a moment ago, and the group has not
    committed since then. Only the leader knows whether the transaction has ended."""
    partition = broker.replicas.partition(row["topic"], row["partition"])
    if partition is None or not partition.led_here:
        return False
    ago_ms = broker.histories.held.ago(key, broker.clock.monotonic_ms())
    return ago_ms is not None and row["committed_seconds_ago"] * 1000 >= ago_ms


def _readable(group: Group) -> bool:
    """Whether each member's assignment can be determined."""
    return group.tells_topics and group.state_name in ("Stable", "Reconciling")


def _stable(broker: BrokerContext, row: dict[str, Any]) -> int | None:
    """The offset at which read_committed consumers of the group wait for an open transaction; None
    if they do not wait for one."""
    partition = broker.replicas.partition(row["topic"], row["partition"])
    if partition is None or not partition.led_here:
        return None
    stable = partition.last_stable_offset()
    waits = stable < partition.high_watermark and row["committed"] >= stable
    return stable if waits else None


def _held_back(
    broker: BrokerContext, row: dict[str, Any], fields: dict[str, Any], known_open: Ongoing
) -> Finding | None:
    """The finding that read_committed consumers wait for an open transaction, or None."""
    partition = broker.replicas.partition(row["topic"], row["partition"])
    stable = _stable(broker, row)
    if partition is None or stable is None:
        return None
    text, about = opened(broker, partition, stable, known_open)
    return Finding(
        "open_transaction",
        f"{row['topic']}-{row['partition']}: {text}. Consumers with isolation.level=read_committed"
        f" wait for the transaction to end, and {_waiting(row)} wait",
        {**fields, **about},
    )


def _waiting(row: dict[str, Any]) -> str:
    seconds = row["lag_seconds"]
    oldest = "" if seconds is None else f", the oldest {duration(seconds * 1000)} old,"
    return f"{counted(row['lag'], 'record')} ({size(row['lag_bytes'])}){oldest}"


def _lag(
    broker: BrokerContext, group_id: str, rows: list[dict[str, Any]], tick_ms: int
) -> Iterator[Finding]:
    """The lag of all partitions with a commit, and whether it grows."""
    known = [row for row in rows if row["lag"] is not None]
    if len(known) < sum(row["committed"] is not None for row in rows):
        yield Finding(
            "lag_elsewhere",
            "the lag of some partitions is not included, because broker"
            f" {broker.node_id} has no replica of them",
        )
    if not known:
        return
    lag, size_bytes = sum(row["lag"] for row in known), sum(row["lag_bytes"] for row in known)
    seconds = max((row["lag_seconds"] or 0 for row in known), default=0)
    committed = sum(row["committed"] or 0 for row in rows)
    change = broker.histories.samples.compare(
        group_id, Sample(tick_ms, lag, committed, _hash_of(broker, rows)))
    fields: dict[str, Any] = {"lag": lag, "lag_bytes": size_bytes, "lag_seconds": seconds}
    if change is not None:
        fields |= {"lag_change": change.lag, "committed_change": change.committed,
                   "over_ms": change.over_ms}
    uncommitted = sum(row["committed"] is None for row in rows)
    if uncommitted:
        fields["uncommitted"] = uncommitted
    if lag == 0:
        text = "everything is read"
    elif lag <= MARKERS_MAX and all(_only_markers(broker, row) for row in known if row["lag"]):
        text = (
            f"every record is read: the lag consists of transaction markers ({lag:,}), which"
            " consumers do not get")
    else:
        text = (
            f"{counted(lag, 'record')} ({size(size_bytes)}) {'waits' if lag == 1 else 'wait'} in"
            f" {counted(sum(row['lag'] > 0 for row in known), 'partition')}"
            + (f", the oldest is {duration(seconds * 1000)} old" if seconds else ""))
    if uncommitted:
        text += f", not counting {counted(uncommitted, 'partition')} without a committed offset"
    yield Finding("lag", text + _growth(change), fields)


def _only_markers(broker: BrokerContext, row: dict[str, Any]) -> bool:
    """Whether only transaction markers come after the committed offset. The batches are read only
    if their number and size are those of markers."""
    if row["lag"] > MARKERS_MAX or row["lag_bytes"] != row["lag"] * MARKER_SIZE:
        return False
    partition = broker.replicas.partition(row["topic"], row["partition"])
    if partition is None:
        return False
    try:
        data = partition.log.read_bytes(row["committed"], row["lag_bytes"])
        return all(each.control for each in batches(data))
    except (OSError, ProtocolError):
        return False


def _hash_of(broker: BrokerContext, rows: list[dict[str, Any]]) -> int:
    """A hash of the partitions with a committed offset: their names, their topics' ids, and whether
    their lag is known."""
    topics = broker.image.topics
    return hash(frozenset(
        (row["topic"], row["partition"], row["lag"] is None,
         topics[row["topic"]].topic_id if row["topic"] in topics else None)
        for row in rows if row["committed"] is not None))


def _growth(change: Change | None) -> str:
    if change is None:
        return ""
    ago = duration(change.over_ms)
    if change.committed < 0:
        than = f"{counted(abs(change.lag), 'record')} {'more' if change.lag > 0 else 'less'} than"
        return (
            f"; the group's offsets were set back meanwhile, in all by"
            f" {counted(-change.committed, 'record')}: the lag is {than} {ago} ago")
    commits = f"; {counted(change.committed, 'record was', 'records were')} committed meanwhile"
    if change.lag > 0:
        by = counted(change.lag, "record")
        return f"; the lag grows: {ago} ago it was less by {by}{commits}"
    if change.lag < 0:
        by = counted(-change.lag, "record")
        return f"; the lag shrinks: {ago} ago it was more by {by}{commits}"
    return f"; the lag is the same as {ago} ago{commits}"
