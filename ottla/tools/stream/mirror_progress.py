"""The progress of a mirror: how far each partition is copied, and how offsets are translated.

The mirror commits its progress in the target cluster, for the group `ottla-mirror-…`. The committed
offset is the source's next offset; the metadata of the commit has the target's next offset. If a
mirror is killed, the target may have records after the committed position. The next mirror counts
them, and skips the same number of records of the source. It skips none if the target has refused a
record, since later records may have been written without the refused one.

Records keep their order, so between two gaps in the offsets, source and target offsets differ by
a constant. The offsets between two gaps are called a run.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.tools.admin.offsets import Place

RUNS_KEPT = 100
"""How many runs fit into the metadata of a commit (4096 bytes)."""


@dataclass
class Progress:
    """The progress of one partition. `source` is the next offset to copy from the source, and
    `target` is the next offset of the target. `runs` has the first source and target offset of each
    run, in ascending order."""

    place: Place
    source: int
    target: int
    runs: list[tuple[int, int]] = field(default_factory=list)
    skip: int = 0
    """How many of the source's records, from offset `source` on, are already in the target."""
    copied: int = 0
    torn: bool = False
    """Whether the target has refused a record, and may have written later ones."""
    topic_id: str = ""
    """The id of the source's topic, which changes if the topic is deleted and created again."""

    def passed(self, source_offset: int, target_offset: int) -> None:
        """Count one record that is now in the target."""
        if not self.runs or self.runs[-1][1] - self.runs[-1][0] != target_offset - source_offset:
            self.runs.append((source_offset, target_offset))
            del self.runs[:-RUNS_KEPT]
        self.source, self.target = source_offset + 1, target_offset + 1

    def expire(self, first: int) -> None:
        """Continues at `first`, the first offset that the source still has.

        The target may have copies of the expired records, which `skip` counts. So `skip` is reduced
        by the number of expired offsets. If these offsets had gaps, `skip` is reduced too far:
        then some records are copied twice, but none is lost.
        """
        gone = min(self.skip, first - self.source)
        self.skip -= gone
        self.target += gone
        self.source = first

    def translate(self, offset: int) -> int | None:
        """The target's offset for an offset of the source; None if the record was not copied, or is
        before all runs."""
        if offset >= self.source:
            return self.target if offset == self.source else None
        at = bisect_right(self.runs, (offset, 1 << 62)) - 1
        if at < 0:
            return None
        source, target = self.runs[at]
        end = self.runs[at + 1][1] if at + 1 < len(self.runs) else self.target
        return min(target + offset - source, end)

    def metadata(self) -> str:
        """The metadata stored with the source's offset."""
        known: dict[str, object] = {"target": self.target, "runs": self.runs}
        if self.torn:
            known["torn"] = True
        if self.topic_id:
            known["id"] = self.topic_id
        return json.dumps(known, separators=(",", ":"))

    @classmethod
    def restored(cls, place: Place, source: int, metadata: str) -> Progress | None:
        """Parses the metadata of a commit; None if a mirror did not write it."""
        try:
            fields = json.loads(metadata)
            runs = [(int(one), int(other)) for one, other in fields["runs"]]
            torn, topic_id = bool(fields.get("torn")), str(fields.get("id", ""))
            return cls(place, source, int(fields["target"]), runs, torn=torn, topic_id=topic_id)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
