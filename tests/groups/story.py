"""Plays a scenario of groups. Each line is one step: request `----` answer.

    join a                         ----  MEMBER_ID_REQUIRED a-1
    join a id=a-1                  ----  waits
    wait 3s                        ----  a: generation 1 range leader=a-1 members=a-1
    sync a-1 gen=1 a-1=p0          ----  p0
    commit a-1 gen=1 t-0=5         ----  t-0
    crash                          ----

A delayed answer is shown at the step that causes it, after the name of the member. Lines that begin
with `set`, before the first step, are settings. In `protocols=x,y` of a join, the preferred
protocol is first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ottla.groups.classic import subscription
from ottla.groups.classic.messages import Join, Joined, Leaving, NewMemberId, Sync, Synced
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.heartbeat import Heartbeat, HeartbeatReply
from ottla.groups.history.rings import Event
from ottla.groups.history.sentences import sentence
from ottla.groups.offset_requests import Commit, OffsetToCommit
from ottla.groups.records import NO_PRODUCER, Producer, TopicPartition
from ottla.groups.settings import GroupSettings
from ottla.groups.waits import Moment, standing
from ottla.wire.errors import ErrorCode, ProtocolError
from tests.groups.bench import Workbench

UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def milliseconds(text: str) -> int:
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    return int(number) * UNITS[text[len(number) :]]


def told(reply: Any) -> str:
    """A reply as the text of a scenario."""
    if isinstance(reply, NewMemberId):
        return f"MEMBER_ID_REQUIRED {reply.member_id}"
    if isinstance(reply, ProtocolError):
        return reply.code.name
    if isinstance(reply, Joined):
        words = [f"generation {reply.generation} {reply.protocol} leader={reply.leader}"]
        if reply.members:
            words.append("members=" + ",".join(member.member_id for member in reply.members))
        if reply.skip_assignment:
            words.append("skip-assignment")
        return " ".join(words)
    if isinstance(reply, Synced):
        return _readable(reply.assignment) or "nothing"
    if isinstance(reply, HeartbeatReply):
        words = [f"epoch {reply.member_epoch}"]
        if reply.assignment is not None:
            words.append(_named(reply.assignment))
        return " ".join(words)
    if isinstance(reply, list):
        return " ".join(code.name for code in reply)
    return ErrorCode(reply).name


def _named(partitions: Iterable[TopicPartition]) -> str:
    names = sorted(f"{topic_id.rstrip(b'.').decode()}-{index}" for topic_id, index in partitions)
    return "[" + ",".join(names) + "]"


def _assignment(text: str) -> bytes:
    """The bytes of an assignment. The text has partitions, and after a plus sign an assignor's own
    data. A text without partitions is encoded as it is."""
    if "-" not in text:
        return text.encode()
    partitions, _, user_data = text.partition("+")
    written = subscription.write_assignment(_by_topic(partitions))
    if user_data:
        written = written[:-4] + struct.pack(">i", len(user_data)) + user_data.encode()
    return written


def _readable(assignment: bytes) -> str:
    owned = subscription.read_assignment(assignment)
    if owned:
        return "[" + ",".join(f"{topic}-{p}" for topic in owned for p in owned[topic]) + "]"
    return assignment.decode(errors="ignore").strip("\0\x01")


def _by_topic(names: str) -> dict[str, tuple[int, ...]]:
    topics: dict[str, tuple[int, ...]] = {}
    for name in filter(None, names.split(",")):
        topic, index = name.rsplit("-", 1)
        topics[topic] = (*topics.get(topic, ()), int(index))
    return topics


class Story:
    """Plays the steps of one scenario and writes down their outcomes."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.bench = Workbench(**settings)
        self.heard: list[str] = []
        self.told: list[Event] = []

    def play(self, step: str) -> str:
        """Play one step; returns the answers that are given during the step."""
        self.heard = []
        verb, *words = step.split()
        names = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        said = getattr(self, verb)(*names, **{"options": options})
        return "; ".join(([said] if said else []) + self.heard)

    def change(self, operation: Any, group: str, who: str) -> str:
        """Send a request; returns its answer, or "waits". If the answer comes later, it is shown
        after the name `who`."""
        box: list[str] = []
        during = True

        def answer(reply: Any) -> None:
            if during:
                box.append(told(reply))
            else:
                self.heard.append(f"{who}: {told(reply)}")

        try:
            self.bench.runtime.change(group, lambda s, r: operation(s, r, answer))
        except ProtocolError as error:
            box.append(told(error))
        during = False
        return box[0] if box else "waits"

    def join(self, client: str, options: dict[str, str]) -> str:
        protocols = [name for name in options.get("protocols", "range").split(",") if name]
        topics = tuple(t for t in options.get("topics", "").split(",") if t)
        owned = _by_topic(options.get("owned", ""))
        data = subscription.write_subscription(subscription.Subscription(topics, owned=owned), 1)
        group = options.get("group", "g")
        request = Join(
            group, options.get("id", ""), options.get("instance"), client, "/127.0.0.1",
            milliseconds(options.get("session", "10s")),
            milliseconds(options.get("rebalance", "60s")),
            options.get("type", "consumer"),
            tuple((name, data + options.get("data", "").encode()) for name in protocols),
            options.get("version", "9") >= "4", options.get("version", "9") >= "9",
            reason=options.get("reason"),
        )
        return self.change(lambda s, r, a: s.join(request, a, r), group, options.get("id", client))

    def sync(self, member: str, options: dict[str, str]) -> str:
        group, generation = options.pop("group", "g"), int(options.pop("gen"))
        instance, protocol = options.pop("instance", None), options.pop("protocol", None)
        assignments = tuple((who, _assignment(what)) for who, what in options.items())
        request = Sync(group, generation, member, instance, None, protocol, assignments)
        return self.change(lambda s, r, a: s.sync(request, a, r), group, member)

    def heartbeat(self, member: str, options: dict[str, str]) -> str:
        asked = (options.get("group", "g"), int(options["gen"]), member, options.get("instance"))
        try:
            return self.bench.heartbeat(*asked).name
        except ProtocolError as error:
            return told(error)

    def leave(self, *members: str, options: dict[str, str]) -> str:
        group = options.get("group", "g")
        leaving = [Leaving(member) for member in members]
        if "instance" in options:
            leaving.append(Leaving("", options["instance"]))
        return self.change(
            lambda s, r, a: r.reply(a, s.leave(group, leaving, r)), group, "leave"
        )

    def commit(self, member: str = "", *, options: dict[str, str]) -> str:
        group, generation = options.pop("group", "g"), int(options.pop("gen", "-1"))
        instance, metadata = options.pop("instance", None), options.pop("metadata", "")
        transactional = int(options.pop("producer", "-1"))
        retention = options.pop("retention", None)
        offsets = []
        for index, offset in options.items():
            topic, partition = index.rsplit("-", 1)
            offsets.append(OffsetToCommit(topic, int(partition), int(offset), -1, metadata))
        request = Commit(
            group, offsets, member, instance, generation,
            -1 if retention is None else milliseconds(retention),
            transactional=transactional >= 0,
        )
        answers: list[str] = []
        try:
            self.bench.runtime.change(
                group, lambda s, r: s.commit(request, r),
                lambda reply: answers.append(told(reply)),
                Producer(transactional, 0) if transactional >= 0 else NO_PRODUCER,
            )
        except ProtocolError as error:
            return told(error)
        return answers[0] if answers else "waits"

    def end(self, outcome: str, options: dict[str, str]) -> str:
        """Write the marker that ends a producer's transaction."""
        group, producer_id = options.get("group", "g"), int(options["producer"])
        self.bench.end_transaction(group, producer_id, outcome == "commit")
        return ""

    def fetch(self, *indexes: str, options: dict[str, str]) -> str:
        group, stable = options.get("group", "g"), "stable" in options
        wanted = [(i.rsplit("-", 1)[0], int(i.rsplit("-", 1)[1])) for i in indexes] or None
        found = self.bench.shard(group).fetch_offsets(group, wanted, stable)
        return " ".join(
            f"{o.topic}-{o.partition}="
            + (o.code.name if o.code else str(o.value.offset) if o.value else "none")
            for o in sorted(found)
        ) or "nothing"

    def forget(self, *indexes: str, options: dict[str, str]) -> str:
        group = options.get("group", "g")
        wanted = [(i.rsplit("-", 1)[0], int(i.rsplit("-", 1)[1])) for i in indexes]
        return self.change(
            lambda s, r, a: r.reply(a, s.delete_offsets(group, wanted, r)), group, ""
        )

    def delete(self, group: str = "g", *, options: dict[str, str]) -> str:
        return self.change(
            lambda s, r, a: r.reply(a, s.delete_group(group, r) or 0), group, ""
        )

    def show(self, group: str = "g", *, options: dict[str, str]) -> str:
        """A group's state and members."""
        known = self.bench.shard(group).groups.get(group)
        if known is None:
            return "no such group"
        if isinstance(known, ConsumerGroup):
            words = [known.state_name, f"epoch {known.epoch}"]
            for other in known.members.values():
                words.append(f"{other.member_id}@{other.epoch}={_named(other.current.assigned)}")
                if other.current.revoking:
                    words.append(f"revoking {_named(other.current.revoking)}")
            return " ".join(words)
        words = [known.state_name, f"generation {known.generation}"]
        words += [f"{m.member_id}={_readable(m.assignment)}" for m in known.members.values()]
        return " ".join(words)

    def why(self, group: str = "g", *, options: dict[str, str]) -> str:
        """What a group waits for now."""
        runtime = self.bench.runtime
        shard = self.bench.shard(group)
        moment = Moment(
            self.bench.clock.now_ms(), runtime.tick_ms(), runtime.history.rebalance(group),
            shard.context.cluster, shard.context.settings,
        )
        return "; ".join(found.text for found in standing(shard.groups[group], moment)) or "at rest"

    def happened(self, group: str = "g", *, options: dict[str, str]) -> str:
        """The events of a group since the last `happened` step."""
        events = self.bench.runtime.history.events(group)
        new = [each for each in events if each not in self.told]
        self.told = events
        return ". ".join(sentence(each) for each in new) or "nothing"

    def topic(self, name: str, options: dict[str, str]) -> str:
        self.bench.cluster.make(name, int(options["partitions"]))
        return ""

    def beat(self, member: str, options: dict[str, str]) -> str:
        """A ConsumerGroupHeartbeat: epoch=0 joins, -1 leaves, -2 leaves temporarily."""
        group, epoch = options.get("group", "g"), int(options["epoch"])
        joins = epoch == 0
        topics = options.get("topics")
        names = None if topics is None else frozenset(t for t in topics.split(",") if t)
        owned = options.get("owned", "" if joins else None)
        request = Heartbeat(
            group, member, epoch, options.get("instance"), None,
            milliseconds(options.get("rebalance", "60s")) if joins or "full" in options else -1,
            names, options.get("pattern"), options.get("assignor"),
            None if owned is None else frozenset(self.partition(p) for p in owned.split(",") if p),
            "client", "/127.0.0.1",
        )
        return self.change(lambda s, r, a: r.reply(a, s.beat(request, r)), group, member)

    def partition(self, name: str) -> tuple[bytes, int]:
        topic, index = name.rsplit("-", 1)
        return topic.encode().ljust(16, b"."), int(index)

    def wait(self, duration: str, options: dict[str, str]) -> str:
        self.bench.wait(milliseconds(duration))
        return ""

    def configure(self, options: dict[str, str]) -> str:
        """Change settings of the group itself."""
        self.bench.cluster.settings.update({name: int(v) for name, v in options.items()})
        return ""

    def crash(self, options: dict[str, str]) -> str:
        self.bench.crash()
        return ""


