"""The options that a seed gives for a run of several brokers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from ottla.broker.settings.broker import RACK_AWARE_SELECTOR
from ottla.broker.settings.config import AUTHORIZERS
from tests.simulation.options import (
    LONG_SHARE,
    MEMBERS_SHARE,
    MOVE_RATE,
    NARROW_SHARE,
    PIECES_SHARES,
    SWARM_SHARE,
    Options,
)

FAULTS = (
    "kill", "kill in a call", "kill the controller", "kill a leader", "kill two", "kill all",
    "clean stop", "rolling restart", "power cut", "power cut of a leader", "power cuts in turn",
    "power cut of all", "wiped disk", "disk full", "io error", "pause", "pause a leader",
    "cut off one way", "cut off", "lose ZooKeeper", "alone in the dark", "lose answers",
    "end a session", "break links", "idle", "move", "cut between two", "left alone",
    "missing directory", "damaged bytes",
)
SEQUENCES = (
    "last disk lost", "late fetch", "successor ahead", "killed at its return", "back one by one",
    "two leaders die", "leader dies as one joins", "power cut of two",
)
"""Faults of several steps (`sequences.py`) that any seed may have."""
OF_TWO = ("power cut of two", "killed as it moves")
"""Sequences that can find a defect only if partitions have replicas on all brokers but one, and
min.insync.replicas is 1."""
SEQUENCES_SHARE = 0.3
"""The share of seeds in which one of SEQUENCES replaces another fault."""
FOLLOWER_READS_SHARE = 0.2
"""The share of seeds that have consumers that read from followers."""
AUTHORIZER_SHARE = 0.2
"""The share of seeds that have an authorizer, which allows everything. Most requests ask it about a
topic, a group or a transactional id; without an authorizer they take another path."""
FETCH_BYTES = (1 << 20, 4096, 700, 300)
"""The possible values of replica.fetch.max.bytes on seeds in which data arrive in pieces."""
MOVES_SHARE = 0.5
"""The share of the seeds with two log directories in which replicas move between them."""
SETTINGS_SHARE = 0.25
"""The share of seeds that change topics' settings and delete records."""
DELETIONS_SHARE = 0.4
"""The share of short lives that delete topics and create them again."""
PAST_A_SNAPSHOT, PAST_SHARE = "deleted past a snapshot", 0.3
"""A sequence for short lives that delete topics, and the share of these lives that draw it."""
CUT_WHILE_IT_MOVES, CUT_SHARE = "cut while it moves", 0.25
"""A sequence for seeds that move replicas between log directories, and the share of these seeds
that draw it."""
PAIRS = ("killed as it moves", "nobody in sync", "cut amid a transaction", "other settings")
PAIRS_SHARE = 0.25
"""Sequences that exercise two features together, and the share of short lives that draw one of
them. Lives with RESTORED, PAST_A_SNAPSHOT or damaged bytes draw none."""
COINCIDENCES = (
    "silent in an election", "proposal comes late", "join is not heard of",
    "behind the start of an epoch", "request is lost", "removed as it registers",
)
COINCIDENCES_SHARE = 0.12
"""Sequences in which one message is late or lost, and the share of short lives that draw one of
them. Lives with RESTORED, PAST_A_SNAPSHOT or CUT_WHILE_IT_MOVES draw none."""
OF_THREE = ("last disk lost", "successor ahead", "two leaders die", *COINCIDENCES)
"""Sequences that can find a defect only with three replicas, and min.insync.replicas 2."""
SLOW_VERDICTS_SHARE = 0.3
"""In this share of the short lives with impatient producers, coordinators answer leaders so late
that transactions may end before the answer."""
RESTORED, RESTORED_SHARE = "restored backup", 0.05
"""A sequence, and the share of seeds that draw it. Seeds that change settings, move replicas
between directories or have a fault of PREPARED do not draw it."""
PREPARED = ("missing directory", "damaged bytes")
"""Faults that need certain settings."""
TOGETHER_SHARE = 0.3
"""The share of faults that are two faults at the same time."""
FACTORS = (1, 2, 3, 3)
JUMPS_HOURS = (0, 0, 0, -10, -3, -1, 1, 3, 4)
"""The jumps of wall clocks. Even five jumps forward are less than a day together, because brokers
forget producers that were idle for a day."""
LONG_SESSION_SECONDS, SHORT_SESSION_SECONDS = 6.0, 2.0
"""ZooKeeper's session timeouts in long and in short lives. Other waits of more than a second differ
in the same ratio."""


