from ottla.replication.followers import Followers
from ottla.replication.partition import ReplicaRole

class LeaderReplica(ReplicaRole):
    @property
    def followers(self) -> Followers: ...
    @property
    def epoch_start(self) -> int: ...
    def __init__(
        self, followers: Followers, epoch_start: int, under_min_isr: bool = False
    ) -> None: ...
