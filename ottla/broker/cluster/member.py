"""The parts of a broker that is a member of a cluster, and the order in which they end."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.broker.cluster.cluster_session import ClusterSession
from ottla.broker.cluster.controller import Controller
from ottla.broker.cluster.registrar import Registrar
from ottla.broker.cluster.run_records import RunRecords


@dataclass(frozen=True, slots=True)
class Member:
    """The parts of a member: session, candidacy, registration, and records of this run."""

    session: ClusterSession
    controller: Controller
    registrar: Registrar
    runs: RunRecords

    async def stop(self) -> None:
        """End the session, and with it the registration and the controller's term."""
        if self.session.stopping:
            return
        self.session.stopping = True
        self.registrar.close()
        await self.controller.close()
        await self.session.settle()
        self.runs.end()
        await self.session.close()
