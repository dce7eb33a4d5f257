from ottla.replication.partition import ReplicaRole

class SoleReplica(ReplicaRole):
    def __init__(self) -> None: ...
