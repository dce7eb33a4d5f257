"""A Produce request as it was read, and how far it is served."""

from ottla.broker.network.promises import Held

class ProduceState(Held): ...
