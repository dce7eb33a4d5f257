"""`ottla mirror`: copies topics and the offsets of groups from one cluster to another."""

from __future__ import annotations

import re
import sys
import time
from argparse import Namespace
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError, Refused, TimedOut, Unreachable
from ottla.client.similar_names import similar
from ottla.client.transport import Security
from ottla.tools.admin import groups, offsets, topics
from ottla.tools.admin.offsets import EARLIEST, LATEST, Place
from ottla.tools.admin.uuids import show_uuid
from ottla.tools.cli import mirror_topics
from ottla.tools.progress_line import ProgressLine
from ottla.tools.properties import read_client_properties
from ottla.tools.stream.client_settings import reason_with_code
from ottla.tools.stream.consumer import ConsumedRecord, Consumer, record_of
from ottla.tools.stream.mirror_progress import Progress
from ottla.tools.stream.writer import NotWritten, Writer
from ottla.tools.usage import WrongUsage
from ottla.wire.errors import ErrorCode
from ottla.wire.wording import counted

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
POLL_SECONDS = 0.5
REPORT_SECONDS = 10.0
KEEP_SECONDS = 3600.0
"""After this time, the progress of a partition is committed again, so that it does not expire."""
SETTLED_SECONDS = 1.0
"""A topic that is unknown before and after this time was deleted."""
CONNECT_SECONDS = 5.0
PRODUCER = {"linger.ms": "20", "compression.type": "lz4", "message.max.bytes": str(16 << 20)}


def mirror(options: Namespace) -> None:
    """Copies as the flags say; each cluster may have its own property file."""
    of_source = read_client_properties(options.from_config) if options.from_config else {}
    of_target = read_client_properties(options.to_config) if options.to_config else {}
    mirror_between(options, of_source, of_target)


def mirror_between(
    options: Namespace, of_source: Mapping[str, str], of_target: Mapping[str, str]
) -> None:
    """Copies between clusters with these client properties. The addresses in `--from` and `--to`
    take precedence over `bootstrap.servers`."""
    reading = options.source or of_source.get("bootstrap.servers", "")
    writing = options.to or of_target.get("bootstrap.servers", "")
    if not reading or not writing:
        raise WrongUsage("--from and --to are required: give the addresses of the two clusters")
    with connected(reading, of_source) as source, connected(writing, of_target) as target:
        run = Mirror(options, source, target)
        run.of_source, run.of_target = of_source, of_target
        run.prepare()
        if options.dry_run:
            for topic, copy in sorted(run.names.items()):
                print(f"would copy {topic} to {copy}", file=sys.stderr)
            return
        run.copy()


def connected(address: str, properties: Mapping[str, str]) -> ClusterClient:
    """A client of one of the two clusters."""
    security = Security.from_properties(properties)
    return ClusterClient(address, connect_seconds=CONNECT_SECONDS, security=security)


def pattern_of(text: str, flag: str) -> re.Pattern[str]:
    """Compiles a regular expression. Raises WrongUsage."""
    try:
        return re.compile(text)
    except re.error as wrong:
        raise WrongUsage(f"{flag} {text!r} is not a regular expression: {wrong}") from wrong


class Copied:
    """The result of sending a record: its offset in the target, or why it is not there."""

    def __init__(self) -> None:
        self.offset = -1
        self.failure: Any = None

    def done(self, failure: Any, message: Any) -> None:
        """The delivery callback that librdkafka calls."""
        self.failure = failure
        if failure is None:
            self.offset = message.offset()

    def at(self) -> int:
        """The record's offset in the target; call this after a flush. Raises ClientError, or
        NotWritten if the broker refused the record."""
        if self.failure is not None:
            refused = self.failure.code() > 0
            raise (NotWritten if refused else ClientError)(
                f"the target did not acknowledge a record: {reason_with_code(self.failure)}"
            )
        # After DUPLICATE_SEQUENCE_NUMBER, the record is in the target at an unknown offset.
        if self.offset < 0:
            raise ClientError(
                "the target answered that it already has the record that was sent, but not at which"
                " offset. Run the command again: it will find the offset"
            )
        return self.offset


