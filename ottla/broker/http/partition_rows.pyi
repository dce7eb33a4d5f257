from ottla.replication.partition import Partition

TRAFFIC: tuple[str, ...]
FIGURES: tuple[str, ...]

class PartitionRows:
    def __len__(self) -> int: ...
    def sum(self, figure: str) -> int: ...
    def lines(
        self, name: str, column: int, first: int, after: int, thousandths: bool = False
    ) -> str: ...

def read_partitions(
    rows: PartitionRows, head: bytes, partitions: list[Partition], sums: list[int]
) -> None: ...
