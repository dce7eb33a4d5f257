"""`ottla group why` and `ottla topic why`: the present state, then the events.

Brokers report the state and the events on their HTTP ports, whose addresses are in the brokers'
settings. The command first describes the group or topic with Kafka's protocol, so it fails for
users who have no right to do that.
"""

from __future__ import annotations

import ipaddress
import json
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

from ottla.broker.history.partition_sentences import nodes
from ottla.client.errors import ClientError, Unreachable, check, reason_of
from ottla.tools.admin import configs, groups, topics
from ottla.tools.cli.bootstrap import connect
from ottla.tools.cli.cluster_check import runs
from ottla.tools.usage import WrongUsage
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

SETTING = "ottla.http.listener"
SECONDS = 10.0
NO_LEADER = -1
Document = dict[str, Any]


def group(options: Namespace) -> None:
    """`ottla group why`."""
    if options.url:
        check_url(options.url)
    found = []
    with connect(options) as cluster:
        for name in options.group:
            groups.describe(cluster, name)
            path = f"/api/v1/groups/{quote(name, safe='')}/why"
            if options.url:
                found.append(asked(options.url, path))
                continue
            node_id = cluster.coordinator_id(name)
            answer = asked(http_address(cluster, node_id), path)
            found.append(of_broker(answer, node_id, answer["coordinator"]))
    if not _printed(options, found, "group"):
        for one in found:
            print(
                f"group {one['group']}: {one['state']}, {one['type']},"
                f" {counted(one['members'], 'member')}, coordinated by broker"
                f" {one['coordinator']} since {moment(one['coordinated_since_ms'])}"
            )
            _print_list("now", (each["text"] for each in one["now"]), "it waits for nothing")
            _print_list("what happened", map(_line, one["events"]), "nothing is known")


def topic(options: Namespace) -> None:
    """`ottla topic why`: asks the running brokers that have replicas, and combines their answers.
    """
    if options.url:
        check_url(options.url)
    found = []
    with connect(options) as cluster:
        for described in topics.describe(cluster, options.topic):
            check(described.error, what=f"topic {described.name!r}")
            brokers = {node for part in described.partitions for node in part.replicas}
            path = f"/api/v1/topics/{quote(str(described.name), safe='')}/why"
            if options.url:
                found.append(together([asked(options.url, path)]))
                continue
            answers, live = [], {*cluster.live()}
            for node in sorted(brokers & live):
                answer = asked(http_address(cluster, node), path)
                answers.append(of_broker(answer, node, answer["broker"]))
            one = together(answers)
            one["topic"] = described.name
            one["partitions"] += [
                unserved(part) for part in described.partitions if live.isdisjoint(part.replicas)]
            one["partitions"].sort(key=lambda part: part["partition"])
            found.append(one)
    if not _printed(options, found, "topic"):
        for one in found:
            print(f"topic {one['topic']}: {counted(len(one['partitions']), 'partition')}")
            _print_list("now", (
                f"{which}: {text}" for which, text in by_text(
                    (part["partition"], each["text"])
                    for part in one["partitions"] for each in part["now"]
                )
            ), "nothing is wrong with it")
            _print_list("what happened", (
                f"{at}  {which}: {text}"
                for at, events in groupby(one["events"], lambda each: moment(each["at_ms"]))
                for which, text in by_text((each["partition"], each["text"]) for each in events)
            ), "nothing is known")


