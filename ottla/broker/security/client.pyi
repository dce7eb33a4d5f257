"""The sender of a request: one value for each connection, which every request carries."""

ANONYMOUS: str

class Client:
    """One client, made by the listener that accepted it."""

    connection_id: str
    host: str
    listener: str
    protocol: str
    principal: str
    by_token: bool
    client_id: str | None
    software_name: str | None
    software_version: str | None
    def __init__(
        self, host: str, listener: str, connection_id: str = "", principal: str = ...,
        protocol: str = "PLAINTEXT",
    ) -> None: ...
    def named(self, client_id: str | None) -> Client: ...
    def authenticated(self, principal: str, by_token: bool) -> Client: ...
    def peer(self) -> str: ...
    samples_writes: bool
    samples_reads: bool
    @property
    def written(self) -> dict[str, int] | None: ...
    @property
    def read(self) -> dict[str | bytes, int] | None: ...
    def sample(self, number: int) -> None: ...
    def introduce(self, software_name: str, software_version: str) -> None: ...
