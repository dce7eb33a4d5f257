"""ACLs, users, quotas, delegation tokens, transactions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ottla.client.errors import ClientError, Refused, check
from ottla.console.broker_reports import addresses, read_all
from ottla.console.picture import Memory
from ottla.console.requests import BadRequest
from ottla.console.sweeps import Sweep
from ottla.tools.admin import acls, configs, offsets, transactions
from ottla.tools.admin import cluster as clusters
from ottla.tools.admin.partitions import by_topic
from ottla.tools.admin.transactions import Listed
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import DescribeDelegationTokenRequest

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.admin.offsets import Place

Row = dict[str, Any]
DESCRIBED_MAX = 500
OPEN_MS = 60_000
"""The overview lists transactions that have been open this long and hold back records."""
HELD_MS = 10_000
"""If a transaction is younger than this, the records that it holds back are not counted: most
transactions end soon."""
HELD_PLACES_MAX = 50
"""The producer that holds back records is looked up in at most this many partitions."""
HANGING_MINUTES = 15
HANGING_SECONDS = 5.0


def acl_rows(cluster: ClusterClient, memory: Memory) -> list[Row]:
    """All ACLs that the user may see."""
    rows = []
    for pattern, rules in acls.describe(cluster).items():
        for rule in rules:
            row = {
                "resource": pattern.resource, "name": pattern.name, "pattern": pattern.kind,
                "principal": rule.principal, "host": rule.host, "operation": rule.operation,
                "permission": rule.permission,
            }
            rows.append({"id": "/".join(map(str, row.values())), **row})
    return rows


def user_rows(cluster: ClusterClient, memory: Memory) -> list[Row]:
    """The users with SCRAM credentials."""
    names = {number: name for name, (number, _) in configs.MECHANISMS.items()}
    return [
        {
            "id": f"{one.user}/{item.mechanism}", "user": one.user,
            "mechanism": names.get(item.mechanism), "iterations": item.iterations,
        }
        for one in configs.scram_users(cluster) if not one.error_code
        for item in one.credential_infos
    ]


def quota_rows(cluster: ClusterClient, memory: Memory) -> list[Row]:
    """The quotas; an entity without a name is the default."""
    rows = []
    for entity, values in configs.quotas(cluster, []):
        for quota, value in sorted(values.items()):
            row = {
                "user": entity.get("user"), "client_id": entity.get("client-id"),
                "ip": entity.get("ip"), "entity": entity, "quota": quota, "value": value,
            }
            rows.append({"id": f"{sorted(entity.items())}/{quota}", **row})
    return rows


def token_rows(cluster: ClusterClient, memory: Memory) -> list[Row]:
    """The delegation tokens that the user may see."""
    response = cluster.any().call(DescribeDelegationTokenRequest(owners=None))
    check(response.error_code)
    return [
        {
            "id": one.token_id, "owner": f"{one.principal_type}:{one.principal_name}",
            "issued": one.issue_timestamp, "expires": one.expiry_timestamp,
            "renewable_until": one.max_timestamp,
        }
        for one in response.tokens
    ]


def transaction_rows(cluster: ClusterClient, memory: Memory) -> list[Row]:
    """All transactional ids; for an open transaction also its age and its partitions."""
    return described(cluster, memory, transactions.list_transactions(cluster))


def long_open_rows(cluster: ClusterClient, memory: Memory) -> list[Row]:
    """The transactions that have been open for more than OPEN_MS, the longest first; none if the
    list cannot be read."""
    found: list[Row] = []
    try:
        listed = transactions.list_transactions(cluster, older_ms=OPEN_MS, states=["Ongoing"])
        found = described(cluster, memory, listed)
    except ClientError:
        return []
    return sorted((one for one in found if (one["age_ms"] or 0) >= OPEN_MS),
                  key=lambda one: -one["age_ms"])


def has_authorizer(cluster: ClusterClient, memory: Memory) -> bool:
    """Whether the brokers check who may do what; True if the user may not ask."""
    try:
        acls.describe(cluster, acls.Pattern("CLUSTER", "kafka-cluster", "LITERAL"))
    except Refused as refused:
        return refused.code != ErrorCode.SECURITY_DISABLED
    return True


def described(cluster: ClusterClient, memory: Memory, listed: list[Listed]) -> list[Row]:
    """A row for each transactional id. For an open transaction, the row also has the times at which
    it began and will time out, its partitions, and the number of records that it holds back."""
    now_ms = int(time.time() * 1000)
    rows: list[Row] = [
        {
            "id": one.id, "state": one.state, "coordinator": one.coordinator,
            "producer": one.producer_id, "age_ms": None, "timeout_ms": None, "started_ms": None,
            "ends_ms": None, "partitions": [], "topics": [], "held_back": None,
            "held_partitions": [], "groups": [], "client_id": None, "address": None,
        }
        for one in listed
    ]
    ongoing = [row for row, one in zip(rows, listed, strict=True) if is_open(one)]
    places: dict[str, list[Place]] = {}
    for row in ongoing[:DESCRIBED_MAX]:
        try:
            _, state = transactions.describe(cluster, row["id"])
        except ClientError:
            continue                        # the transaction may have ended
        started = state.transaction_start_time_ms
        row |= {
            "epoch": state.producer_epoch,
            "age_ms": now_ms - started if started >= 0 else None,
            "timeout_ms": state.transaction_timeout_ms,
            "started_ms": started if started >= 0 else None,
            "ends_ms": started + state.transaction_timeout_ms if started >= 0 else None,
            "partitions": [
                f"{topic.topic}-{index}" for topic in state.topics for index in topic.partitions
            ],
            "topics": [topic.topic for topic in state.topics],
        }
        if (row["age_ms"] or 0) >= HELD_MS:
            places[row["id"]] = [
                (topic.topic, index) for topic in state.topics for index in topic.partitions]
    clients = {
        one["id"]: one for found in read_all(cluster, memory, "/api/v1/transactions").values()
        for one in found} if places else {}
    for row in ongoing:
        known = clients.get(row["id"], {})
        row |= {name: known.get(name) for name in ("client_id", "address")}
    add_held_back(cluster, memory, [row for row in ongoing if row["id"] in places], places)
    return rows


def add_held_back(
    cluster: ClusterClient, memory: Memory, rows: list[Row], places: dict[str, list[Place]]
) -> None:
    """Adds to each transaction's row the number of records that it holds back from read_committed
    consumers, the partitions of these records, and the groups with lag in these partitions. Omits
    what the user may not see. If several transactions are open in a partition, the first one holds
    back the records."""
    every = sorted({one for some in places.values() for one in some})
    try:
        ends = offsets.at(cluster, dict.fromkeys(every, offsets.LATEST))
        stable = offsets.at(cluster, dict.fromkeys(every, offsets.LATEST), committed=True)
    except ClientError:
        return
    held = {place: ends[place].offset - stable[place].offset for place in every
            if not ends[place].error and not stable[place].error
            and ends[place].offset > stable[place].offset}
    oldest = sorted(rows, key=lambda row: -row["age_ms"])
    wanted = dict.fromkeys(place for row in oldest for place in places[row["id"]] if place in held)
    first = first_producers(
        cluster, {place: stable[place].offset for place in list(wanted)[:HELD_PLACES_MAX]})
    lags: dict[str, dict[Place, int]] = memory.get("group lags", {})
    for row in rows:
        mine = [place for place in places[row["id"]] if first.get(place) == row["producer"]]
        if not mine and any(place in held and place not in first for place in places[row["id"]]):
            continue                        # not all its partitions were looked up
        row["held_back"] = sum(held[place] for place in mine)
        row["held_partitions"] = [f"{topic}-{index}" for topic, index in mine]
        row["groups"] = sorted(
            name for name, known in lags.items() if any(known.get(place) for place in mine))


def first_producers(cluster: ClusterClient, stable: dict[Place, int]) -> dict[Place, int]:
    """For each partition, the id of the producer whose transaction begins at the last stable
    offset; -1 if none begins there any more. Omits topics that the user may not read."""
    known: dict[Place, list[Any]] = {}
    try:
        known = transactions.producers(cluster, stable) if stable else {}
    except Refused:                         # ask for one topic at a time
        for topic, indexes in by_topic(stable).items():
            try:
                known |= transactions.producers(cluster, [(topic, index) for index in indexes])
            except ClientError:
                continue
    except ClientError:
        return {}
    return {
        place: next((one.producer_id for one in found
                     if one.current_txn_start_offset == stable[place]), -1)
        for place, found in known.items()
    }


def is_open(one: Listed) -> bool:
    """Whether a transaction is in progress."""
    return one.state in ("Ongoing", "PrepareCommit", "PrepareAbort")


def hanging_rows(cluster: ClusterClient, memory: Memory, minutes: int) -> Row:
    """Open transactions that no coordinator knows: read_committed consumers would wait for ever for
    their end. Also has the number of topics that have not been checked yet."""
    places: dict[str, list[Place]] = {}
    for topic in cluster.metadata().topics:
        for part in topic.partitions:
            if part.leader_id >= 0:
                places.setdefault(topic.name, []).append((topic.name, part.partition_index))
    sweep: Sweep[list[Row]] = memory.setdefault(("hanging", minutes), Sweep())
    results = sweep.look(places, lambda name: hanging_of(cluster, places[name], minutes),
                       HANGING_SECONDS)
    return {"rows": [row for name in sorted(results) for row in results[name]],
            "left": sweep.left, "of": len(places)}


def hanging_of(cluster: ClusterClient, places: list[Place], minutes: int) -> list[Row]:
    """The hanging transactions of some partitions. Raises ClientError."""
    return [
        {
            "id": f"{one.place[0]}-{one.place[1]}/{one.producer.producer_id}",
            "topic": one.place[0], "partition": one.place[1],
            "producer": one.producer.producer_id, "epoch": one.producer.producer_epoch,
            "coordinator_epoch": one.producer.coordinator_epoch,
            "first_offset": one.producer.current_txn_start_offset, "minutes": one.minutes,
        }
        for one in transactions.hanging(cluster, places, minutes)
    ]


def abort_hanging(
    cluster: ClusterClient, topic: str, partition: int, first_offset: int, minutes: int
) -> None:
    """End a transaction with a marker, if no coordinator knows it. Raises ClientError."""
    for one in transactions.hanging(cluster, [(topic, partition)], minutes):
        if one.producer.current_txn_start_offset == first_offset:
            transactions.abort(cluster, one.place, one.producer.producer_id,
                               one.producer.producer_epoch, one.producer.coordinator_epoch)
            return
    raise BadRequest(
        f"{topic}-{partition} has no hanging transaction that begins at offset {first_offset}. An"
        " open transaction hangs if its producer has written nothing to the partition"
        f" for {minutes} minutes and no coordinator lists the transaction as ongoing", 404)


def audit_rows(cluster: ClusterClient, memory: Memory) -> Row:
    """The newest lines of the brokers' audit logs, the newest first, and notes about brokers that
    did not send a log. The lines show other users' changes, so only users who may ALTER the cluster
    see them. Raises Refused."""
    if not clusters.may(cluster, acls.OPERATIONS["ALTER"]):
        raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                      "the audit log requires the right to ALTER the cluster")
    logs = read_all(cluster, memory, "/api/v1/audit")
    rows = [
        {"id": f"{broker}/{one['number']}/{one['at_ms']}", "broker": broker, **one}
        for broker, found in logs.items() for one in found
    ]
    rows.sort(key=lambda row: row["at_ms"], reverse=True)
    notes = [
        f"Broker {broker} gave no audit log. If the console runs on another machine, add the "
        "console's network to the broker's ottla.http.networks."
        for broker in addresses(cluster, memory) if broker not in logs
    ]
    return {"rows": rows, "notes": notes}
