"""Parts of responses that handlers keep for later requests while they are valid."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.settings.config import Layers
    from ottla.replication.metadata import TopicImage
    from ottla.wire.messages import CreateTopicsResponse, MetadataResponse


@dataclass(slots=True)
class KeptAnswers:
    """The answers that one broker keeps. They are shared by all clients and never modified."""

    topics: dict[str, tuple[TopicImage, object, MetadataResponse.Topic]] = field(
        default_factory=dict)
    """For each topic, its entry in Metadata responses, with the topic image and the conditions for
    which the entry is valid."""
    new_topic_configs: tuple[Layers, list[CreateTopicsResponse.Topic.Config]] | None = None
    """The settings of a new topic that is created without settings of its own, and the layers of
    configuration from which these settings were read."""
    warned_of_factors: set[tuple[str, int]] = field(default_factory=set)
    """The warnings that this broker has logged because a replication factor is above the number of
    brokers. Each is the name of the setting and the factor that is used instead."""
