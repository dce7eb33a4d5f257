"""The options that are drawn from a seed: the broker's settings, the faults, the clients, and how
often each thing happens."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from ottla.broker.settings.config import AUTHORIZERS

FAULTS = (
    "kill", "kill in a call", "power cut", "clean stop", "disk full", "directory missing",
    "clock jump", "break links", "deaf client", "idle", "io error", "garbled",
    "hit twice", "stop cut short", "cut at an answer", "hit at a deletion", "settings changed",
)
REFUSED = "refused call"
"""A fault that only short lives have: the disk refuses one call, or a few calls in a row."""
REFUSED_SHARE = 0.15
"""The share of short lives in which REFUSED replaces another fault."""
PREALLOCATE_SHARE = 0.3
"""Among these lives, the share in which segments reserve their space."""
SHAKEN = frozenset({"disk full", "io error", REFUSED})
"""Faults in which a disk refuses calls while a broker uses it."""
GUARDED_SHARE = 0.12
"""The share of short lives that have topics that ACLs guard, and clients with partial rights."""
SLOW_IF_GUARDED_SHARE = 0.6
"""The share of these lives that have brokers that take long to apply a change of the metadata."""
SETTLED_SECONDS = 70.0
"""Longer than any transaction, any session, any delay of a deletion and any interval between
retention checks."""
ENDINGS = ("kill", "power cut", "clean stop")
SHORT_ENDINGS = ((), ("kill",), ENDINGS, ENDINGS, ENDINGS, ENDINGS)
"""Combinations of endings; a short life has one of them. Most short lives have all endings, because
a defect of a recovery often shows only after a second recovery and a clean stop."""
ABANDONS_SHARE = 0.15
"""The share of short lives that have transactions that nobody ends."""
FULL_AT_LAST_SHARE = 0.4
"""Among the lives with transactions that nobody ends, the share whose last fault is a full disk."""
SLOW_LOADS_SHARE = 0.15
"""The share of short lives that have coordinators that take long to load."""
SLOW_IMAGES_SHARE = 0.15
"""The share of short lives that have brokers that take long to apply a change of the metadata."""
IMPATIENT_SHARE = 0.2
"""The share of short lives that have producers that send a batch again before they have an
answer."""
CONTENDERS_SHARE = 0.25
"""The share of short lives that have clients that contend for a group and transactional ids."""
LONG_SHARE = 0.05
"""The share of long lives; README.md says what long and short lives find."""
MEMBERS_SHARE = 0.25
"""The share of short lives that have groups of several members."""
SWARM_SHARE = 0.3
"""The share of short lives that have few features, and much of each."""
PIECES_SHARES = (0.0, 0.0, 0.05, 0.5)
"""Shares of messages that arrive in pieces; each seed draws one of these shares."""
NARROW_SHARE = 0.2
"""The share of short lives that have brokers whose sockets accept few bytes at a time."""
UNJOURNALED_SHARE = 0.3
"""The share of short lives whose disks have no journal: a sync of a directory makes only the names
in this directory durable."""
MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
SLOW_MOVES_SHARE = 0.3
"""The share of the short lives with two log directories in which moves between them take
seconds."""


@dataclass
class Options:
    """The options of a run, drawn from a seed by `draw`; printed with a seed that fails."""

    directories: list[str] = field(default_factory=lambda: ["/d0"])
    settings: dict[str, str] = field(default_factory=dict)
    slow_share: float = 0.0                 # how often a clock reading takes longer than a slice
    slow_network: float = 0.0
    pieces_share: float = 0.0               # the share of messages that arrive in pieces
    slow_threads: float = 0.0
    cold_share: float = 0.0
    faults: list[str] = field(default_factory=list)     # in order
    rounds_seconds: float = 1.0
    producers: int = 2
    transactions: int = 1
    readers: int = 1
    admins: int = 1
    groups: int = 1
    lookers: int = 0
    own_keys: bool = False                  # a key for each producer, besides the common keys
    restless: float = 0.1                   # how often a member subscribes to something else
    wide: bool = False                      # transactions write to all partitions of a topic
    rivals: float = 0.0                     # the share of transactions with a competing producer
    metadata_snapshot_after: int = 20_000
    metadata_segment_bytes: int = 1 << 30
    scrub_after_seconds: float = 30.0       # from a start to the scrub; 30 s is the default
    # These values are for a long life; `cut_short` has others.
    endings: list[str] = field(default_factory=lambda: [*ENDINGS])
    thorough: bool = True                   # all data are read twice before and after each ending
    relief_pace: float = 0.02               # clients' mean pause, in seconds, after a full disk
    idle_seconds: tuple[float, ...] = (10.0, 60.0, 120.0)
    transaction_ms: tuple[int, ...] = (2000, 20_000)    # transaction timeouts
    settled_seconds: float = SETTLED_SECONDS
    members: bool = False                   # groups of several members
    contenders: bool = False                # clients of one group and one transactional id
    abandons: bool = False                  # transactions that no client ends
    small: bool = False                     # whether `small.py` may make some limits small
    impatient: bool = False                 # producers that do not wait for an answer
    slow_verdicts: bool = False             # whether coordinators answer leaders late
    slow_loads: bool = False                # whether coordinators take long to load
    slow_images: bool = False               # whether brokers apply metadata slowly
    guarded: bool = False                   # topics that ACLs guard
    narrow: bool = False                    # whether a broker's sockets accept few bytes at once
    journaled: bool = True                  # whether a directory's sync keeps all earlier renames
    slow_moves: bool = False                # whether moves between log directories take seconds
    swap_bytes: int = 4 << 20               # how much of a log a move may leave for its last step
    drawn_from: int = 0                     # the seed from which the options were drawn

    @classmethod
    def draw(cls, seed: int, long: bool | None = None) -> Options:
        """Draw all random options; `long` is drawn, too, if it is None."""
        life = random.Random(f"life {seed}")
        drawn = life.random() < LONG_SHARE
        options = cls.draw_long(seed)
        if not (drawn if long is None else long):
            options.cut_short(life)
            options.draw_slow_moves(random.Random(f"slow moves {seed}"))
        options.draw_late(seed)
        if options.abandons and life.random() < FULL_AT_LAST_SHARE:
            options.faults[-1] = "disk full"        # no restart follows, which would reset timers
        return options

    def draw_late(self, seed: int) -> None:
        """Draw the features that were added later, from generators of their own. Short lives with
        any number of brokers may have them."""
        self.drawn_from = seed
        chance = random.Random(f"contenders {seed}")
        self.contenders = self.small and chance.random() < CONTENDERS_SHARE
        apart = random.Random(f"coordinators {seed}")
        self.abandons = self.small and apart.random() < ABANDONS_SHARE
        self.slow_loads = self.small and apart.random() < SLOW_LOADS_SHARE
        self.impatient = self.small and apart.random() < IMPATIENT_SHARE
        images = random.Random(f"images {seed}")
        self.slow_images = self.small and images.random() < SLOW_IMAGES_SHARE
        names = random.Random(f"names {seed}")
        self.journaled = not self.small or names.random() >= UNJOURNALED_SHARE
        self.draw_refusals(random.Random(f"refusals {seed}"))
        self.draw_guarded(random.Random(f"guarded {seed}"))

    def draw_guarded(self, chance: random.Random) -> None:
        """Draw whether there are guarded topics."""
        if not self.small or chance.random() >= GUARDED_SHARE:
            return
        self.guarded = True
        self.slow_images = self.slow_images or chance.random() < SLOW_IF_GUARDED_SHARE
        self.settings["authorizer.class.name"] = AUTHORIZERS[0]
        self.settings["allow.everyone.if.no.acl.found"] = "true"

    def draw_refusals(self, chance: random.Random) -> None:
        """Draw whether REFUSED replaces one of the faults, or all of them if all are the same."""
        plain = [at for at, each in enumerate(self.faults) if self.is_plain(each)]
        if not self.small or chance.random() >= REFUSED_SHARE or not plain:
            return
        if len(set(self.faults)) == 1:
            self.faults = [REFUSED] * len(self.faults)
        else:
            self.faults[chance.choice(plain)] = REFUSED
        if chance.random() < PREALLOCATE_SHARE:
            self.settings["log.preallocate"] = "true"

    def is_plain(self, fault: str) -> bool:
        """Whether another fault may replace this one."""
        return fault in FAULTS

    def draw_slow_moves(self, chance: random.Random) -> None:
        """Draw whether moves between log directories take so long that other things happen
        meanwhile."""
        if len(self.directories) < 2 or chance.random() >= SLOW_MOVES_SHARE:
            return
        self.slow_moves, self.swap_bytes = True, 200
        self.settings[MOVE_RATE] = str(chance.choice((3000, 20_000)))
        self.settings["log.cleaner.backoff.ms"] = "100"
        self.admins = max(self.admins, 1)

    @classmethod
    def draw_long(cls, seed: int) -> Options:
        """Draw the options of a long life."""
        chance = random.Random(f"options {seed}")
        options = cls()
        if chance.random() < 0.5:
            options.directories = ["/d0", "/d1"]
        options.settings = {
            "num.partitions": "1",
            "log.segment.bytes": str(chance.choice([1 << 14, 4096, 1024])),
            "log.index.interval.bytes": str(chance.choice([4096, 256, 0])),
            "log.segment.delete.delay.ms": str(chance.choice([0, 1000, 20_000])),
            "log.retention.check.interval.ms": str(chance.choice([1000, 5000, 30_000])),
            "log.flush.offset.checkpoint.interval.ms": str(chance.choice([500, 5000, 60_000])),
            "log.cleaner.backoff.ms": str(chance.choice([500, 15_000])),
            "log.cleaner.min.cleanable.ratio": "0.01",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "2",
            "offsets.topic.segment.bytes": str(chance.choice([2048, 1 << 20])),
            "transaction.state.log.segment.bytes": str(chance.choice([2048, 1 << 20])),
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "num.recovery.threads.per.data.dir": str(chance.choice([1, 2])),
            "ottla.log.scrub.bytes.per.second": str(chance.choice([0, 1 << 20])),
            "log.message.timestamp.after.max.ms": str(1 << 60),
            "compression.type": chance.choice(["producer", "producer", "lz4", "gzip"]),
        }
        options.slow_share = chance.choice([0.0, 0.01, 0.2])
        options.slow_network = chance.choice([0.0, 0.0, 0.02])
        options.slow_threads = chance.choice([0.0, 0.05, 0.3])
        options.cold_share = chance.choice([0.0, 0.0, 0.3])
        count = chance.choice([1, 2, 3, 4])
        options.faults = [chance.choice(options.possible_faults()) for _ in range(count)]
        options.rounds_seconds = chance.choice([0.2, 0.5, 1.0])
        options.producers = chance.choice([1, 2, 3])
        options.transactions = chance.choice([0, 1, 2])
        options.readers = chance.choice([0, 1])
        options.admins = chance.choice([0, 1, 1, 2])
        options.groups = chance.choice([0, 1, 2])
        options.metadata_snapshot_after = chance.choice([0, 10, 20_000])
        options.metadata_segment_bytes = chance.choice([400, 1 << 30])
        options.widen(random.Random(f"wider options {seed}"))
        options.wide = random.Random(f"wide {seed}").random() < 0.2
        options.pieces_share = random.Random(f"pieces share {seed}").choice(PIECES_SHARES)
        return options

    def possible_faults(self) -> tuple[str, ...]:
        """The faults that are possible with this run's log directories."""
        if len(self.directories) > 1:
            return FAULTS
        return tuple(fault for fault in FAULTS if fault != "directory missing")

    def cut_short(self, life: random.Random) -> None:
        """Make this a short life. The faults stay. The parts that are similar in every run become
        shorter: work between faults, waits, and checks at the end."""
        self.thorough, self.relief_pace = False, 1.0
        self.rounds_seconds = life.choice([0.1, 0.2, 0.2, 0.3])
        self.endings = [*life.choice(SHORT_ENDINGS)]
        # A short life writes less, so segments must be smaller, and snapshots more frequent.
        if self.settings["log.segment.bytes"] == str(1 << 14):
            self.settings["log.segment.bytes"] = "2048"
        if self.metadata_snapshot_after < 20_000:
            self.metadata_snapshot_after -= 40
        if len(self.faults) == 1:
            self.faults.append(life.choice(self.possible_faults()))
        if life.random() < 0.8:
            self.idle_seconds, self.transaction_ms = (5.0, 20.0), (2000, 5000)
            self.settled_seconds = 8.0
        self.small = True
        self.members = life.random() < MEMBERS_SHARE
        if life.random() < SWARM_SHARE:
            self.swarm(life)
        self.narrow = life.random() < NARROW_SHARE

    def swarm(self, life: random.Random) -> None:
        """Have few features, and much of each: one fault again and again, and only some kinds of
        clients. An active feature can hide a defect that the
        other features would show."""
        self.faults = [life.choice(self.possible_faults())] * len(self.faults)
        self.producers = life.choice([1, 1, 4])
        self.transactions = life.choice([0, 1, 4])
        self.groups = life.choice([0, 0, 2])
        self.admins = life.choice([0, 1, 3])

    def widen(self, chance: random.Random) -> None:
        """Draw the features that were added later to the simulation of one broker."""
        self.lookers, self.own_keys = chance.choice([0, 1]), True
        self.restless, self.rivals = chance.choice([0.1, 0.01]), 0.1
        if chance.random() < 0.15:
            self.settings["transactional.id.expiration.ms"] = str(chance.choice([1000, 10_000]))
            self.settings["transaction.remove.expired.transaction.cleanup.interval.ms"] = "500"
        if chance.random() < 0.15:
            self.settings["offsets.retention.minutes"] = "1"
            self.settings["offsets.retention.check.interval.ms"] = str(chance.choice([500, 5000]))
        if chance.random() < 0.3:
            self.settings["log.cleaner.backoff.ms"] = "100"
