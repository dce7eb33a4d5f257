"""Scenes of commands that change or show a cluster. Status 0 means that the change is done. If a
command was interrupted, the same command completes the change."""

from __future__ import annotations

import json

from compat_tests.tool_chaos.reading import commit_at, committed_at
from compat_tests.tool_chaos.running import Outcome
from compat_tests.tool_chaos.seed import ALL, BROKERS, Event, Seed
from compat_tests.tool_chaos.world import EACH, PARTITIONS, SOURCE
from compat_tests.waiting import wait_until
from ottla.tools.commands import table
from tests.tools.command_lines import COMMANDS, REMOTE, fill, line_of

UNHEARD_OF = "--no-such-flag"
TWICE = ("exists", "no topic", "UNKNOWN_TOPIC", "does not exist", "already has")
"""Parts of the error messages of a repeated command, if the interrupted one did the change."""
LONG = {"console", "cluster drain", "kafka-verifiable-consumer", "mirror", "kafka-mirror-maker",
        "consume", "kafka-e2e-latency", "user set", "kafka-console-consumer"}  # fmt: skip
"""Commands that do not end by themselves, or have scenes of their own."""


def group_reset(seed: Seed) -> None:
    """With status 0, all offsets are the new ones. With any status, each is the old or the new one.
    """
    name, old, new = seed.name("reset"), 7, seed.chance.randrange(8, EACH)
    commit_at(seed.world.bootstrap, name, old)
    words = ["group", "reset", name, "--topic", SOURCE, "--to", str(new), "--yes"]
    if seed.chance.random() < 0.4:
        words = ["kafka-consumer-groups", "--bootstrap-server", seed.world.bootstrap, "--group",
                 name, "--topic", SOURCE, "--reset-offsets", "--to-offset", str(new),
                 "--execute"]  # fmt: skip
    outcome = seed.run(words, seed.event())
    found = set(committed_at(seed.world.bootstrap, name).values())
    if outcome.status == 0 and not outcome.err.strip() and words[0] == "group":
        assert found == {new}, f"status 0 with offsets {found}, not {new}"
    assert found <= {old, new}, found
    seed.run(words)
    assert committed_at(seed.world.bootstrap, name) == dict.fromkeys(range(PARTITIONS), new)


def topics(seed: Seed) -> None:
    """A topic is created, gets more partitions and a new setting, and is deleted. An event happens
    during each of these commands."""
    name = seed.name("life")
    steps = [
        ["topic", "create", name, "--partitions", "2", "--config", "retention.ms=1d"],
        ["topic", "grow", name, "--partitions", "4"],
        ["config", "set", f"topic/{name}", "retention.ms=2d"],
        ["topic", "delete", name, "--yes"],
    ]
    for step, words in enumerate(steps):
        outcome = seed.run(words, seed.event())
        if outcome.status:
            said = seed.start(words).wait(90)
            assert said.status == 0 or any(word in said.err for word in TWICE), said.err
        check_step(seed, name, step)


def check_step(seed: Seed, name: str, step: int) -> None:
    """Check the topic after a step was completed."""
    shown = seed.run(["topic", "list", name, "-o", "name"])
    assert shown.lines == ([] if step == 3 else [name.encode()]), shown
    if step == 3:
        return
    described: list[Outcome] = []

    def partitions() -> int:
        described.append(seed.run(["topic", "describe", name, "-o", "json"]))
        return len(json.loads(described[-1].out))

    wait_until(lambda: partitions() == (2 if step == 0 else 4), f"partitions after step {step}", 30)
    setting = seed.run(["config", "show", f"topic/{name}", "-o", "json"])
    wanted = "172800000" if step == 2 else "86400000"
    assert wanted in setting.out.decode(), setting.out


