"""One file an area of the protocol; importing a file registers its handlers."""

from importlib import import_module

AREAS = (
    "access_control", "authentication", "classic_groups", "configs", "consumer_groups",
    "coordinators", "credentials", "delete_records", "features", "fetch", "group_admin",
    "group_offsets", "log_dirs", "metadata", "offsets", "partitions", "produce", "producer_ids",
    "quorum", "quotas", "topics", "transaction_admin", "transaction_offsets", "transactions",
    "versions",
)


def load() -> None:
    """Register every handler."""
    for area in AREAS:
        import_module(f"{__name__}.{area}")
