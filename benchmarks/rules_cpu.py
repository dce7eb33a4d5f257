"""What do a thousand ACLs and active quotas add to each request?

Two Ottlas take turns under the same raw load. One has neither an authorizer nor quotas. The other
has 1,000 ACLs for other users (literal and prefixed, allowing and denying), two ACLs that allow the
client's requests, and quotas of all kinds, which apply to the client but are never reached.
Segments are on tmpfs.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import load, report
from benchmarks.raw_client import RawClient
from compat_tests.brokers import OttlaBroker
from ottla.wire.messages import AlterClientQuotasRequest, CreateAclsRequest

PARTITIONS = 4
PER_GB, PER_MILLION = "broker_cpu_s_per_gb", "broker_cpu_s_per_mreq"
LOADS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "produce 60 × 1,000 B": (
        "produce", PER_GB, {"records": 60, "size": 1000, "acks": 1, "conns": 4, "depth": 4}),
    "produce 1,000 × 100 B": (
        "produce", PER_GB, {"records": 1000, "size": 100, "acks": 1, "conns": 4, "depth": 4}),
    "produce 1 × 100 B": (
        "produce", PER_MILLION, {"records": 1, "size": 100, "acks": 1, "conns": 8, "depth": 5}),
    "fetch 1 MiB": ("fetch", PER_GB, {"partition_bytes": 1 << 20, "conns": 4, "seconds": 0}),
    "fetch 64 KiB": ("fetch", PER_GB, {"partition_bytes": 64 << 10, "conns": 4, "seconds": 0}),
}
LIMIT = {"seconds": 3, "warmup": 1, "max_mb": 800}
RULES = 1000
TOPIC, ALL, READ, CLUSTER, ALLOW, DENY, LITERAL, PREFIXED = 2, 2, 3, 4, 3, 2, 3, 4
QUOTAS = {
    "producer_byte_rate": 1e15, "consumer_byte_rate": 1e15, "request_percentage": 1e9,
    "controller_mutation_rate": 1e9,
}


@contextlib.contextmanager
def both() -> Iterator[dict[str, OttlaBroker]]:
    """Run two brokers for a block: `open` has no ACLs and no quotas, `guarded` has both."""
    load.build(load.BLASTER)
    directory = Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=load.MEMORY))
    guarded = (
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found=true",      # allows the first CreateAcls
    )
    brokers = {
        "open": OttlaBroker(directory / "open", load.SETTINGS),
        "guarded": OttlaBroker(directory / "guarded", (*load.SETTINGS, *guarded)),
    }
    started = []
    try:
        for broker in brokers.values():
            broker.start()
            started.append(broker)
        guard(brokers["guarded"].port)
        yield brokers
    finally:
        for broker in started:
            broker.stop()
        shutil.rmtree(directory)


def guard(port: int) -> None:
    """Make the ACLs and the quotas."""
    made = CreateAclsRequest.Creation

    def rule(kind: int, name: str, who: str, permission: int, pattern: int, what: int) -> Any:
        return made(
            resource_type=kind, resource_name=name, resource_pattern_type=pattern,
            principal=f"User:{who}", host="*", operation=what, permission_type=permission,
        )

    others = [
        rule(TOPIC, f"b{number}" if number % 2 else "bench", f"user-{number}",
             DENY if number % 3 == 0 else ALLOW, PREFIXED if number % 5 == 0 else LITERAL, READ)
        for number in range(RULES)
    ]  # fmt: skip
    own = [
        rule(TOPIC, "bench", "ANONYMOUS", ALLOW, LITERAL, ALL),
        rule(CLUSTER, "kafka-cluster", "ANONYMOUS", ALLOW, LITERAL, ALL),
    ]
    with RawClient(port) as client:
        answer = client.ask(CreateAclsRequest(creations=[own[1], own[0], *others]), 3)
        assert not any(each.error_code for each in answer.results), answer.results[0]
        entry = AlterClientQuotasRequest.Entry
        for entity in ({"user": None}, {"client-id": None}, {"user": None, "client-id": None}):
            named = [entry.Entity(entity_type=kind, entity_name=name)
                     for kind, name in entity.items()]
            changes = [entry.Op(key=key, value=value, remove=False)
                       for key, value in QUOTAS.items()]
            request = AlterClientQuotasRequest(entries=[entry(entity=named, ops=changes)])
            assert client.ask(request, 1).entries[0].error_code == 0


def measure(rounds: int) -> dict[str, report.Figures]:
    """The figure of each round, by load and broker."""
    found: dict[str, report.Figures] = {}
    with both() as brokers:
        for number in range(rounds):
            for name, (mode, key, options) in LOADS.items():
                for kind, broker in brokers.items():
                    more = LIMIT if mode == "produce" else {}
                    if mode == "produce" and name == next(iter(LOADS)):
                        renew(broker, number)
                    result = load.blast(
                        broker, mode, "bench", partitions=PARTITIONS, **more, **options)
                    found.setdefault(name, {}).setdefault(kind, []).append(result[key])
    return found


def renew(broker: OttlaBroker, number: int) -> None:
    """Replace the topic of the last round with an empty topic, so that memory does not fill up."""
    from confluent_kafka.admin import AdminClient

    if number:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics(["bench"])["bench"].result(60)
    load.make_topic(broker, "bench", PARTITIONS)


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=7)
    found = measure(arguments.parse_args().rounds)
    rows = [
        [name, "a GB" if LOADS[name][1] == PER_GB else "a million requests",
         report.spread(by["open"]), report.spread(by["guarded"]),
         report.ratio(by["guarded"], by["open"])]
        for name, by in found.items()
    ]  # fmt: skip
    header = ["load", "CPU-s for", "without ACLs and quotas", "with 1,000 ACLs, and with quotas",
              "ratio"]
    text = report.table(header, rows)
    report.write("What do ACLs and quotas cost?", "rules-cpu", text, found)


if __name__ == "__main__":
    main()