def reassign(seed: Seed) -> None:
    """A partition's replicas move as planned, and no record is lost."""
    if len(seed.world.nodes) < 3:
        return any_command(seed)
    name, chance = seed.name("moved"), seed.chance
    seed.world.create(name, 2)
    seed.world.send(name, 2, 300)
    wanted = {p: chance.sample(seed.world.nodes, chance.randint(1, 3)) for p in range(2)}
    plan = seed.folder / "plan.json"
    seed.folder.mkdir(parents=True, exist_ok=True)
    plan.write_text(json.dumps({"version": 1, "partitions": [
        {"topic": name, "partition": p, "replicas": nodes} for p, nodes in wanted.items()]}))
    words = ["reassign", "start", str(plan)]
    if chance.random() < 0.4:
        words = ["kafka-reassign-partitions", "--bootstrap-server", seed.world.bootstrap,
                 "--reassignment-json-file", str(plan), "--execute"]  # fmt: skip
    outcome = seed.run(words, seed.event())
    if outcome.status:
        seed.start(words).wait(90)

    def moved() -> bool:
        parts = seed.world.admin.list_topics(name, timeout=10).topics[name].partitions
        return all(sorted(parts[p].replicas) == sorted(nodes) for p, nodes in wanted.items())

    wait_until(moved, f"the replicas of {name} are {wanted}", 60)
    read = seed.run(["consume", name, "--exit"])
    assert len(set(read.lines)) == len(read.lines) == 600, len(read.lines)


def any_command(seed: Seed) -> None:
    """Run an example of the table of commands with an event; it must end with a known status."""
    words = seed.chance.choice(sorted(set(REMOTE) - LONG))
    seed.folder.mkdir(parents=True, exist_ok=True)
    fill(seed.folder, SOURCE, seed.world.bootstrap)
    line = line_of(words, seed.world.bootstrap, SOURCE)
    line = [str(seed.folder / one) if (seed.folder / one).is_file() else one for one in line]
    if COMMANDS[words].marks & {"destroys"} or words in DESTROYING:
        line.append(UNHEARD_OF)         # refused, so that it does not change what other scenes use
    event = seed.event(ALL)
    seed.told.append(f"{words}: {event}")
    running = seed.start(line)
    try:
        running.until_held(event.seconds)
        if event.name != "nothing":
            seed.happen(event, running)
        running.read_rest()
        outcome = running.wait(120)
    finally:
        running.kill()
    if event.hits_brokers:
        seed.world.until_in_sync()
    # The cluster may refuse an example, so this scene does not expect status 0.
    assert outcome.status in (0, 1, 2, 130, 143, -2, -9, -15), outcome.status
    seed.check(Outcome(outcome.words, 0, outcome.out, outcome.err, outcome.left_behind), event)


DESTROYING = {"kafka-topics", "kafka-delete-records", "kafka-reassign-partitions", "topic grow",
              "config set", "config reset", "kafka-configs", "reassign start", "quota set",
              "kafka-acls", "acl add", "produce", "kafka-console-producer", "perf produce",
              "kafka-producer-perf-test", "kafka-verifiable-producer", "topic create",
              "feature set", "kafka-features", "kafka-cluster"}  # fmt: skip


def wrong_command_line(seed: Seed) -> None:
    """While no broker runs, a command with an unknown flag ends within 30 s. The status is 1 for a
    command under one of Kafka's names, and 2 for any other."""
    name = seed.chance.choice(sorted({**table.read("ottla"), **table.read("kafka")}))
    kafka = name.startswith("kafka-")
    nodes = list(seed.world.nodes)
    for node in nodes:
        seed.world.kill(node)
    try:
        outcome = seed.start([*name.split(), UNHEARD_OF]).wait(30)
    finally:
        seed.world.start(nodes)
        seed.world.until_in_sync()
    seed.told.append(name)
    assert outcome.status == (1 if kafka else 2), f"{name}: {outcome.status}, {outcome.err}"
    assert outcome.err and "Traceback" not in outcome.err, outcome.err


def unreachable(seed: Seed) -> None:
    """If no broker runs, commands end by themselves, with status 1 and a message."""
    words = seed.chance.choice([
        ["topic", "list"], ["consume", SOURCE, "--exit"], ["group", "list"], ["cluster", "info"],
        ["consume", SOURCE, "--group", seed.name("none"), "--exit"], ["cluster", "check"],
        ["perf", "consume", SOURCE], ["topic", "offsets", SOURCE], ["server", "status"],
        ["kafka-topics", "--bootstrap-server", seed.world.bootstrap, "--list",
         "--command-config", str(seed.folder / "short.properties")],
    ])  # fmt: skip
    seed.folder.mkdir(parents=True, exist_ok=True)
    (seed.folder / "short.properties").write_text("default.api.timeout.ms=3000\n")
    nodes = list(seed.world.nodes)
    for node in nodes:
        seed.world.kill(node)
    try:
        outcome = seed.start(words).wait(45)
    finally:
        seed.world.start(nodes)
        seed.world.until_in_sync()
    seed.check(outcome, Event(BROKERS[0], 0.0, 0, 0.0, nodes))
    assert outcome.status == 1, outcome
