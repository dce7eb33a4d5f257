from ottla.replication.partition import Partition

def lead_alone(
    partition: Partition, leader_id: int, leader_epoch: int, led_here: bool
) -> None: ...
def assume(
    partition: Partition,
    leader_id: int,
    leader_epoch: int,
    node_id: int,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    partition_epoch: int,
    offline: tuple[int, ...] = (),
    adding: int = 0,
) -> None: ...