def setting(name: str, value: str) -> Any:
    """A setting's value, converted to the type of the setting."""
    default = GroupSettings._field_defaults[name.replace(".", "_")]
    return tuple(value.split(",")) if isinstance(default, tuple) else type(default)(value)


def retell(text: str) -> str:
    """Play a scenario's text; returns the same text with the outcomes that were seen."""
    settings: dict[str, Any] = {}
    story: Story | None = None
    lines = []
    for line in text.splitlines():
        step = line.partition(" ----")[0].strip()
        if not step or step.startswith("#"):
            lines.append(line.rstrip())
        elif step.startswith("set "):
            name, value = step[4:].split("=")
            settings[name.replace(".", "_")] = setting(name, value)
            lines.append(line.rstrip())
        else:
            story = story or Story(settings)
            lines.append(f"{step:<48} ----  {story.play(step)}".rstrip())
    return "\n".join(lines) + "\n"


SCENARIOS = sorted((Path(__file__).parent.parent / "scenarios").glob("*.txt"))


def played(path: Path) -> Workbench:
    """The bench of a scenario after its last step."""
    settings: dict[str, Any] = {}
    steps = []
    for line in path.read_text().splitlines():
        step = line.partition(" ----")[0].strip()
        if step.startswith("set "):
            name, value = step[4:].split("=")
            settings[name.replace(".", "_")] = setting(name, value)
        elif step and not step.startswith("#"):
            steps.append(step)
    story = Story(settings)
    for step in steps:
        story.play(step)
    return story.bench
