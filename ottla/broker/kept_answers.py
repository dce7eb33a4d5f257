"""Parts of answers that handlers keep for the next request, as long as they are valid."""

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
    """Entries of Metadata by topic, each with the image and circumstances for which it is valid."""
    new_topic_configs: tuple[Layers, list[CreateTopicsResponse.Topic.Config]] | None = None
    """The settings of a new topic without any of its own, and the layers they were read from."""
    warned_of_factors: set[tuple[str, int]] = field(default_factory=set)
    """Settings of replication factors, each with a number of brokers that was logged as too low."""
