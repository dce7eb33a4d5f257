"""What a log does when the disk refuses a write or returns damaged bytes."""

from collections.abc import Callable
from typing import NoReturn

from ottla.log.disk import Disk
from ottla.log.recovery.rebuild import Damage

class LogHealth:
    """Whether one log takes writes."""

    directory: str
    offline: str | None
    damage: Damage | None
    on_failure: Callable[[str], None] | None
    def __init__(self, directory: str) -> None: ...
    def fail(self, reason: str) -> None: ...
    def refuse(self, what: str, error: OSError) -> NoReturn: ...
    def fail_with(self, what: str, error: OSError) -> NoReturn: ...
    def note_damage(self, damage: Damage | None) -> None: ...
    def end_before(self, disk: Disk, damage: Damage) -> None: ...
