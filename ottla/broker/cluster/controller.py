"""The controller's side of a member: it stands for election and decides which brokers are live.

The work is done in *looks*. A look compares ZooKeeper with the image and makes the decisions that
follow from the differences. Watches, reconnects and timers start a look and do nothing else. Only
one look runs at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from ottla.broker.cluster.cluster_log import ClusterLog
from ottla.broker.cluster.continuity import lasting
from ottla.broker.cluster.elections import Elections
from ottla.broker.cluster.feature_levels import default_levels
from ottla.broker.cluster.leaderless import tell_leaderless
from ottla.broker.cluster.metadata_log import NotController
from ottla.broker.cluster.recent_ends import RecentEnds
from ottla.log.storage.run_record import SAID
from ottla.replication.controller.adoption import end_adoption, outdo_logs, report
from ottla.replication.controller.brokers import (
    PARTITIONS_AT_A_TIME,
    broker_registered,
    brokers_gone,
    controller_elected,
    distrust,
    in_sync_everywhere,
    preferred_leaders,
    repair,
)
from ottla.replication.controller.configs import adopt_min_isr
from ottla.replication.controller.elections import unclean_elections
from ottla.replication.controller.features import Levels, finalise_features
from ottla.replication.coordination import (
    Coordination,
    CoordinationError,
    NoNode,
    SessionState,
    Watch,
    each,
)
from ottla.replication.election import Election, Term
from ottla.replication.metadata import BackupAdopting, BrokerImage, MetadataImage
from ottla.replication.records import UnreadableMetadata
from ottla.replication.registration import (
    IDS,
    Registration,
    UnreadableRegistration,
    decode,
    path_of,
)
from ottla.wire.errors import ProtocolError
from ottla.wire.marks import reached
from ottla.wire.wording import counted

log = logging.getLogger("ottla.controller")

SNAPSHOT_LOOK_SECONDS = 5.0
RETURN_LOOK_SECONDS = 5.0
NODE_DIGITS_MAX = 10
LOOK_AGAIN_SECONDS = 1.0
"""The delay after a failed look while ZooKeeper is connected."""


Registered = dict[int, tuple[BrokerImage, Registration]]
"""For each node id, the broker's entry for the image and its registration in ZooKeeper. The entry
is made from the registration."""


def not_there(image: MetadataImage, there: Registered) -> dict[int, int]:
    """The brokers of the image whose registration has ended, with their epochs."""
    return {
        node_id: known.epoch for node_id, known in image.brokers.items()
        if node_id not in there or there[node_id][0].incarnation != known.incarnation
    }


class Controller:
    """A member's candidacy for the office of controller, and its term.

    `elections` runs the elections in which replicas are asked how long their logs are. `min_isr`
    is the value of min.insync.replicas in this broker's file; the value of the first controller
    becomes the cluster-wide value.
    Leadership returns to preferred replicas every `rebalance_seconds`, or never if that is None.
    `brokers_changed` is called with the nodes to watch for failure: the controller watches all
    brokers, all other brokers watch only the controller.
    """

    def __init__(
        self,
        coordination: Coordination,
        metadata: ClusterLog,
        election: Election,
        elections: Elections,
        min_isr: int,
        rebalance_seconds: float | None,
        brokers_changed: Callable[[list[int]], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.coordination, self.metadata, self.election = coordination, metadata, election
        self.elections, self.min_isr = elections, min_isr
        self.rebalance_seconds, self.loop = rebalance_seconds, loop
        self.brokers_changed = brokers_changed
        self.refused_at: dict[int, float] = {}
        self.fencing = 0
        """How many brokers are being declared gone because they refuse connections."""
        self.looking: asyncio.Task[None] | None = None
        self.news = False
        self.upkeep: list[asyncio.Task[None]] = []
        """The controller's periodic tasks, which run during its term."""
        self.unclean_elections = 0
        """How many unclean elections this broker has noticed as the controller."""
        self.closed = False
        self.returned: set[int] = set()
        """Brokers that have registered, and are not known to be in sync yet."""
        self.features: Mapping[int, Levels] = {}
        """The levels of features that each registered broker's code supports."""
        self.told_adopting: BackupAdopting | None = None
        """The last logged state of the adoption of a backup."""
        self.deposing = 0
        """The epoch of a controller that refuses connections, and that this broker is to replace;
        0 for none."""
        self.recent_ends = RecentEnds(coordination, metadata, loop)
        metadata.deposed = self.deposed
        metadata.subscribe(self._follow)
        coordination.listen(self._session_changed)

    def look(self) -> None:
        """Something may have changed: compare ZooKeeper with the image. Also called by watches."""
        self.news = True
        if self.looking is None and not self.closed:
            self.looking = self.loop.create_task(self._look())

    async def _look(self) -> None:
        try:
            while self.news and not self.closed:
                self.news = False
                await self._look_once()
        except CoordinationError as error:
            # A reconnect starts another look. If the connection did not break, this timer starts
            # it.
            if self.coordination.state is SessionState.CONNECTED:
                log.info("controller: %s", error)
                self.loop.call_later(LOOK_AGAIN_SECONDS, self.look)
        except ProtocolError as error:
            log.info("controller: %s", error)
            self.loop.call_later(LOOK_AGAIN_SECONDS, self.look)
        except UnreadableMetadata as error:
            self.metadata.failed(str(error))
        except Exception:
            log.exception("controller: an unexpected error; trying again")
            self.loop.call_later(LOOK_AGAIN_SECONDS, self.look)
        finally:
            if self.looking is asyncio.current_task():
                self.looking = None

    async def _look_once(self) -> None:
        holder = await self.election.holder(self.look)
        if holder is None:
            term = await self.election.contest()
            if term is not None:
                await self._take_office(term)
        elif holder.epoch == self.deposing:
            reached("a controller that refuses connections was deposed")
            self.deposing = 0
            term = await self.election.contest(holder)
            if term is not None:
                await self._take_office(term)
                await self._fence(holder.node_id, holder.incarnation)
        elif holder.session_id == self.coordination.session_id:
            if self.metadata.term is None:
                # This broker has ended its own term, for example because it does not know whether
                # a write succeeded. Only a later term reveals that, so let a later term begin.
                reached("a controller resigns, as a write of its earlier term is unclear")
                await self.election.resign()
                self.news = True
        elif self.metadata.term is not None:
            self.deposed()
        if self.metadata.is_controller:
            await self._look_at_brokers()

    async def _take_office(self, term: Term) -> None:
        await self.coordination.sync()
        await self.metadata.read_to_end()
        self.metadata.begin_term(term)
        node_id = self.election.node_id
        try:
            await self.metadata.decide_first(controller_elected, node_id, term.epoch)
            if not self.metadata.decided.features:
                # Only a new cluster gets the newest levels: in an existing cluster, the code of
                # some brokers may not support them.
                await self.metadata.decide_first(finalise_features, default_levels())
            await self.metadata.decide_first(adopt_min_isr, self.min_isr)
            while await self.metadata.decide_first(repair):
                pass
            # Read the registrations before clients are served: raising a feature to a level that a
            # broker does not support would end that broker.
            await self._take_reports(await self._registered(), self.metadata.decide_first)
        except BaseException:
            if self.metadata.term is term:
                self.metadata.end_term()            # the next look resigns the office
            raise
        self.metadata.is_controller = self.metadata.term is term
        if self.metadata.is_controller:
            log.info("broker %d is the controller, in epoch %d", node_id, term.epoch)
            self._begin_upkeep()

    async def _take_reports(self, there: Registered, decide: Callable[..., Any]) -> None:
        """Record the reports of brokers that adopt a restored backup, before those brokers are
        registered."""
        image = self.metadata.decided
        new = {
            node_id: found.held for node_id, (broker, found) in sorted(there.items())
            if (known := image.last_known(node_id)) is None or known.epoch != broker.epoch
        }
        if image.adopting is None and not any(held is not None for held in new.values()):
            return
        # Brokers that are live only in the backup must not lead, nor count as live.
        await decide(brokers_gone, not_there(image, there))
        while await decide(repair):
            pass
        for node_id, held in new.items():
            await decide(report, node_id, held)

    async def _end_adoption(self) -> None:
        """Raise leader epochs and producer ids above all reported ones, once no broker's report is
        awaited any more."""
        adopting = self.metadata.decided.adopting
        if adopting is None:
            return
        if adopting.awaited:
            if adopting == self.told_adopting:
                return
            self.told_adopting = adopting
            log.warning(
                "ZooKeeper was restored from a backup: no partition is served until brokers %s have"
                " started, since their logs may have higher leader epochs and producer ids than the"
                " backup. If a broker will not come back, remove it with `kafka-cluster unregister"
                " --id N`",
                list(adopting.awaited),
            )
            return
        for name in list(self.metadata.decided.topics):
            first = 0
            while await self.metadata.decide(outdo_logs, name, first):
                first += PARTITIONS_AT_A_TIME
        reached("a restored backup was adopted")
        await self.metadata.decide(end_adoption)
        await self._repair()
        log.warning(
            "the metadata restored from a backup of ZooKeeper are in use: partitions are served"
            " again, with leader epochs and producer ids higher than any in the brokers' logs"
        )

    def _session_changed(self, state: SessionState) -> None:
        lost = state is not SessionState.CONNECTED
        if lost and self.metadata.term is not None and not self.closed:
            self.deposed()

    def deposed(self) -> None:
        """This broker is no longer the controller, or does not know whether it is."""
        if self.metadata.term is not None:
            reached("a controller was deposed")
            log.warning("broker %d is no longer the controller", self.election.node_id)
        self.metadata.end_term()
        self.returned.clear()
        self.brokers_changed([])
        self._end_upkeep()
        looking = self.looking
        if looking is not None and looking is not asyncio.current_task(self.loop):
            # The look may wait for a write whose outcome only a later term reveals. Cancel the
            # look, so that another look can resign: no later term begins while this session holds
            # the office of controller.
            reached("a controller was deposed amid a look")
            looking.cancel()
            self.looking = None
        self.look()

    async def _registered(self, watch: Watch | None = None) -> Registered:
        """The brokers that are registered in ZooKeeper, and what their code supports."""
        found_there = await self.coordination.children(IDS, watch)
        names = [n for n in found_there if len(n) <= NODE_DIGITS_MAX and n.isdecimal()]
        answers = await each([self.coordination.get(path_of(int(name))) for name in names])
        there: Registered = {}
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, NoNode):
                continue                            # the broker has gone; another look follows
            if isinstance(answer, Exception):
                raise answer
            data, stat = answer
            try:
                registration = decode(int(name), data)
                there[int(name)] = registration.image(stat.czxid), registration
            except UnreadableRegistration as error:
                log.error("%s", error)
        self.features = {
            node_id: registration.features for node_id, (_, registration) in there.items()
        }
        return there

    async def _look_at_brokers(self) -> None:
        """Decide what follows from the registrations in ZooKeeper: which brokers are gone, and
        which are new."""
        there = await self._registered(self.look)
        gone = not_there(self.metadata.decided, there)
        await self._gone(gone, "its session with ZooKeeper has ended")
        await self._take_reports(there, self.metadata.decide)
        await self._end_adoption()
        for node_id, (broker, found) in sorted(there.items()):
            known = self.metadata.decided.last_known(node_id)
            if known is not None and known.epoch == broker.epoch:
                continue                            # registered already, or declared gone
            if self.fencing:
                # The removal of the former process may be incomplete. Complete it first: otherwise
                # the new process would lead the remaining partitions in the same leader epoch.
                reached("a broker registers while its former process is declared gone")
                await self._repair()
            trust = found.stop, found.lost, found.held is not None
            while await self.metadata.decide(distrust, broker, *trust):
                pass
            if await self.metadata.decide(broker_registered, broker, *trust):
                await self._repair()
            log.info(
                "broker %d is registered with broker epoch %d; %s",
                node_id, broker.epoch,
                f"{counted(len(found.lost), 'log is', 'logs are')} lost" if found.lost
                else SAID[found.stop],
            )
            self.returned.add(node_id)
        self.brokers_changed(sorted(self.metadata.decided.brokers))

    async def _gone(self, epochs: Mapping[int, int], reason: str) -> None:
        for node_id, epoch in epochs.items():
            if node_id in self.metadata.decided.leaving:
                log.info("broker %d with broker epoch %d has stopped", node_id, epoch)
            else:
                log.warning("broker %d with broker epoch %d is gone: %s", node_id, epoch, reason)
        if epochs and await self.metadata.decide(brokers_gone, epochs):
            await self._repair()

    async def _repair(self) -> None:
        while await self.metadata.decide(repair):
            pass

    def refused(self, node_id: int) -> None:
        """Handle a broker whose connection broke and that refuses new connections: its process
        seems to have ended, while its session has not. If this broker is the controller, it
        declares that broker gone. If that broker is the controller, this broker deposes it. This
        happens at most once in a session timeout for each broker. If the other broker is running
        after all, it registers again when it reads that it was declared gone."""
        broker = self.metadata.decided.brokers.get(node_id)
        if broker is None or node_id == self.election.node_id or self.closed:
            return
        now, every = self.loop.time(), self.coordination.session_timeout_ms / 1000
        if now - self.refused_at.get(node_id, -every) < every:
            return
        self.refused_at[node_id] = now
        reached("a broker refused a connection and is suspected")
        if self.metadata.is_controller:
            self.loop.create_task(self._fence(node_id, broker.incarnation))
        elif self.metadata.decided.controller_id == node_id:
            # Keep the epoch and not only the node id: before the next look, the same node may be
            # elected again in a later epoch.
            self.deposing = self.metadata.decided.controller_epoch
            self.look()

    async def _fence(self, node_id: int, incarnation: str) -> None:
        """Declare a broker gone although it still has a session."""
        broker = self.metadata.decided.brokers.get(node_id)
        if broker is None or broker.incarnation != incarnation:
            return
        self.fencing += 1
        try:
            await self._gone({node_id: broker.epoch}, "it refuses connections")
        except NotController:
            pass                                    # the next controller notices the refusals, too
        finally:
            self.fencing -= 1

    def _follow(self, old: MetadataImage, new: MetadataImage, topics: Collection[str]) -> None:
        """The metadata have changed. The controller counts unclean elections, and looks again if an
        adoption waits for no more brokers. Other brokers keep a connection to the controller, to
        notice its failure."""
        if self.metadata.is_controller:
            self.unclean_elections += unclean_elections(old, new, topics)
            if new.adopting is not None and not new.adopting.awaited and (
                old.adopting is not None and old.adopting.awaited
            ):
                self.look()                         # all awaited brokers have reported
        if not self.metadata.is_controller and not self.closed and (
            new.controller_id != old.controller_id or new.brokers is not old.brokers
        ):
            self.brokers_changed([new.controller_id] if new.controller_id in new.brokers else [])

    def _begin_upkeep(self) -> None:
        """Start the controller's periodic tasks."""
        self._end_upkeep()
        works: list[Callable[[], Awaitable[None]]] = [
            self._snapshots, partial(tell_leaderless, lambda: self.metadata.decided),
            self.elections.run, self.recent_ends.run,
        ]
        if self.rebalance_seconds is not None:
            works.append(partial(self._rebalance, self.rebalance_seconds))
        self.upkeep = [self.loop.create_task(lasting(work)) for work in works]

    def _end_upkeep(self) -> None:
        for task in self.upkeep:
            task.cancel()
        self.upkeep = []

    async def _rebalance(self, every: float) -> None:
        """Return leadership to preferred replicas: regularly, and soon after a returning broker is
        in sync in all of its partitions."""
        due = self.loop.time() + every
        with suppress(NotController):
            while True:
                await asyncio.sleep(min(RETURN_LOOK_SECONDS, every))
                image = self.metadata.decided
                back = {node for node in self.returned if in_sync_everywhere(image, node)}
                if not back and self.loop.time() < due:
                    continue
                due = self.loop.time() + every
                self.returned -= back
                while moved := await self.metadata.decide(preferred_leaders):
                    log.info(
                        "%s led by the preferred leader again",
                        counted(moved, "partition is", "partitions are"),
                    )

    async def _snapshots(self) -> None:
        """Write snapshots, so that a start has few entries to read."""
        store = self.metadata.store
        while (term := self.metadata.term) is not None:
            await asyncio.sleep(SNAPSHOT_LOOK_SECONDS)
            image = self.metadata.decided
            try:
                if await store.wants_snapshot(image):
                    await store.write_snapshot(image, term.version)
                    reached("a metadata snapshot was written")
                    log.info("metadata: a snapshot up to entry %d was written", image.entry)
            except UnreadableMetadata as error:
                self.metadata.failed(str(error))
            except CoordinationError as error:
                log.info("metadata: a snapshot could not be written: %r", error)

    async def close(self) -> None:
        """Stop standing for election."""
        self.closed = True
        self._end_upkeep()
        if self.looking is not None:
            self.looking.cancel()
            await asyncio.wait([self.looking])
        self.metadata.end_term()
