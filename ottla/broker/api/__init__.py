"""One file an area of the protocol; importing a file registers its handlers."""

from importlib import import_module

AREAS = (
    "access_control", "classic_groups", "configs", "consumer_groups", "coordinators",
    "delete_records", "fetch", "group_admin", "group_offsets", "log_dirs", "metadata", "offsets",
    "produce", "producer_ids", "topics", "transaction_admin", "transaction_offsets",
    "transactions", "versions",
)


def load() -> None:
    """Register every handler."""
    for area in AREAS:
        import_module(f"{__name__}.{area}")
