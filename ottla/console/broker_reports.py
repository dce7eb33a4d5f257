"""The brokers' own reports under `/api/v1`: state, connections, lag in bytes and seconds.

The address of a broker's HTTP port is one of its settings. So only users who may read the
settings of a broker see its reports. Brokers of Apache Kafka have no such reports.
"""

from __future__ import annotations

import json
import time
from collections.abc import Hashable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import ProxyHandler, build_opener

from ottla.client.addresses import BadAddress, parse_address, show_address
from ottla.client.errors import ClientError, Refused
from ottla.tools.admin import configs
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

SETTING = "ottla.http.listener"
STATUS = "/api/v1/status"
"""The path that every broker serves to all clients."""
REFUSED = (403, 421)
KNOWN_SECONDS = 60.0
SECONDS = 2.0
SIZE_MAX = 64 << 20
ANYWHERE = ("", "0.0.0.0", "::")
OPENER = build_opener(ProxyHandler({}))
Memory = MutableMapping[Hashable, Any]


def addresses(cluster: ClusterClient, memory: Memory) -> dict[int, str]:
    """The HTTP addresses, `http://host:port`, of the brokers that have an HTTP port."""
    known: tuple[float, dict[int, str]] | None = memory.get("http")
    if known is not None and time.monotonic() < known[0]:
        return known[1]
    cluster.refresh()
    found = {}
    for broker, (host, _) in cluster.brokers.items():
        try:
            settings = configs.describe(cluster, configs.BROKER, str(broker), synonyms=False)
        except (ClientError, OSError):
            continue
        value = next((one.value for one in settings if one.name == SETTING), None)
        if value and (address := reachable(value, host)) is not None:
            found[broker] = f"http://{address}"
    memory["http"] = (time.monotonic() + KNOWN_SECONDS, found)
    return found


def reachable(value: str, host: str) -> str | None:
    """The address of a broker's HTTP listener; None if it cannot be parsed. If the broker listens
    on all interfaces, the host is the one under which clients reach the broker."""
    text = value.rpartition("://")[2]
    try:
        at, port = parse_address(text if text.rpartition(":")[0] else f"0.0.0.0{text}")
    except BadAddress:
        return None
    return show_address((host if at in ANYWHERE else at, port))


def read_all(cluster: ClusterClient, memory: Memory, path: str) -> dict[int, Any]:
    """A JSON document of each broker that answers in time."""
    known = addresses(cluster, memory)
    if not known:
        return {}
    refusals: dict[int, str] = memory.setdefault("http refusals", {})
    with ThreadPoolExecutor(min(len(known), 8)) as threads:
        answers = list(threads.map(lambda url: read(url + path), known.values()))
    found = {}
    for broker, answer in zip(known, answers, strict=True):
        if isinstance(answer, Refused):
            refusals[broker] = str(answer)
        elif answer is not None:
            found[broker] = answer
            if path != STATUS:
                refusals.pop(broker, None)
    return found


def refusals(memory: Memory) -> list[str]:
    """The refusals of brokers that do not report their clients to this console."""
    return [
        f"Broker {broker} does not report its clients and groups to this console: {why}."
        for broker, why in sorted(memory.get("http refusals", {}).items())
    ]


def read(url: str) -> Any:
    """The JSON document at an address; None if it cannot be read. If the broker refuses and gives a
    reason, returns that as a Refused instead."""
    try:
        with OPENER.open(url, timeout=SECONDS) as response:
            return json.loads(response.read(SIZE_MAX))
    except HTTPError as error:
        return refusal_of(error) if error.code in REFUSED else None
    except (OSError, ValueError):
        return None


def refusal_of(error: HTTPError) -> Refused | None:
    """The reason why a broker refuses; None if the broker gives no reason, or if the reason is only
    that it does not coordinate the group."""
    try:
        document = json.loads(error.read(SIZE_MAX))
        code = ErrorCode[document["error"]]
        return None if code == ErrorCode.NOT_COORDINATOR else Refused(code, document["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def of_name(path: str, name: str) -> str:
    """The path of one group or topic below another path."""
    return f"{path}/{quote(name, safe='')}"
