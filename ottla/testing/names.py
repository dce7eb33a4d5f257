"""Names of APIs, errors and settings in tests; suggests similar ones for wrong names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.wire.errors import ErrorCode


NO_IMAGE = "There is no image: the broker runs without a container"
NO_CONTAINER = (
    "there is no container; broker.create_topic(…) makes topics, and Kafka's tools reach the"
    " broker at broker.bootstrap_servers"
)
OF_CONTAINERS = {
    "with_kraft": "leave it out: a broker keeps its own metadata",
    "get_exposed_port": "its port is broker.port",
    "get_container_host_ip": "its address is broker.host",
    "get_logs": "its log is broker.log",
    "get_wrapped_container": NO_CONTAINER,
    "exec": NO_CONTAINER,
}
"""Attributes of testcontainers' KafkaContainer, and what to use instead."""


def plain(name: str) -> str:
    """A form that is equal for all spellings of a name, such as NotLeaderOrFollowerException and
    NOT_LEADER_OR_FOLLOWER."""
    return name.lower().replace("_", "").removesuffix("exception")


NEAR = 0.8
"""The similarity (0 to 1) of a near name. Names that begin with the unknown name are near, too."""
FAR = 0.6
"""If no name is near, names with at least this similarity are suggested."""


def similar(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name. It suggests up to three known names: near ones,
    or less similar ones if none is near."""
    import difflib

    names = {plain(each): each for each in known}
    wanted = plain(name)
    begin = [each for short, each in names.items() if wanted and short.startswith(wanted)]
    close = difflib.get_close_matches(wanted, names, 3, NEAR)
    if not begin and not close:
        close = difflib.get_close_matches(wanted, names, 3, FAR)
    near = list(dict.fromkeys([*begin, *(names[each] for each in close)]))[:3]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def api_key_of(name: str | None) -> int | None:
    """The key of the API with this Kafka name. For None, which means all APIs, returns None. Raises
    ValueError for an unknown name."""
    from ottla.wire.apis import APIS

    if name is None:
        return None
    for key, api in APIS.items():
        if plain(api.name) == plain(name):
            return key
    known = (api.name for api in APIS.values())
    raise ValueError(f"{name!r} is not an API of Kafka's protocol{similar(name, known)}")


def error_of(error: ErrorCode | str | int) -> ErrorCode:
    """The error with this Kafka name, or with this code. Raises ValueError."""
    from ottla.wire.errors import ErrorCode

    if not isinstance(error, str):
        return ErrorCode(error)
    for code in ErrorCode:
        if plain(code.name) == plain(error):
            return code
    known = (code.name for code in ErrorCode)
    raise ValueError(f"{error!r} is not an error of Kafka's protocol{similar(error, known)}")


def no_argument(name: str) -> str:
    """The message about an argument that Broker lacks, such as KafkaContainer's `image`."""
    hint = f". {NO_IMAGE}" if name == "image" else ""
    return f"Broker has no argument {name!r}: it takes settings, directory and log_level{hint}"


def no_duration(unnamed: Sequence[object], others: Mapping[str, object]) -> str:
    """The message about a number without a unit, or an unknown unit, given to `Broker.advance`."""
    given = ", ".join([*map(repr, unnamed), *(f"{key}={value!r}" for key, value in others.items())])
    return (
        f"advance({given}): say how long with days, hours, minutes, seconds or ms, such as"
        " advance(hours=1)"
    )


def no_topic(name: str, topics: Iterable[Any]) -> str:
    """The message about a topic that does not exist. `topics`: a Metadata response's topics."""
    from ottla.client.similar_names import similar

    return f"topic {name!r} not found{similar(name, [one.name for one in topics])}"


def no_attribute(name: str) -> str:
    """The message about an attribute that Broker lacks, such as a container's `with_…`."""
    hint = OF_CONTAINERS.get(name, "")
    if not hint and name.startswith("with_"):
        hint = 'settings are its first argument, such as Broker({"num.partitions": 3})'
    return f"Broker has no attribute {name!r}{hint and f': {hint}'}"


def settings_of(given: object) -> dict[str, str]:
    """The settings of a broker, as texts. Raises TypeError if `given` is not a mapping but, say,
    the name of a container image. Raises ValueError for a setting that neither Kafka nor Ottla
    has."""
    if not given and (given is None or isinstance(given, Mapping)):
        return {}
    if isinstance(given, Mapping):
        from ottla.broker.settings.config import why_unknown

        found = {str(name): str(value) for name, value in given.items()}
        if wrong := why_unknown(found):
            raise ValueError(f"Broker settings: {wrong[0]}")
        return found
    hint = ""
    if isinstance(given, str):
        hint = f". {NO_IMAGE}"
        if "=" in given:
            name, _, value = given.partition("=")
            hint = f"; did you mean Broker({{{name.strip()!r}: {value.strip()!r}}})?"
    raise TypeError(
        f"Broker({given!r}): the first argument is a mapping of settings, such as"
        f' {{"num.partitions": 3}}{hint}'
    )