class Mirror:
    """One run: consumer, producer, and the progress of each partition."""

    def __init__(self, options: Namespace, source: ClusterClient, target: ClusterClient) -> None:
        self.source, self.target, self.once = source, target, options.once
        self.wanted_topics, self.wanted_groups = options.topics or ".*", options.groups or ""
        self.fits = pattern_of(self.wanted_topics, "--topics").fullmatch
        self.groups = pattern_of(options.groups, "--groups").fullmatch if options.groups else None
        self.prefix = options.prefix or ""
        self.every = REPORT_SECONDS if options.report is None else options.report
        self.names: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        """The ids of the source's topics, by name."""
        self.left_out: set[str] = set()
        """Topics that are not copied. Those that match --topics were reported."""
        self.progress: dict[Place, Progress] = {}
        self.dry_run = options.dry_run
        self.group = ""
        self.carried: dict[tuple[str, Place], int] = {}
        """The offsets last translated for the target, by group and partition of the copy."""
        self.not_carried: dict[str, str] = {}
        """Why the offsets of a group could not be committed."""
        self.remembered: dict[Place, float] = {}
        """When the progress of each partition was last committed."""
        self.waiting: deque[tuple[Progress, int, Copied]] = deque()
        """Sent records whose result is not known yet, in order. Each entry has the progress of the
        record's partition, the record's offset in the source, and a place for the result."""
        self.writer: Writer
        self.of_source: Mapping[str, str] = {}
        self.of_target: Mapping[str, str] = {}
        """Properties of the clients, as in property files."""

    def prepare(self) -> None:
        """Determines the topics to copy. Unless this is a dry run, creates missing topics and
        partitions in the target."""
        self.source.refresh()
        self.target.refresh()
        if self.source.cluster_id == self.target.cluster_id and not self.prefix:
            raise ClientError("--from and --to are the same cluster: give the copies a --prefix")
        self.group = f"ottla-mirror-{self.source.cluster_id}{'-' * bool(self.prefix)}{self.prefix}"
        wanted = self.choose()
        if not wanted:
            names = [topic.name for topic in self.source.metadata().topics]
            near = similar(self.wanted_topics, names)
            raise ClientError(
                f"no topic of the source matches --topics {self.wanted_topics!r}{near}")
        if self.groups is not None:
            known = [listed.id for listed in groups.list_surely(self.source)]
            near = similar(self.wanted_groups, known)
            if near and not any(map(self.groups, known)):
                print("ottla mirror: no group of the source matches --groups"
                      f" {self.wanted_groups!r}{near}", file=sys.stderr)
        self.names = {name: self.prefix + name for name in wanted}
        if not self.dry_run:
            for name, count in wanted.items():
                self.make(name, count)

    def choose(self) -> dict[str, int]:
        """The topics of the source that are to be copied, and how many partitions they have."""
        back = self.copied_back()
        for name in sorted(filter(self.fits, back.keys() - self.left_out)):
            told = (f"group {back[name]} of the source shows that the topic is a copy from the"
                    " target")
            print(f"ottla mirror: {name} is skipped: {told}", file=sys.stderr)
        self.left_out |= back.keys()
        metadata = self.source.metadata().topics
        self.ids = {
            topic.name: show_uuid(topic.topic_id) for topic in metadata if any(topic.topic_id)
        }
        return {
            topic.name: len(topic.partitions)
            for topic in metadata
            if not topic.is_internal
            and self.fits(topic.name)
            and not (self.prefix and topic.name.startswith(self.prefix))
            and topic.name not in back
        }

    def copied_back(self) -> dict[str, str]:
        """Topics of the source that a mirror in the other direction writes, each with the group of
        that mirror. If they were copied, records would go back and forth for ever."""
        prefix = f"ottla-mirror-{self.target.cluster_id}"
        return {
            topic: listed.id
            for listed in groups.list_surely(self.source)
            if listed.id == prefix or listed.id.startswith(f"{prefix}-")
            for topic, _ in groups.committed(self.source, listed.id)
        }

    def make(self, name: str, count: int) -> None:
        """Create one topic in the target, or give it the partitions that it lacks."""
        for line in mirror_topics.make(self.source, self.target, name, self.names[name], count):
            print(f"ottla mirror: {line}", file=sys.stderr)

    def copy(self) -> None:
        """With --once, copy what the source has at the start; without --once, copy for ever."""
        places = list(offsets_of(self.source, list(self.names)))
        self.resume(places)
        finished = False
        while not finished:
            # EARLIEST: if the next record has expired, continue with the first one that exists.
            of_source = {**self.of_source, "isolation.level": "read_committed"}
            consumer = Consumer(self.source, of_source, start=EARLIEST)
            try:
                self.writer = Writer(
                    self.target, {**PRODUCER, **self.of_target, "enable.idempotence": "true"})
                finished = self.loop(consumer)
            finally:
                self.end_sending()
                consumer.close()
                self.give_up()

    def end_sending(self) -> None:
        """Sends queued records. Ignores an error, since `give_up` checks each record's result."""
        try:
            self.writer.close()
        except ClientError:
            pass

    def resume(self, places: list[Place]) -> None:
        """Determines where each partition continues, and commits this progress."""
        known = commits(self.target, self.group)
        first = offsets.required(self.source, dict.fromkeys(places, EARLIEST))
        last = offsets.required(self.source, dict.fromkeys(places, LATEST))
        copies = {place: (self.names[place[0]], place[1]) for place in places}
        ends = offsets.required(self.target, dict.fromkeys(copies.values(), LATEST), created=True)
        for place in places:
            end = ends[copies[place]]
            offset, metadata = known.get(copies[place], (-1, ""))
            found = Progress.restored(place, offset, metadata) if offset >= 0 else None
            if found is not None and self.is_another(found):
                print(f"ottla mirror: {place[0]}-{place[1]}: the topic was created again in the"
                      " source. All records of the new topic are copied", file=sys.stderr)
                found = None
            if found is None:
                found = Progress(place, first[place], end)
            elif found.torn:
                found.target, found.torn = end, False
                print(f"ottla mirror: {place[0]}-{place[1]}: copied again from offset"
                      f" {found.source} on, because the target refused a record. If the target"
                      " accepted later records, it will have them twice", file=sys.stderr)
            elif end >= found.target:
                found.skip = end - found.target
            else:
                raise ClientError(
                    f"{copies[place][0]}-{place[1]} ends at offset {end} in the target, but "
                    f"the copy had reached offset {found.target}: records were deleted. "
                    f"Delete the group {self.group} in the target to copy everything again"
                )
            found.topic_id = self.ids.get(place[0], "")
            self.progress[place] = found
            self.within(found, first[place], last[place])
        self.remember(places)  # the next run finds its position by this progress

    def is_another(self, found: Progress) -> bool:
        """Whether the source's topic was deleted and created again, so that all records are new."""
        now = self.ids.get(found.place[0], "")
        return bool(found.topic_id and now and found.topic_id != now)

    def within(self, found: Progress, first: int, last: int) -> None:
        """Skips records that have expired in the source. Raises ClientError if the source ends
        before the copied offset."""
        name = f"{found.place[0]}-{found.place[1]}"
        if found.source > last:
            raise ClientError(
                f"{name} ends at offset {last} in the source, but the copy had reached offset"
                f" {found.source}: was the topic deleted and created again? Delete the"
                f" group {self.group} in the target to copy everything again"
            )
        if found.source < first:
            print(f"ottla mirror: {name}: the source no longer has the records from offset"
                  f" {found.source} to {first - 1}", file=sys.stderr)
            found.expire(first)

    def loop(self, consumer: Consumer) -> bool:
        """Copies records. With --once, returns True when everything is copied. Returns False when
        partitions were added or dropped, for which the caller opens new clients."""
        ends = self.ends()
        consumer.assign({place: found.source for place, found in self.progress.items()})
        reported = time.monotonic()
        begun = {place: found.source for place, found in self.progress.items()}
        due = sum(max(0, end - begun[place]) for place, end in ends.items())
        line = ProgressLine(due if self.once else 0)
        while True:
            if batch := consumer.poll(POLL_SECONDS):
                self.remember(self.send(consumer, batch))
            at = consumer.positions
            finished = self.once and all(at[place] >= end for place, end in ends.items())
            line.reach(sum(found.source - begun[place] for place, found in self.progress.items()))
            if finished or time.monotonic() - reported >= self.every:
                line.clear()
                if self.drop_deleted():
                    return False
                self.carry_groups()
                report(self.source, self.names, self.progress)
                reported = time.monotonic()
                if not self.once:
                    self.keep(reported)
                    if self.renew():
                        return False
            if finished:
                return True

    def ends(self) -> dict[Place, int]:
        """The end of each partition of the source, before open transactions."""
        while True:
            try:
                return offsets.required(
                    self.source, dict.fromkeys(self.progress, LATEST), committed=True)
            except Refused as refused:
                if refused.code != UNKNOWN or not self.drop_deleted():
                    raise

    def drop_deleted(self) -> bool:
        """Drops topics that were deleted in the source; returns whether there are any."""
        gone = deleted(self.source, self.names)
        for name in sorted(gone):
            print(f"ottla mirror: {name} is no longer copied: it was deleted in the source",
                  file=sys.stderr)
            del self.names[name]
        for place in [place for place in self.progress if place[0] in gone]:
            del self.progress[place]
            self.remembered.pop(place, None)
        return bool(gone)

    def renew(self) -> bool:
        """Add topics and partitions that are new in the source; returns whether there are any."""
        places = []
        try:
            chosen = self.choose()
        except (Refused, Unreachable, TimedOut):    # try again at the next report
            return False
        for name, count in chosen.items():
            fresh = [
                place for place in ((name, index) for index in range(count))
                if place not in self.progress or self.is_another(self.progress[place])
            ]
            if not fresh:
                continue
            known = name in self.names
            self.names[name] = self.prefix + name
            try:
                self.make(name, count)
            except Refused as refused:      # continue with the other topics
                if name not in self.left_out:
                    print(f"ottla mirror: {name} is skipped: {refused}", file=sys.stderr)
                    self.left_out.add(name)
                if not known:
                    del self.names[name]
                continue
            places += fresh
        try:
            if places:
                self.resume(places)
        except Refused as refused:
            if refused.code != UNKNOWN or not deleted(self.source, {name for name, _ in places}):
                raise
            # A topic was deleted meanwhile. The next report adds the others.
            for place in places:
                self.progress.pop(place, None)
                self.remembered.pop(place, None)
            copied = {topic for topic, _ in self.progress}
            self.names = {name: copy for name, copy in self.names.items() if name in copied}
            return False
        return bool(places)

    def keep(self, now: float) -> None:
        """Commits old progress again, because committed offsets expire, by default after a week."""
        old = [place for place, at in self.remembered.items() if now - at >= KEEP_SECONDS]
        if old:
            self.remember(old)

    def send(self, consumer: Consumer, batch: list[Any]) -> set[Place]:
        """Sends records, each to the partition of the same number, and waits until all are
        acknowledged. Returns the partitions whose progress has changed."""
        moved = set[Place]()
        for message in batch:
            place, offset = (message.topic(), message.partition()), message.offset()
            if not consumer.is_next(place, offset):
                continue
            if message.error() is not None:         # the partition's end
                consumer.advance(place, offset)
                continue
            consumer.advance(place, offset + 1)
            moved.add(place)
            progress = self.progress[place]
            if progress.skip:
                progress.skip -= 1
                progress.passed(offset, progress.target)
            else:
                self.waiting.append((progress, offset, self.send_one(record_of(message))))
        self.settle()
        return moved

    def send_one(self, record: ConsumedRecord) -> Copied:
        """Queues one record; the result gets the offset in the target later."""
        copied = Copied()
        stamp = record.timestamp if record.timestamp >= 0 else None
        if stamp == 0:          # `Writer` sends this record at once, without its queue
            self.settle()       # first the earlier records; raises if one of them was refused
        self.writer.send(
            self.names[record.topic], record.key, record.value, record.headers, record.partition,
            stamp, copied.done,
        )  # fmt: skip
        return copied

    def settle(self) -> None:
        """Wait until all sent records are acknowledged. Raises the error of the first record that
        has no known offset in the target."""
        self.writer.flush()
        while self.waiting:
            found, offset, copied = self.waiting[0]
            found.passed(offset, copied.at())
            found.copied += 1
            self.waiting.popleft()

    def give_up(self) -> None:
        """After a failure, saves which partitions of the target have refused a record. The end
        offset of such a partition does not tell the next run which records were copied."""
        failed = set[Place]()
        for found, offset, copied in self.waiting:
            try:
                at = copied.at()
                if found.place not in failed:
                    found.passed(offset, at)
            except ClientError as error:
                failed.add(found.place)
                found.torn |= isinstance(error, NotWritten)
        torn = [place for place in failed if self.progress[place].torn]
        try:
            if torn:
                self.remember(torn)
        except ClientError:             # the earlier error is the one to report
            print("ottla mirror: the target refused a record, and the mirror could not save this"
                  " fact in the target. So the next run would skip the record. To copy everything"
                  f" again instead, first delete the group {self.group} in the target",
                  file=sys.stderr)

    def remember(self, places: Iterable[Place]) -> None:
        """Commits the progress of these partitions."""
        changed = [self.progress[place] for place in places]
        self.remembered |= dict.fromkeys([found.place for found in changed], time.monotonic())
        copies = [(self.names[found.place[0]], found.place[1]) for found in changed]
        groups.commit(
            self.target,
            self.group,
            dict(zip(copies, [found.source for found in changed], strict=True)),
            dict(zip(copies, [found.metadata() for found in changed], strict=True)),
            created=True,
        )

    def carry_groups(self) -> None:
        """Commit the translated offsets of the groups that are carried over."""
        if self.groups is None:
            return
        for listed in groups.list_groups(self.source):
            if not self.groups(listed.id) or listed.id.startswith("ottla-mirror-"):
                continue
            try:
                self.carry(listed.id)
            except Refused as refused:  # for example, the group is active in the target
                if self.not_carried.get(listed.id) != str(refused):
                    told = f"the offsets of group {listed.id} were not copied: {refused}"
                    print(f"ottla mirror: {told}", file=sys.stderr)
                    self.not_carried[listed.id] = str(refused)
            else:
                self.not_carried.pop(listed.id, None)

    def carry(self, group: str) -> None:
        """Commit the offsets of a group in the target, except for partitions where the group's
        consumers in the target have committed higher offsets. Raises Refused."""
        changed: dict[Place, int] = {}
        for place, (offset, _) in groups.committed(self.source, group).items():
            found = self.progress.get(place)
            copied = found.translate(offset) if found else None
            if copied is None:
                continue
            copy = (self.names[place[0]], place[1])
            if self.carried.get((group, copy)) != copied:
                changed[copy] = copied
        if not changed:
            return
        there = groups.committed(self.target, group)
        forward = {}
        for copy, offset in changed.items():
            now = there[copy][0] if copy in there else -1
            if now < offset or now == self.carried.get((group, copy)):
                forward[copy] = offset
        if forward:
            groups.commit(self.target, group, forward, created=True)
        self.carried |= {(group, copy): offset for copy, offset in changed.items()}


