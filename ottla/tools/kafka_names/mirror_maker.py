"""kafka-mirror-maker: runs `ottla mirror` with MirrorMaker 1's flags or MirrorMaker 2's file."""

from __future__ import annotations

from argparse import Namespace

from ottla.tools.cli.mirror import mirror_between
from ottla.tools.kafka_names.grammar import Options, UsageError
from ottla.tools.properties import read_client_properties, read_properties


def run(options: Options) -> int:
    """Copies topics, with the flags of MirrorMaker 1 or a property file of MirrorMaker 2."""
    if options.positional:
        path = options.positional.pop(0)
        options.only_flags()
        for name in ("consumer.config", "producer.config", "include", "whitelist"):
            if options.has(name):
                raise UsageError(f"--{name} cannot be used with a property file of MirrorMaker 2")
        flow(read_properties(path), options.has("once"))
        return 0
    options.needs("consumer.config", "producer.config")
    source = read_client_properties(options.one("consumer.config"))
    target = read_client_properties(options.one("producer.config"))
    pattern = options.one("include") or options.one("whitelist")
    if not pattern:
        raise UsageError("--include is missing: name the topics to copy")
    for flag, properties in (("consumer.config", source), ("producer.config", target)):
        if not properties.get("bootstrap.servers"):
            raise UsageError(f"--{flag} {options.one(flag)}: bootstrap.servers is missing")
    wanted = flags(pattern.replace(",", "|"), once=options.has("once"))
    mirror_between(wanted, source, target)
    return 0


def flags(topics: str, groups: str = "", prefix: str = "", *, once: bool = False) -> Namespace:
    """The options of `ottla mirror`."""
    return Namespace(
        source="",
        to="",
        topics=topics,
        groups=groups,
        prefix=prefix,
        once=once,
        report=None,
        dry_run=False,
    )


def flow(properties: dict[str, str], once: bool) -> None:
    """Copies along the one flow `A->B` that a file of MirrorMaker 2 enables."""
    flows = [
        name.removesuffix(".enabled")
        for name, value in properties.items()
        if "->" in name and name.endswith(".enabled") and value.strip() == "true"
    ]
    if len(flows) != 1:
        raise UsageError(
            f"the property file enables {len(flows)} flows: enable exactly one, with a line such as"
            " A->B.enabled=true")
    one, other = (name.strip() for name in flows[0].split("->", 1))
    policy = properties.get("replication.policy.class", "")
    prefix = "" if policy.endswith("IdentityReplicationPolicy") else f"{one}."
    topics = properties.get(f"{flows[0]}.topics", properties.get("topics", ".*"))
    groups = properties.get(f"{flows[0]}.groups", properties.get("groups", ".*"))
    wanted = flags(topics.replace(",", "|"), groups.replace(",", "|"), prefix, once=once)
    mirror_between(wanted, of_cluster(properties, one), of_cluster(properties, other))


def of_cluster(properties: dict[str, str], name: str) -> dict[str, str]:
    """The client properties of one cluster: the properties that begin with the cluster's name."""
    return {
        key.removeprefix(f"{name}."): value
        for key, value in properties.items()
        if key.startswith(f"{name}.")
    }
