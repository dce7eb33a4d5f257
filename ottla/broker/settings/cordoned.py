"""`cordoned.log.dirs` (KIP-1066): log directories that get no new partitions."""

from __future__ import annotations

import os
from collections.abc import Collection

from ottla.broker.settings.declaration import SettingsError

CORDONED = "cordoned.log.dirs"
ALL = "*"


def check_cordoned(names: Collection[str], directories: Collection[str]) -> None:
    """Raise SettingsError unless the names are log directories of the broker, or just `*` for all
    of them."""
    if ALL in names:
        if len(names) > 1:
            raise SettingsError(CORDONED, f"must not contain other values if it contains {ALL}")
        return
    known = {*map(os.path.abspath, directories)}
    if missing := [name for name in names if os.path.abspath(name) not in known]:
        raise SettingsError(
            CORDONED,
            f"all entries must be present in log.dirs or log.dir; missing: {', '.join(missing)}",
        )


def is_cordoned(path: str, names: Collection[str]) -> bool:
    """Whether a log directory gets no new partitions."""
    return ALL in names or os.path.abspath(path) in map(os.path.abspath, names)