def fault(chance: random.Random) -> str:
    """One fault, or two that happen at the same time."""
    if chance.random() < TOGETHER_SHARE:
        return " & ".join(chance.sample(FAULTS, 2))
    return chance.choice(FAULTS)


@dataclass
class ClusterOptions(Options):
    """The options of a cluster's run; printed with a seed that fails."""

    brokers: int = 3
    factor: int = 3
    min_isr: int = 2
    follower_reads: bool = False
    """Whether consumers read from followers, too, and replica.selector.class is set."""
    clock_jumps: list[tuple[int, int]] = field(default_factory=list)
    """For each fault: the broker whose wall clock jumps before it, and by how many hours."""
    directory_moves: bool = False
    """Whether replicas move between log directories."""
    settings_change: bool = False
    """Whether topics' settings change, and records are deleted."""
    deletions: bool = False
    """Whether topics are deleted, and created again."""
    snapshots: bool = False
    """Whether snapshots of the metadata follow each other quickly."""
    # The value for long lives; `cut_short` sets a lower one.
    session_seconds: float = LONG_SESSION_SECONDS

    @classmethod
    def draw(cls, seed: int, long: bool | None = None, brokers: int = 3) -> ClusterOptions:
        """Draw all random options; `long` is drawn, too, if it is None."""
        life = random.Random(f"cluster life {seed}")
        drawn = life.random() < LONG_SHARE
        options = cls.draw_long(seed, brokers)
        options.draw_restores(random.Random(f"cluster backups {seed}"))
        if not (drawn if long is None else long):
            options.cut_short(life)
        options.draw_late(seed)
        options.draw_verdicts(random.Random(f"cluster verdicts {seed}"))
        options.draw_coincidences(random.Random(f"cluster coincidences {seed}"))
        return options

    def draw_guarded(self, chance: random.Random) -> None:
        if RESTORED not in self.faults:         # a backup brings back older ACLs
            super().draw_guarded(chance)

    def is_plain(self, fault: str) -> bool:
        return fault in FAULTS and fault not in PREPARED

    @property
    def haste(self) -> float:
        """The factor for waits of more than a second: 1 in a long life, less in a short one."""
        return self.session_seconds / LONG_SESSION_SECONDS

    @classmethod
    def draw_long(cls, seed: int, brokers: int = 3) -> ClusterOptions:
        """Draw the options of a long life."""
        chance = random.Random(f"cluster options {seed}")
        options = cls(brokers=brokers)
        options.factor = min(brokers, chance.choice(FACTORS))
        options.min_isr = max(1, options.factor - 1)
        options.settings = {
            "log.segment.bytes": str(chance.choice([1 << 14, 4096, 1024])),
            "log.index.interval.bytes": str(chance.choice([4096, 256, 0])),
            "log.flush.offset.checkpoint.interval.ms": str(chance.choice([500, 5000, 60_000])),
            "offsets.topic.num.partitions": "2",
            "offsets.topic.segment.bytes": str(chance.choice([2048, 1 << 20])),
            "transaction.state.log.segment.bytes": str(chance.choice([2048, 1 << 20])),
            "group.initial.rebalance.delay.ms": "0",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "transaction.state.log.num.partitions": "2",
            "offsets.topic.replication.factor": str(min(brokers, 3)),
            "transaction.state.log.replication.factor": str(min(brokers, 3)),
            "replica.fetch.wait.max.ms": str(chance.choice([100, 500])),
            "replica.lag.time.max.ms": str(chance.choice([2000, 5000])),
            "min.insync.replicas": str(options.min_isr),
            "default.replication.factor": str(options.factor),
            "controlled.shutdown.enable": chance.choice(("true", "true", "false")),
            "log.message.timestamp.after.max.ms": str(1 << 60),
        }
        options.slow_share = chance.choice([0.0, 0.01])
        options.slow_network = chance.choice([0.0, 0.0, 0.02])
        options.slow_threads = chance.choice([0.0, 0.05])
        options.faults = [fault(chance) for _ in range(chance.choice([1, 2, 3, 5]))]
        options.rounds_seconds = chance.choice([0.5, 1.0, 3.0])
        options.producers = chance.choice([1, 2, 3])
        options.transactions = chance.choice([0, 1, 2])
        options.groups = chance.choice([0, 1, 2])
        wanted = " ".join(options.faults)
        if "missing directory" in wanted or chance.random() < 0.3:
            options.directories = ["/d0", "/d1"]
        if "damaged bytes" in wanted:
            options.scrub_after_seconds = 1.0
            options.settings["log.segment.bytes"] = str(chance.choice([4096, 1024]))
            options.settings["ottla.log.scrub.bytes.per.second"] = str(1 << 20)
            options.settings["ottla.log.scrub.interval.ms"] = str(chance.choice([2000, 10_000]))
        # Clock jumps have a generator of their own, so that they do not change a seed's faults.
        clocks = random.Random(f"cluster clocks {seed}")
        options.clock_jumps = [
            (clocks.randrange(brokers), clocks.choice(JUMPS_HOURS)) for _ in options.faults
        ]
        if clocks.random() < 0.3:
            # A single in-sync replica can acknowledge, but flushes first: nothing must be lost.
            options.min_isr = 1
            options.settings["min.insync.replicas"] = "1"
        rare = random.Random(f"cluster sequences {seed}")
        if rare.random() < SEQUENCES_SHARE:
            options.have(rare.choice(SEQUENCES), rare.randrange(len(options.faults)))
        near = random.Random(f"cluster follower reads {seed}")
        if near.random() < FOLLOWER_READS_SHARE:
            options.follower_reads = True
            options.settings["replica.selector.class"] = RACK_AWARE_SELECTOR
        if random.Random(f"cluster authorizer {seed}").random() < AUTHORIZER_SHARE:
            options.settings["authorizer.class.name"] = AUTHORIZERS[0]
            options.settings["allow.everyone.if.no.acl.found"] = "true"
        network = random.Random(f"cluster network {seed}")
        options.pieces_share = network.choice(PIECES_SHARES)
        if options.pieces_share:
            # A reply to a follower may end within a batch.
            options.settings["replica.fetch.max.bytes"] = str(network.choice(FETCH_BYTES))
        changes = random.Random(f"cluster settings {seed}")
        options.settings_change = changes.random() < SETTINGS_SHARE
        if len(options.directories) > 1:
            options.draw_moves(random.Random(f"cluster directory moves {seed}"))
        return options

    def draw_restores(self, restores: random.Random) -> None:
        """Draw whether ZooKeeper is restored from a backup."""
        unsteady = self.settings_change or self.directory_moves or any(
            each in fault for each in PREPARED for fault in self.faults
        )
        if restores.random() < RESTORED_SHARE and not unsteady:
            self.have(RESTORED, restores.randrange(len(self.faults)))

    def draw_coincidences(self, apart: random.Random) -> None:
        """Draw whether one of COINCIDENCES replaces a fault."""
        unfit = {RESTORED, PAST_A_SNAPSHOT, CUT_WHILE_IT_MOVES} & {*self.faults}
        if apart.random() < COINCIDENCES_SHARE and self.small and not unfit:
            self.have(apart.choice(COINCIDENCES), apart.randrange(len(self.faults)))

    def draw_verdicts(self, verdicts: random.Random) -> None:
        """Draw whether coordinators answer leaders late about transactions."""
        self.slow_verdicts = self.impatient and verdicts.random() < SLOW_VERDICTS_SHARE
        if self.slow_verdicts:
            self.transactions = max(self.transactions, 2)

    def draw_moves(self, moves: random.Random) -> None:
        """Draw whether replicas are moved between the log directories of their brokers."""
        self.directory_moves = moves.random() < MOVES_SHARE
        if not self.directory_moves:
            return
        # Logs are small here: with the default limit, the last step of a move would copy them
        # completely, so that no move would have two steps.
        self.swap_bytes = moves.choice((200, 200, self.swap_bytes))
        self.settings[MOVE_RATE] = str(moves.choice((2000, 10_000, 1 << 40)))
        if moves.random() < CUT_SHARE:
            self.have(CUT_WHILE_IT_MOVES, moves.randrange(len(self.faults)))
            self.swap_bytes, self.settings[MOVE_RATE] = 200, "2000"

    def have(self, sequence: str, at: int) -> None:
        """Put a sequence in the place of the fault at the index `at`, and set the number of
        replicas that the sequence needs. A sequence takes as long as two faults, so the last fault
        is removed, unless it is the sequence itself."""
        self.faults[at] = sequence
        if at < len(self.faults) - 1:
            self.faults.pop()
        if sequence in OF_TWO:
            self.factor, self.min_isr = max(self.brokers - 1, 1), 1
        elif sequence in OF_THREE or self.factor == 1:
            self.factor, self.min_isr = min(3, self.brokers), min(2, self.brokers)
        self.settings["default.replication.factor"] = str(self.factor)
        self.settings["min.insync.replicas"] = str(self.min_isr)

    def cut_short(self, life: random.Random) -> None:
        """Make this a short life: at most three faults, less work between them, and shorter waits.
        Some features are drawn that only short lives have."""
        self.session_seconds = SHORT_SESSION_SECONDS
        self.rounds_seconds = life.choice([0.1, 0.3, 0.5])
        self.transaction_ms = (2000, 5000)
        for name, least in (("replica.lag.time.max.ms", 1), ("ottla.log.scrub.interval.ms", 1000)):
            if name in self.settings:
                self.settings[name] = str(max(int(int(self.settings[name]) * self.haste), least))
        del self.faults[3:]
        if len(self.faults) == 1:
            self.faults.append(life.choice([each for each in FAULTS if each not in PREPARED]))
            self.clock_jumps.append((0, 0))
        self.small = True
        self.members = life.random() < MEMBERS_SHARE
        unfit = RESTORED in self.faults or "damaged bytes" in " ".join(self.faults)
        self.deletions = life.random() < DELETIONS_SHARE and not unfit
        if self.deletions and life.random() < PAST_SHARE:
            self.have(PAST_A_SNAPSHOT, life.randrange(len(self.faults)))
            self.snapshots = True
        if life.random() < SWARM_SHARE:
            self.swarm(life)
        self.narrow = life.random() < NARROW_SHARE
        if life.random() < PAIRS_SHARE and not unfit and PAST_A_SNAPSHOT not in self.faults:
            self.have(life.choice(PAIRS), life.randrange(len(self.faults)))
            if PAIRS[2] in self.faults:
                self.transactions = max(self.transactions, 2)

    def swarm(self, life: random.Random) -> None:
        """Have few features, and much of each, as in `Options.swarm`. One fault replaces all simple
        faults; sequences, two faults at a time and faults of PREPARED stay."""
        again = life.choice([each for each in FAULTS if each not in PREPARED])
        plain = {each: again for each in self.faults if each in FAULTS and each not in PREPARED}
        self.faults = [plain.get(each, each) for each in self.faults]
        self.producers = life.choice([1, 1, 4])
        self.transactions = life.choice([0, 1, 3])
        self.groups = life.choice([0, 0, 2])