def report(
    source: ClusterClient, names: Iterable[str], progress: Mapping[Place, Progress]
) -> None:
    """Prints one line per topic: the copied records, and the target's lag."""
    ends = source.with_retries(lambda: offsets.ends(source, progress), again=True)
    for topic in sorted(names):
        mine = [found for place, found in progress.items() if place[0] == topic]
        copied = sum(found.copied for found in mine)
        known = [(ends[found.place].known, found.source) for found in mine]
        lag = sum(max(0, end - at) for end, at in known if end is not None)
        if failed := [ends[found.place].error for found in mine if ends[found.place].error]:
            print(f"ottla mirror: {topic}: the lag of {counted(len(failed), 'partition')} is"
                  f" unknown: {Refused(failed[0])}", file=sys.stderr)
        shown = counted(copied, "record")
        print(f"{topic}: {shown} copied, lag {lag}", file=sys.stderr, flush=True)


def offsets_of(cluster: ClusterClient, names: list[str]) -> list[Place]:
    """The partitions of topics."""
    return sorted(topics.leaders(cluster, names))


def deleted(cluster: ClusterClient, names: Iterable[str]) -> set[str]:
    """Those topics that the cluster no longer has. They are looked up twice, since a broker that
    has just started may not know every topic yet."""
    gone = _unknown(cluster, list(names))
    if gone:
        time.sleep(SETTLED_SECONDS)
        gone = _unknown(cluster, sorted(gone))
    return gone


def _unknown(cluster: ClusterClient, names: list[str]) -> set[str]:
    _, errors = cluster.with_retries(lambda: topics.leaders_or_errors(cluster, names), again=True)
    return {name for name, code in errors.items() if code == UNKNOWN}


def commits(cluster: ClusterClient, group: str) -> dict[Place, tuple[int, str]]:
    """Committed offsets with their metadata."""
    return groups.committed_metadata(cluster, group)
