"""The APIs of the protocol: keys, versions, listeners, and the classes of their messages.

Everything comes from the first two lines of `schema/*.txt`. Reading them takes two milliseconds for
all files; the rest of a file is read when its messages are needed.
"""

from dataclasses import dataclass
from functools import cached_property

from ottla.wire import messages
from ottla.wire.api_keys import ApiKey as ApiKey
from ottla.wire.schema_parser import api_schemas, camel_case


@dataclass(frozen=True)
class Api:
    """One API. `versions` are the versions that are stable in Apache Kafka 4.4, extended down to
    the lowest version that is stable in 3.9."""

    key: ApiKey
    name: str
    versions: range
    flexible_from: int | None
    """First version with compact lengths and tagged fields; None if no version has them."""
    listeners: frozenset[str]
    """The listeners that Kafka serves the API on: `broker`, `controller`, or both."""
    served_by: str
    """The module of `ottla.broker.api` with the handler; empty if this broker does not serve it."""
    roles: frozenset[str]
    """The roles of the API, from `schema_parser.ROLES`."""

    @cached_property
    def request(self) -> type[messages.Message]:
        """The class of the API's requests."""
        message: type[messages.Message] = getattr(messages, f"{self.name}Request")
        return message

    @cached_property
    def response(self) -> type[messages.Message]:
        """The class of the API's responses."""
        message: type[messages.Message] = getattr(messages, f"{self.name}Response")
        return message


def read_apis() -> dict[int, Api]:
    """The APIs by key, in the order of their keys."""
    apis = (
        Api(
            ApiKey(key), camel_case(schema.name), schema.versions, schema.flexible_from,
            frozenset(schema.listeners), schema.served_by, schema.roles,
        )
        for key, schema in api_schemas().items()
    )
    return {api.key: api for api in apis}


APIS = read_apis()


def with_role(*roles: str) -> frozenset[ApiKey]:
    """The APIs that have one of these roles."""
    return frozenset(api.key for api in APIS.values() if not api.roles.isdisjoint(roles))


AUDITED = with_role("audited")
FORWARDED = with_role("forwarded", "forwarded_in_part")
FORWARDED_AFTER_CHECK = with_role("forwarded_after_check")
BETWEEN_BROKERS = with_role("between_brokers")
