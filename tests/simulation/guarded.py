"""Topics that ACLs guard. An owner creates and deletes them, and grants and takes away rights.
Meanwhile clients with partial rights send requests to every broker, most of them while a topic is
created or deleted.

These rules must hold, whatever image of the metadata a broker uses (`rights.py` says which ACLs a
request may meet):

- Nobody reads, writes, changes or deletes without the right to do so.
- Nobody learns from an answer the name or the id of a topic that it may not describe.
- Nobody who has the right is answered TOPIC_AUTHORIZATION_FAILED. In the end, each right works.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.replication.controller.access import Operation
from ottla.wire.batch import batches
from ottla.wire.errors import CorruptMessage, ErrorCode, StorageFailed
from ottla.wire.marks import reached
from ottla.wire.messages import CreateTopicsRequest, DeleteTopicsRequest, FetchResponse
from tests.simulation.guarded_requests import (
    MAKERS,
    PROOFS,
    RETENTION_MS,
    Ask,
    Make,
    Subject,
    item_codes,
    list_all,
    produce,
    things_in,
)
from tests.simulation.network import Broken
from tests.simulation.replay import bytes_of
from tests.simulation.rights import OWNER, Granted, Right, Rights, first_rules
from tests.simulation.session import within
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from ottla.replication.metadata import MetadataImage
    from tests.simulation.machine import Machine
    from tests.simulation.network import Link
    from tests.simulation.world import World

NAMES = ("guarded-east", "guarded-west")
HOSTS = ("10.9.0.2", "10.9.0.3", "10.9.0.4")
"""The hosts of the clients with partial rights."""
OPERATIONS = (
    *[Operation.DESCRIBE] * 4, Operation.READ, Operation.READ, Operation.WRITE, Operation.WRITE,
    Operation.DELETE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALTER,
)
"""The operations that rights are drawn from."""
PARTITIONS = 2
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NOT_NOW = {
    ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NETWORK_EXCEPTION, ErrorCode.BROKER_NOT_AVAILABLE,
}
"""Errors that say nothing about a topic: the request could not be served at that moment."""
ANSWER_SECONDS, PROOF_SECONDS = 120.0, 60.0
BURST = 7
"""How many requests each client sends while a topic is created or deleted."""


@dataclass
class Guarded:
    """One incarnation of a guarded topic, as its owner knows it."""

    name: str
    topic_id: bytes


class Guard:
    """The owner of the guarded topics, and the clients with partial rights."""

    def __init__(
        self, world: World, pace: Callable[[], float], is_over: Callable[[], bool],
        newest: Callable[[], MetadataImage | None],
    ) -> None:
        self.world, self.pace, self.is_over, self.newest = world, pace, is_over, newest
        self.chance = random.Random(f"guarded topics {world.seed}")
        self.links: dict[tuple[str, Machine], Link] = {}
        self.rights = Rights(self.ask_any, newest, self.shown)
        self.there: dict[str, Guarded] = {}
        """The topics that exist: their creation was answered, their deletion not asked for."""
        self.changing: set[str] = set()
        """Names of topics that the owner is creating or deleting."""
        self.haunted: set[str] = set()
        """Names that a request whose outcome is unknown may still create."""
        self.ids: dict[bytes, str] = {}
        self.allowed: set[tuple[str, Operation]] = set()
        """By name, the operations that a client may have had the right to perform."""
        self.forbidden: dict[bytes, str] = {}
        """The records that nobody may ever read, with the topic to which they were sent."""
        self.values = 0

    # Brokers

    def up(self) -> list[Machine]:
        return [each for each in self.world.machines if each.up and each.server is not None]

    def shown(self) -> list[MetadataImage]:
        """The images that the brokers use."""
        return [each.server.metadata_log.image for each in self.up() if each.server is not None]

    async def ask(self, host: str, machine: Machine, request: Any, version: int) -> Any:
        """Send a request to one broker. Raises Broken."""
        link = self.links.get((host, machine))
        if link is None or link.broken:
            link = self.world.connect(f"guarded {host}", machine, host)
            if link is None:
                raise Broken
            self.links[host, machine] = link
        try:
            return await within(ANSWER_SECONDS, link.ask(request, version), self.world.clients)
        except TimeoutError:
            raise Broken from None

    async def ask_any(self, request: Any, version: int) -> Any:
        """Send a request of the owner to any broker. Raises Broken."""
        up = self.up()
        if not up:
            raise Broken
        return await self.ask(OWNER, self.chance.choice(up), request, version)

    def topic_id(self, name: str) -> bytes | None:
        """The id of a topic in the newest image; None if it does not exist."""
        image = self.newest()
        topic = None if image is None else image.topics.get(name)
        if topic is None:
            return None
        self.ids[topic.topic_id] = name
        return topic.topic_id

    # The owner

    async def work(self) -> None:
        granted: set[Right] = set()
        for host in HOSTS:
            for name in NAMES:
                for _ in range(self.chance.choice((0, 0, 1, 1, 2))):
                    granted.add((host, self.chance.choice(OPERATIONS), name))
        rules = first_rules(HOSTS, NAMES)
        begun = asyncio.ensure_future(self.rights.begin(rules, Granted(granted)))
        while not begun.done():
            await asyncio.sleep(0.05)
        begun.result()
        while self.rights.oldest() == 0 and not self.is_over():
            await asyncio.sleep(0.05)
        if self.is_over():
            return
        await asyncio.gather(self.own(), *(self.roam(host) for host in HOSTS))

    async def rest(self, steps: float) -> None:
        """Wait for a random time of about `steps` times the pace of the run."""
        end = self.world.now + self.chance.expovariate(1.0) * steps * self.pace()
        while self.world.now < end and not self.is_over():
            await asyncio.sleep(min(0.5, max(end - self.world.now, 0.001)))

    async def own(self) -> None:
        while not self.is_over():
            await self.rest(2.0)
            name = self.chance.choice(NAMES)
            if self.chance.random() < 0.3:
                await self.rights.change(
                    (self.chance.choice(HOSTS), self.chance.choice(OPERATIONS), name))
            else:
                await self.replace(name)
            self.look()

    async def replace(self, name: str) -> None:
        """Delete a topic if it exists, or create it. Meanwhile all clients send requests."""
        with self.change_of(name):
            topic = self.there.pop(name, None)
            step = self.create(name) if topic is None else self.delete(topic)
            await asyncio.gather(
                step, self.fill(name), *(self.burst(host, name) for host in HOSTS))

    @contextlib.contextmanager
    def change_of(self, name: str) -> Any:
        self.changing.add(name)
        yield
        self.changing.discard(name)

    async def create(self, name: str) -> None:
        """Repeat CreateTopics until the outcome is certain."""
        made = CreateTopicsRequest.Topic
        request = CreateTopicsRequest(topics=[made(
            name=name, num_partitions=PARTITIONS, replication_factor=-1, assignments=[],
            configs=[made.Config(name="retention.ms", value="-1"),
                     made.Config(name="cleanup.policy", value="delete")],
        )], timeout_ms=10_000)
        while True:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            try:
                code = ErrorCode((await self.ask_any(request, 7)).topics[0].error_code)
            except Broken:
                self.haunted.add(name)
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                topic_id = self.topic_id(name)
                if topic_id is not None:
                    self.there[name] = Guarded(name, topic_id)
                    return
                if (name, Operation.DELETE) in self.allowed:
                    return
            if code == REFUSED:
                raise Violation(f"CreateTopics of {name} is refused to its owner")
            await asyncio.sleep(0.2)

    async def delete(self, topic: Guarded) -> None:
        """Repeat DeleteTopics until the outcome is certain."""
        made = DeleteTopicsRequest
        request = made(
            topics=[made.Topic(topic_id=topic.topic_id)], topic_names=[], timeout_ms=10_000)
        while True:
            with contextlib.suppress(Broken):
                code = ErrorCode((await self.ask_any(request, 6)).responses[0].error_code)
                if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
                    if self.topic_id(topic.name) != topic.topic_id:
                        return
                elif code == REFUSED:
                    raise Violation(f"DeleteTopics of {topic.name} is refused to its owner")
            await asyncio.sleep(0.2)

    async def fill(self, name: str) -> None:
        """Write records by the topic's id to each broker, also to those that do not know the topic
        yet, so that there is something to read."""
        for _ in range(BURST):
            await asyncio.sleep(self.chance.expovariate(60.0))
            for machine in self.up():
                ask = produce(self.subject(name, OWNER), self.chance)
                if ask is not None and ask.by_id:
                    with contextlib.suppress(Broken):
                        answer = await self.ask(OWNER, machine, ask.request, ask.version)
                        if REFUSED in {*item_codes(answer)}:
                            raise Violation(f"a produce to {name} is refused to its owner")

    # Clients with partial rights

    async def roam(self, host: str) -> None:
        while not self.is_over():
            await self.rest(3.0)
            await self.act(host, self.chance.choice(NAMES))

    async def burst(self, host: str, name: str) -> None:
        for _ in range(BURST):
            await asyncio.sleep(self.chance.expovariate(40.0))
            await self.act(host, name)

    def subject(self, name: str, host: str) -> Subject:
        self.values += 1
        value = f"{host}.{self.values}".encode()
        known = self.topic_id(name)
        return Subject(
            name, known, self.chance.randrange(PARTITIONS), value, self.world.wall_ms())

    async def act(self, host: str, name: str, make: Make | None = None) -> set[int]:
        """Send one random request, and judge its answer; returns the error codes in the answer."""
        up = self.up()
        ask = (make or self.chance.choice(MAKERS))(self.subject(name, host), self.chance)
        if ask is None or not up:
            return set()
        since, answer = self.rights.oldest(), None
        self.note_allowed(ask, host, name, since)
        with contextlib.suppress(Broken):
            machine = self.chance.choice(up)
            answer = await self.ask(host, machine, ask.request, ask.version)
        since = min(since, self.rights.oldest())
        self.note_allowed(ask, host, name, since)
        if ask.value and not self.rights.possible(since, host, Operation.WRITE, name):
            self.forbidden[ask.value] = name
        if answer is None:
            return set()
        codes = {*item_codes(answer)}
        self.judge(ask, host, name, since, codes, answer)
        self.look()
        return codes

    def note_allowed(self, ask: Ask, host: str, name: str, since: int) -> None:
        """Note that the client may have the right that its request needs."""
        if ask.need is not None and self.rights.possible(since, host, ask.need, name):
            self.allowed.add((name, ask.need))

    def judge(
        self, ask: Ask, host: str, name: str, since: int, codes: set[int], answer: Any
    ) -> None:
        """Check an answer. `since` is the oldest version of the ACLs that a broker may have
        used."""
        possible = partial(self.rights.possible, since, host)
        asked, told = {*things_in(ask.request)}, {*things_in(answer)}
        for each in NAMES:
            if possible(Operation.DESCRIBE, each):
                continue
            if each not in asked and any(
                isinstance(thing, str) and each in thing for thing in told
            ):
                raise Violation(f"{ask} tells {host} the name {each}, which it may not describe")
            for topic_id, of in self.ids.items():
                if of == each and topic_id in told and topic_id not in asked:
                    raise Violation(f"{ask} tells {host} the id of {each}, which it may not"
                                    " describe")
        if isinstance(answer, FetchResponse):
            self.judge_records(ask, host, name, since, answer)
        if ask.need is None:
            return
        if not possible(ask.need, name):
            reached("a client without the right was refused")
            if ErrorCode.NONE in codes:
                raise Violation(
                    f"{ask} of {host} about {name} is served, though {ask.need.name} is not"
                    f" allowed: {answer}")
        if not possible(ask.need, name) and not possible(Operation.DESCRIBE, name):
            # Fetch and Produce by id tell whether the id exists, as in Kafka.
            known = {REFUSED, *NOT_NOW} | ({ErrorCode.UNKNOWN_TOPIC_ID} if ask.by_id else set())
            if not codes <= known:
                raise Violation(
                    f"{ask} of {host}, which may not describe {name}, is answered {answer}")
        if (
            REFUSED in codes and not ask.creates
            and self.rights.certain(since, host, ask.need, name)
        ):
            raise Violation(f"{ask} of {host} about {name} is refused, though {ask.need.name} is"
                            f" allowed: {answer}")

    def judge_records(self, ask: Ask, host: str, name: str, since: int, answer: Any) -> None:
        """Check the records that a fetch returns."""
        for part in (part for topic in answer.responses for part in topic.partitions):
            if not part.records:
                continue
            if not self.rights.possible(since, host, Operation.READ, name):
                raise Violation(f"{ask} lets {host} read {name}, which it may not read")
            reached("a client read a guarded topic")
            self.judge_values(name, part.records)

    def judge_values(self, name: str, data: Any) -> None:
        for view in batches(data):
            for record in view.records():
                if record.value in self.forbidden:
                    raise Violation(
                        f"{name} has record {record.value!r} of a client that may not write there")

    # Checks

    def look(self) -> None:
        """Check the newest image: what exists, and its settings."""
        image = self.newest()
        for name in NAMES if image is not None else ():
            topic, known = image.topics.get(name), self.there.get(name)
            if known is not None and (name, Operation.DELETE) not in self.allowed and (
                topic is None or topic.topic_id != known.topic_id
            ):
                raise Violation(f"{name} was deleted by a client that may not delete it")
            if topic is None:
                continue
            if known is None and name not in self.changing | self.haunted and (
                (name, Operation.CREATE) not in self.allowed
            ):
                raise Violation(f"{name} was created by a client that may not create it")
            settings = image.configs.get(("topic", name), {})
            if settings.get("retention.ms") == RETENTION_MS and (
                (name, Operation.ALTER_CONFIGS) not in self.allowed
            ):
                raise Violation(f"{name} was changed by a client that may not change its settings")
            if len(topic.partitions) > PARTITIONS and (
                (name, Operation.ALTER) not in self.allowed
            ):
                raise Violation(f"{name} was extended by a client that may not alter it")

    def look_at_logs(self) -> None:
        """Check the logs of all brokers."""
        for machine in self.up():
            for each in machine.server.replicas if machine.server is not None else ():
                if each.topic not in NAMES or each.log.offline is not None:
                    continue
                if each.log.log_start_offset > 0 and (
                    (each.topic, Operation.DELETE) not in self.allowed
                ):
                    raise Violation(f"records of {each!r} were deleted by a client that may not"
                                    " delete them")
                with contextlib.suppress(CorruptMessage, StorageFailed, OSError):
                    self.judge_values(each.topic, bytes_of(each))

    async def reckon(self) -> None:
        """At the end: check that each client can do what its rights allow, and nothing else."""
        self.look()
        for name in NAMES:
            if self.topic_id(name) is None:
                self.there.pop(name, None)
                with self.change_of(name):
                    await self.create(name)
        newest = len(self.rights.versions) - 1
        await self.world.until(
            lambda: bool(self.up()) and self.rights.oldest() == newest,
            "all brokers use the newest ACLs", PROOF_SECONDS)
        for name in NAMES:
            await self.prove(OWNER, name, Operation.WRITE)
        for host in HOSTS:
            await self.act(host, NAMES[0], list_all)
            for name in NAMES:
                for operation in PROOFS:
                    if self.rights.certain(newest, host, operation, name):
                        await self.prove(host, name, operation)
                    else:
                        await self.act(host, name, PROOFS[operation])
        self.look_at_logs()

    async def prove(self, host: str, name: str, operation: Operation) -> None:
        """Repeat a request that needs a right until it succeeds."""
        end, codes = self.world.now + PROOF_SECONDS, set[int]()
        while ErrorCode.NONE not in codes:
            if self.world.now > end:
                told = [ErrorCode(code).name for code in codes]
                raise Violation(
                    f"{host} has the right {operation.name} on {name}, but its requests fail for"
                    f" {PROOF_SECONDS:g} s; the last answer had {told}")
            codes = await self.act(host, name, PROOFS[operation])
            await asyncio.sleep(0.1)
        reached("a right was used at the end")
