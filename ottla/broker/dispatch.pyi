from collections.abc import Callable
from typing import Any

from ottla.broker.context import BrokerContext
from ottla.broker.security.access import Access
from ottla.broker.security.client import Client
from ottla.broker.security.decisions import Decision
from ottla.wire.apis import Api, ApiKey

class RequestContext:
    def __init__(
        self,
        broker: BrokerContext,
        api_key: int,
        version: int,
        client: Client,
    ) -> None: ...
    @property
    def broker(self) -> BrokerContext: ...
    @property
    def api_key(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def client(self) -> Client: ...
    @property
    def access(self) -> Access: ...

class Handler:
    def __init__(self, api: Api, module: str) -> None: ...
    @property
    def api(self) -> Api: ...
    @property
    def module(self) -> str: ...
    @property
    def versions(self) -> range: ...
    @property
    def access(self) -> Decision | None: ...
    @property
    def function(self) -> Callable[[Any, RequestContext], Any] | None: ...

HANDLERS: dict[int, Handler]

def expect(key: ApiKey, module: str) -> None: ...
def handles(
    key: ApiKey, versions: range, *, access: Decision
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...
