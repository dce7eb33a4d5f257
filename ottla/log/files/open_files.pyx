"""Limits how many segments have open files, so that a broker can have 100,000 partitions.

The clock algorithm: a use costs one store, and eviction skips members that were used since the
algorithm's hand last passed them.
"""


cdef class Openable:
    """Something with descriptors that it can close and reopen by itself."""

    cdef int close_files(self) except -1:
        return 0


cdef class OpenFiles:
    """The segments that are open now, at most `limit` of them."""

    def __init__(self, limit=300):
        if limit < 1:
            raise ValueError(f"the limit of open segments must be 1 or more, not {limit}")
        self.limit = limit
        self.members = []

    def __len__(self):
        return len(self.members)

    cdef int add(self, Openable member) except -1:
        """Notes that `member` is open now, and closes another one if there are too many."""
        if len(self.members) >= self.limit:
            self.close_one()
        member.used = True
        self.members.append(member)
        return 0

    cdef int remove(self, Openable member) except -1:
        """Forgets a member that has closed its own files."""
        try:
            self.members.remove(member)
        except ValueError:
            pass
        return 0

    def close_one(self):
        """Closes a member that was not used since the hand passed it last."""
        cdef Openable member
        for _ in range(2 * len(self.members)):
            if self.hand >= len(self.members):
                self.hand = 0
            member = self.members[self.hand]
            if member.used:
                member.used = False
                self.hand += 1
                continue
            try:
                member.close_files()
            except OSError:
                # The member cannot write its index entries to a full disk: it stays open.
                self.hand += 1
                continue
            # The last member takes the closed member's place in the list: the order does not
            # matter, and shifting the list would be slow.
            last = self.members.pop()
            if last is not member:
                self.members[self.hand] = last
            return
