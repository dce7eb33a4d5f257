"""One file an area of the protocol; importing a file registers its handlers."""

from importlib import import_module

AREAS = (
    "configs", "coordinators", "fetch", "metadata", "offsets", "produce", "producer_ids", "topics",
    "versions",
)


def load() -> None:
    """Register every handler."""
    for area in AREAS:
        import_module(f"{__name__}.{area}")
