"""A broker's registrations in its cluster: the first one, and later ones.

A broker registers again after its session with ZooKeeper has ended, or after the cluster has
declared it gone. In both cases it gets a new broker epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.broker.cluster.last_run import FoundLogs, judge
from ottla.broker.cluster.recent_ends import SESSION_LASTS
from ottla.log.storage import run_record
from ottla.log.storage.log_directory import StorageRefused
from ottla.replication.coordination import (
    ConnectionLost,
    CoordinationError,
    Delete,
    NoNode,
    NotConnected,
    SessionState,
)
from ottla.replication.metadata import Endpoint, MetadataImage
from ottla.replication.records import UnreadableMetadata
from ottla.replication.registration import (
    DuplicateBroker,
    Registration,
    UnreadableRegistration,
    path_of,
    register,
)
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from ottla.broker.cluster.cluster_session import ClusterSession
    from ottla.broker.cluster.controller import Controller
    from ottla.broker.cluster.run_records import RunRecords
    from ottla.broker.settings.config import BrokerConfig
    from ottla.log.files.disk import Disk

log = logging.getLogger("ottla.member")

REGISTER_AGAIN_SECONDS = 1.0


class Registrar:
    """Keeps this process registered, from `register` to `close`."""

    def __init__(
        self, config: BrokerConfig, disk: Disk, session: ClusterSession, controller: Controller,
        runs: RunRecords, loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.config, self.disk, self.loop = config, disk, loop
        self.session, self.controller, self.runs = session, controller, runs
        self.node_id, self.incarnation = session.node_id, session.incarnation
        self.metadata, self.coordination = session.metadata, session.coordination
        self.registration: Registration | None = None
        self.registering: asyncio.Task[None] | None = None
        self.removed = False
        """Whether the cluster has removed this process, which then has to register in a new
        epoch."""
        self.was_seen = False
        """Whether this process has been registered in some image so far."""
        self.closed = False
        self.coordination.listen(self._session_changed)
        self.metadata.subscribe(self._follow)

    # The first registration

    async def register(
        self, endpoints: Iterable[tuple[str, str, int]], found: FoundLogs
    ) -> None:
        """Register this broker, with what its start has found. Returns once the image has this
        broker, since only then can it lead.

        Raises StorageRefused if another broker has this id, or ZooKeeper does not answer.
        """
        known = self.metadata.decided.last_known(self.node_id)
        last = judge(self.disk, found, known, self.session.adopts)
        self.runs.begin(last.away, found.directories.values())
        if last.stop == run_record.MACHINE:
            await self._outlast_others()
        self.registration = Registration(
            self.node_id, self.incarnation, tuple(Endpoint(*each) for each in endpoints),
            tuple(found.directories), self.config.broker_rack, last.stop, self.session.features,
            last.lost, found.held,
        )
        try:
            await self._register_once_free(self.registration)
        except (
            DuplicateBroker, UnreadableRegistration, UnreadableMetadata, CoordinationError
        ) as error:
            raise StorageRefused(str(error)) from error
        self.metadata.read_on()
        self.controller.look()
        await self.metadata.until(
            lambda image: image.is_registered(self.node_id, self.incarnation)
        )
        self.registration = replace(self.registration, held=None)
        with suppress(CoordinationError):
            await self.session.remember()

    async def _register_once_free(self, registration: Registration) -> None:
        """Register. If a process with this node id and other log directories has a session, wait
        for the session's end. That process may be an earlier one of this broker, from before its
        disk was replaced. If the connection to ZooKeeper breaks, wait for the next one.

        Waits at most as long as the session of a dead process lasts, or
        initial.broker.registration.timeout.ms if that is longer. After this time, raises
        DuplicateBroker if the other process still has a session, and NotConnected or ConnectionLost
        if there is no connection to ZooKeeper.
        """
        timeout_ms = self.coordination.session_timeout_ms
        seconds = max(
            self.config.initial_broker_registration_timeout_ms, timeout_ms * SESSION_LASTS
        ) / 1000
        deadline = self.loop.time() + seconds
        waits = lost = False
        while True:
            try:
                await register(self.coordination, registration)
                return
            except DuplicateBroker as error:
                reached("another process still has the node id")
                if self.loop.time() >= deadline:
                    raise
                if not waits:
                    log.warning(
                        "%s. If the other broker no longer runs, its session with ZooKeeper ends"
                        " soon. This broker waits up to %.0f s for that session to end",
                        error, seconds)
                waits = True
            except (NotConnected, ConnectionLost) as error:
                if self.loop.time() >= deadline:
                    raise
                if not lost:
                    log.warning("%s: this broker keeps trying to register, for up to %.0f s",
                                error, seconds)
                lost = True
            await asyncio.sleep(REGISTER_AGAIN_SECONDS)

    async def _outlast_others(self) -> None:
        """Wait until the sessions of brokers whose machines lost power together with this machine
        have ended.

        Until then those brokers count as alive, and this broker would be removed from in-sync sets
        in favour of replicas that are no better. The wait is shorter by the time that has passed
        since the machine's boot.
        """
        timeout = self.coordination.session_timeout_ms / 1000 * SESSION_LASTS
        seconds = timeout - self.disk.seconds_since_boot()
        if seconds > 0:
            log.warning(
                "the machine has just started: this broker registers in %.0f s, once ZooKeeper has"
                " ended the sessions of brokers that lost power at the same time", seconds)
            await asyncio.sleep(seconds)

    # Later registrations

    def _follow(
        self, old: MetadataImage, new: MetadataImage, topics: Collection[str]
    ) -> None:
        """Check the image's registration of this process."""
        broker = new.brokers.get(self.node_id)
        if broker is not None and broker.incarnation == self.incarnation:
            self.was_seen = True
            if broker.epoch != self.runs.epoch and self.registration is not None:
                self.runs.write(broker.epoch)
        elif self.was_seen and broker is not None:
            self.session.fail(
                f"another process has registered as node {self.node_id} with this broker's log"
                " directories"
            )
        elif self._is_removed(old, new):
            self.was_seen = True
            reached("a live broker was declared gone")
            log.warning("this broker (node.id %d) was removed from the cluster; it registers again",
                        self.node_id)
            self._register_again(replace=True)

    def _is_removed(self, old: MetadataImage, new: MetadataImage) -> bool:
        """Whether the new image removes this process. If the process was registered and removed
        between two images, only `former` of the image shows that."""
        if self.was_seen and self.node_id in old.brokers:
            return True
        former, known = new.former.get(self.node_id), old.former.get(self.node_id)
        return (
            former is not None and former.incarnation == self.incarnation
            and (known is None or known.epoch != former.epoch)
        )

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and not self.closed:
            self._register_again()

    def _register_again(self, replace: bool = False) -> None:
        # This broker keeps reading the metadata while it registers, so it may learn meanwhile that
        # it was removed.
        self.removed = self.removed or replace
        if self.registration is not None and self.registering is None and not self.closed:
            self.registering = self.loop.create_task(self._registered_again())

    async def _registered_again(self) -> None:
        assert self.registration is not None
        try:
            await self.session.marks.check()
            await self.metadata.catch_up()
            await self.session.remember()
            await self._register_anew(self.registration)
            while self.removed:
                await self._register_anew(self.registration)
            self.controller.look()
        except CoordinationError as error:
            reached("registering again failed")
            log.warning("this broker could not renew its registration in ZooKeeper, and will try"
                        " again: %s", error)
            self.loop.call_later(REGISTER_AGAIN_SECONDS, self._register_again)
        except (DuplicateBroker, UnreadableRegistration, UnreadableMetadata) as error:
            self.session.fail(str(error))
        finally:
            self.registering = None

    async def _register_anew(self, registration: Registration) -> None:
        """Register, with a new broker epoch if the cluster has removed this broker."""
        if self.removed:
            await self._forget_registration()
            self.removed = False
        await register(self.coordination, registration)

    async def _forget_registration(self) -> None:
        """Delete this broker's node in ZooKeeper, so that the next one has a new broker epoch."""
        try:
            _, stat = await self.coordination.get(path_of(self.node_id))
            if stat.owner == self.coordination.session_id:
                await self.coordination.multi([Delete(path_of(self.node_id), stat.version)])
        except NoNode:
            pass

    def close(self) -> None:
        """Stop registering."""
        self.closed = True
        if self.registering is not None:
            self.registering.cancel()