def by_text(found: Iterable[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    """Each text once, after the partitions that have it: (`partitions 0-2,5`, text)."""
    partitions: dict[str, set[int]] = {}
    for index, text in found:
        partitions.setdefault(text, set()).add(index)
    for text, indexes in partitions.items():
        yield f"partition{'s' * (len(indexes) > 1)} {runs(sorted(indexes))}", text


def together(answers: list[Document]) -> Document:
    """Combines the answers of several brokers. Takes each partition from its leader's answer, or
    from any answer if the leader's is missing. Takes each event once, from the answer that has the
    most details."""
    partitions: dict[int, Document] = {}
    events: dict[tuple[Any, ...], Document] = {}
    for answer in answers:
        for part in answer["partitions"]:
            known = partitions.get(part["partition"])
            if known is None or part["led_here"]:
                partitions[part["partition"]] = part
        for each in answer["events"]:
            key = tuple(each.get(name) for name in (
                "partition", "partition_epoch", "leader_epoch", "kind", "broker", "producer_id",
                "producer_epoch"))
            if key not in events or len(each) > len(events[key]):
                events[key] = each
    return {
        "topic": answers[0]["topic"] if answers else None,
        "partitions": [partitions[index] for index in sorted(partitions)],
        "events": sorted(events.values(), key=lambda each: each["at_ms"]),
    }


def unserved(part: topics.Partition) -> Document:
    """A partition without a running replica. Brokers answer only about partitions with a replica
    on them, so no broker answers about this one."""
    able = [*part.isr, *(node for node in part.elr or () if node not in part.isr)] or part.replicas
    return {
        "partition": part.index, "leader": NO_LEADER, "replicas": part.replicas, "isr": part.isr,
        "led_here": False,
        "now": [{
            "kind": "no_leader", "able": able,
            "text": "there is no leader, so nothing can be read or written: no broker with a"
            f" replica is running (replicas: {nodes(part.replicas)}); the partition gets a leader"
            f" when {'one of brokers' if len(able) > 1 else 'broker'} {nodes(able)} is back",
        }],
    }


def http_address(cluster: ClusterClient, node_id: int) -> str:
    """The URL of a broker's HTTP port, from its settings. Raises ClientError for a broker without
    an HTTP port."""
    settings = configs.describe(cluster, configs.BROKER, str(node_id), synonyms=False)
    text = next((str(each.value or "") for each in settings if each.name == SETTING), "")
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not port:
        raise ClientError(
            f"broker {node_id} has no HTTP port, which this command needs. Set the broker's"
            f" {SETTING}, for example to localhost:9308, and restart the broker"
        )
    if _is_any(host):
        host = cluster.brokers[node_id][0]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_any(host: str) -> bool:
    """Whether a broker listens on all of its addresses."""
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def check_url(url: str) -> None:
    """Raises WrongUsage for a --url that is not the address of an HTTP port."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:          # a bad port, or a bad IPv6 address
        known = False
    if not known:
        raise WrongUsage(f"--url {url}: expected http://HOST:PORT, the address of a broker's HTTP"
                         f" port ({SETTING})")


def of_broker(answer: Document, wanted: int, answered: int) -> Document:
    """Check that the right broker has answered: an address such as localhost means a different
    broker on each machine. Raises ClientError."""
    if wanted != answered:
        raise ClientError(
            f"broker {answered} answered instead of broker {wanted}: the {SETTING} of broker"
            f" {wanted} can only be reached from that broker's machine. Run this command on that"
            " machine, or give another address with --url"
        )
    return answer


def asked(url: str, path: str) -> Any:
    """A broker's answer. Raises Unreachable, ClientError."""
    try:
        with urlopen(url.rstrip("/") + path, timeout=SECONDS) as response:
            return json.load(response)
    except HTTPError as error:
        raise ClientError(f"{url}: {_refusal(error)}") from error
    except (OSError, ValueError) as error:
        reason: object = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, OSError):
            reason = reason_of(reason)
        raise Unreachable(
            f"{url}: {reason}. Is this the address of the broker's HTTP port ({SETTING})? Give"
            " another address with --url"
        ) from error


def _refusal(error: HTTPError) -> str:
    """The text of a broker's error."""
    try:
        document = json.load(error)
        return f"{document['error']}: {document['message']}"
    except (ValueError, KeyError, TypeError):
        return f"status {error.code}; is this the HTTP port of a broker of Ottla?"


def moment(ms: int) -> str:
    """A local time."""
    return datetime.fromtimestamp(ms / 1000).isoformat(sep=" ", timespec="seconds")


def _line(event: Mapping[str, Any]) -> str:
    return f"{moment(event['at_ms'])}  {event['text']}"


def _print_list(head: str, lines: Iterable[str], otherwise: str) -> None:
    print(f"{head}:")
    for line in [*lines] or [otherwise]:
        print(f"  {line}")


def _printed(options: Namespace, found: list[Document], name: str) -> bool:
    """Prints the answers if --output is a format for programs. Returns whether it did."""
    if options.output == "json":
        print(json.dumps(found, indent=2, ensure_ascii=False))
    elif options.output == "jsonl":
        for one in found:
            print(json.dumps(one, ensure_ascii=False))
    elif options.output == "name":
        for one in found:
            print(one[name])
    else:
        return False
    return True
