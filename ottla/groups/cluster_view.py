"""A group coordinator's view of the cluster: its topics and the groups' own settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol


class Topic(NamedTuple):
    """A topic with the properties that an assignor needs."""

    name: str
    topic_id: bytes
    partitions: int


class ClusterView(Protocol):
    """A view of the newest metadata; `ottla/broker/coordination/group_coordinator` makes it from
    the metadata image."""

    @property
    def version(self) -> int:
        """Grows whenever a topic is created or deleted, or gets more partitions."""

    def topic(self, name: str) -> Topic | None:
        """The topic of this name."""

    def topic_of_id(self, topic_id: bytes) -> Topic | None:
        """The topic of this id."""

    def topic_names(self) -> Iterable[str]:
        """All topics, for regular expressions."""

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        """The settings of the `group` resource, such as consumer.session.timeout.ms."""


class NoCluster:
    """A cluster without topics."""

    version = 0

    def topic(self, name: str) -> Topic | None:
        """Always None."""
        return None

    def topic_of_id(self, topic_id: bytes) -> Topic | None:
        """Always None."""
        return None

    def topic_names(self) -> Iterable[str]:
        """Always empty."""
        return ()

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        """Always empty."""
        return {}
