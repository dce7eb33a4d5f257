"""The start offset of each leader epoch (KIP-101, KIP-279), kept in `leader-epoch-checkpoint`.

Followers use these offsets to find where their log diverges from the leader's. Consumers use them
to find out whether records that they have read were truncated.
"""

from bisect import bisect_right

NO_EPOCH = -1
NO_OFFSET = -1


class LeaderEpochs:
    """A log's leader epochs, as entries (epoch, start offset). Epochs and offsets ascend strictly.
    """

    __slots__ = ("changed", "entries")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries: list[tuple[int, int]] = []
        for epoch, offset in entries or []:
            self.assign(epoch, offset)
        self.changed = False

    @property
    def latest(self) -> int:
        """The newest epoch, -1 when there is none."""
        return self.entries[-1][0] if self.entries else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Let `epoch` begin at `start_offset`; an epoch that is not newer is ignored."""
        if epoch <= self.latest or epoch < 0:
            return
        # The new epoch replaces epochs without records: start offsets ascend strictly.
        while self.entries and self.entries[-1][1] >= start_offset:
            self.entries.pop()
        assert not self.entries or self.entries[-1][0] < epoch, "the epochs would not ascend"
        self.entries.append((epoch, start_offset))
        self.changed = True

    def of_offset(self, offset: int) -> int:
        """The epoch in which a record of this offset was written, -1 if that is unknown."""
        at = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[at - 1][0] if at else NO_EPOCH

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch`, and the offset after its last record.

        (-1, -1) if there are no entries, or `epoch` is -1 or above the newest.
        """
        if not self.entries or epoch == NO_EPOCH or epoch > self.latest:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        at = bisect_right(self.entries, epoch, key=lambda entry: entry[0])
        # An epoch older than the first entry ended where the first known epoch began.
        return (self.entries[at - 1][0] if at else epoch), self.entries[at][1]

    def truncate_from_end(self, offset: int) -> None:
        """Forget epochs that begin at `offset` or later."""
        kept = [entry for entry in self.entries if entry[1] < offset]
        if len(kept) < len(self.entries):
            assert kept == self.entries[: len(kept)], "start offsets are out of order"
            self.entries, self.changed = kept, True

    def truncate_from_start(self, offset: int) -> None:
        """Forgets epochs that end at or before `offset`; the epoch of `offset` now begins there."""
        at = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        if at > 1 or (at and self.entries[0][1] < offset):
            self.entries = [(self.entries[at - 1][0], offset), *self.entries[at:]]
            assert len(self.entries) < 2 or offset < self.entries[1][1], "epochs are out of order"
            self.changed = True

    def clear(self) -> None:
        """Forget every epoch."""
        self.entries, self.changed = [], True

    def encode(self) -> bytes:
        """The checkpoint file's text: version, number of entries, one entry per line."""
        lines = ["0", str(len(self.entries))]
        lines += [f"{epoch} {offset}" for epoch, offset in self.entries]
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes) -> "LeaderEpochs":
        """Parses the checkpoint file's text. Raises ValueError."""
        lines = data.decode().split("\n")
        if lines[0].strip() != "0":
            raise ValueError(f"a leader epoch checkpoint has version {lines[0]!r}, expected 0")
        count = int(lines[1])
        pairs = [line.split() for line in lines[2 : 2 + count]]
        entries = [(int(epoch), int(offset)) for epoch, offset in pairs]
        if len(entries) != count:
            raise ValueError(
                f"a leader epoch checkpoint has {len(entries)} entries, expected {count}")
        return cls(entries)
