"""kafka-mirror-maker, and MirrorMaker 2's property files: `ottla mirror` under other flags."""

from __future__ import annotations

from argparse import Namespace

from ottla.tools.cli.mirror import mirror
from ottla.tools.kafka_names.grammar import Options, UsageError
from ottla.tools.properties import read_properties


def run(options: Options) -> int:
    """Copy, by the old flags or by a property file of MirrorMaker 2."""
    if options.positional:
        mirror(flow(read_properties(options.positional[0]), options.has("once")))
        return 0
    options.needs("consumer.config", "producer.config")
    source = read_properties(options.one("consumer.config")).get("bootstrap.servers", "")
    target = read_properties(options.one("producer.config")).get("bootstrap.servers", "")
    pattern = options.one("include") or options.one("whitelist")
    if not source or not target or not pattern:
        raise UsageError("bootstrap.servers in both files and --include are needed")
    mirror(wanted(source, target, pattern.replace(",", "|"), once=options.has("once")))
    return 0


def wanted(
    source: str, target: str, topics: str, groups: str = "", prefix: str = "", *, once: bool = False
) -> Namespace:
    """The options of `ottla mirror`."""
    return Namespace(
        source=source,
        to=target,
        topics=topics,
        groups=groups,
        prefix=prefix,
        once=once,
        report=None,
        dry_run=False,
    )


def flow(properties: dict[str, str], once: bool) -> Namespace:
    """The one enabled flow `A->B` of a MirrorMaker 2 file."""
    flows = [
        name.removesuffix(".enabled")
        for name, value in properties.items()
        if "->" in name and name.endswith(".enabled") and value.strip() == "true"
    ]
    if len(flows) != 1:
        raise UsageError(f"exactly one flow A->B must be enabled, found {len(flows)}")
    one, _, other = flows[0].partition("->")
    policy = properties.get("replication.policy.class", "")
    prefix = "" if policy.endswith("IdentityReplicationPolicy") else f"{one.strip()}."
    topics = properties.get(f"{flows[0]}.topics", properties.get("topics", ".*"))
    groups = properties.get(f"{flows[0]}.groups", properties.get("groups", ".*"))
    return wanted(
        properties.get(f"{one.strip()}.bootstrap.servers", ""),
        properties.get(f"{other.strip()}.bootstrap.servers", ""),
        topics.replace(",", "|"),
        groups.replace(",", "|"),
        prefix,
        once=once,
    )
