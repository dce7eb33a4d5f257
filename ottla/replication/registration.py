"""A broker's ephemeral node `/brokers/ids/N`: its address, its process and its features.

The JSON has Apache Kafka's form, version 5, so that tools that read Kafka's nodes in ZooKeeper find
the addresses. Ottla adds the object `ottla`. The broker epoch is the id of the transaction that
created the node.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ottla.log.storage.run_record import STOPS
from ottla.replication.cluster_store import CONTROLLER_EPOCH
from ottla.replication.coordination import (
    BadVersion,
    Check,
    Coordination,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
)
from ottla.replication.election import CONTROLLER, Election
from ottla.replication.metadata import BrokerImage, Endpoint, Held
from ottla.replication.records import GARBAGE, NODE_MAX, NUMBER_MAX

IDS = "/brokers/ids"
PORT_MAX = 65535
LOST_NAMES_BYTES_MAX = 400_000
"""The largest total size of the names of lost logs in a registration: a request to ZooKeeper has at
most 1 MiB. If the names need more, all logs of the broker count as lost."""


class DuplicateBroker(Exception):
    """Another broker is registered under this node.id."""


class UnreadableRegistration(ValueError):
    """A registration that this version cannot read."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A broker's description of itself. `features` are the levels that its code supports. `stop` is
    how its last run ended (`log/storage/run_record`). `lost` are the partitions whose logs are
    missing, damaged or outdated.

    With `held`, the broker accepts metadata that are older than its logs, such as those of a
    restored backup. `held` has the upper bounds of the ids and epochs in these logs."""

    node_id: int
    incarnation: str
    endpoints: tuple[Endpoint, ...]
    directories: tuple[str, ...]
    rack: str | None = None
    stop: str = "clean"
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    held: Held | None = None

    def image(self, epoch: int) -> BrokerImage:
        """The broker's entry in the metadata image; `epoch` is its broker epoch."""
        return BrokerImage(
            self.node_id, epoch, self.endpoints, self.rack, self.incarnation, self.directories
        )


def path_of(node_id: int) -> str:
    """The path of a broker's node."""
    return f"{IDS}/{node_id}"


def encode(registration: Registration) -> bytes:
    """The text of the node."""
    first = registration.endpoints[0] if registration.endpoints else Endpoint("", "", -1)
    body = {
        "version": 5,
        "host": first.host,
        "port": first.port,
        "jmx_port": -1,
        "endpoints": [f"{e.listener}://{e.host}:{e.port}" for e in registration.endpoints],
        "rack": registration.rack,
        "features": {},
        "ottla": {
            "incarnation": registration.incarnation,
            "directories": list(registration.directories),
            "stop": registration.stop,
            "lost": list(registration.lost),
            "features": {name: list(levels) for name, levels in registration.features.items()},
            **({} if registration.held is None else {"held": registration.held._asdict()}),
        },
    }
    return json.dumps(body, separators=(",", ":")).encode()


def decode(node_id: int, data: bytes) -> Registration:
    """Decode what `encode` wrote. Raises UnreadableRegistration."""
    try:
        if node_id > NODE_MAX:
            raise ValueError(f"{node_id} is not a node.id")
        body = json.loads(data)
        own = body["ottla"]
        endpoints = []
        for text in body["endpoints"]:
            listener, _, address = text.partition("://")
            host, _, port = address.rpartition(":")
            if not 0 <= int(port) <= PORT_MAX:
                raise ValueError(f"the port of {text!r} is not from 0 to {PORT_MAX}")
            endpoints.append(Endpoint(listener, host, int(port)))
        stop, rack = own["stop"], body["rack"]
        if not isinstance(rack, str | None):
            raise TypeError(f"the field 'rack' is {rack!r}, expected text or null")
        if stop not in STOPS:
            raise ValueError(f"the field 'stop' is {stop!r}, not one of {STOPS}")
        return Registration(
            node_id, str(own["incarnation"]), tuple(endpoints),
            tuple(str(each) for each in own["directories"]), rack, stop,
            {name: (int(low), int(high)) for name, (low, high) in own["features"].items()},
            tuple(str(each) for each in own.get("lost", ())), _held(own.get("held")),
        )
    except GARBAGE as error:
        raise UnreadableRegistration(
            f"{path_of(node_id)} in ZooKeeper does not describe a broker of Ottla ({error!r}):"
            f" {data[:200]!r}"
        ) from error


def _held(fields: Mapping[str, int] | None) -> Held | None:
    if fields is None:
        return None
    held = Held(**fields)
    if any(type(each) is not int or not 0 <= each <= NUMBER_MAX for each in held):
        raise ValueError(f"the field 'held' is {fields}, expected numbers from 0 to {NUMBER_MAX}")
    return held


def can_list(lost: Collection[str]) -> bool:
    """Whether a registration can list these partitions."""
    return sum(len(name) + len('"",') for name in lost) <= LOST_NAMES_BYTES_MAX


async def register(coordination: Coordination, registration: Registration) -> int:
    """Create this process's node and return its broker epoch.

    A node of a former process on the same log directories is replaced at once, without waiting for
    the end of its session. This process holds the locks of the directories, so the former process
    is dead. Raises DuplicateBroker if the node names none of this process's directories.
    """
    path, data = path_of(registration.node_id), encode(registration)
    while True:
        operations: list[Operation] = []
        try:
            former_data, stat = await coordination.get(path)
        except NoNode:
            pass
        else:
            former = decode(registration.node_id, former_data)
            if not set(former.directories) & set(registration.directories):
                where = ", ".join(f"{e.host}:{e.port}" for e in former.endpoints)
                raise DuplicateBroker(
                    f"another broker with node.id={registration.node_id} is registered, at {where},"
                    " with other log directories. If that broker runs, give this one another"
                    " node.id"
                )
            if former == registration and stat.owner == coordination.session_id:
                return stat.czxid
            operations = await _end_former(coordination, former, stat.version)
        try:
            await coordination.multi([*operations, Create(path, data, ephemeral=True)])
        except (NodeExists, NoNode, BadVersion):
            continue                                # the former node has changed meanwhile
        _, stat = await coordination.get(path)
        if stat.owner == coordination.session_id:
            return stat.czxid


async def _end_former(
    coordination: Coordination, former: Registration, version: int
) -> list[Operation]:
    operations: list[Operation] = [Delete(path_of(former.node_id), version)]
    _, epoch = await coordination.get(CONTROLLER_EPOCH)
    holder = await Election(coordination, former.node_id, "").holder()
    held = holder is not None and holder.incarnation == former.incarnation
    if holder is not None and held and holder.session_id != coordination.session_id:
        # The former process is the controller: depose it, but not a controller elected after it.
        operations += [Check(CONTROLLER_EPOCH, epoch.version), Delete(CONTROLLER)]
    return operations
