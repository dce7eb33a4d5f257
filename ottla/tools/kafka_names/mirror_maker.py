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
    wanted = flags(one_of(pattern), once=options.has("once"))
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


def one_of(patterns: str, but: str = "") -> str:
    """The regular expression for names that match one of these patterns, but none of `but`. Commas
    separate patterns, and spaces around them do not count."""
    joined = "|".join(part.strip() for part in patterns.split(",") if part.strip())
    return rf"(?!(?:{one_of(but)})\Z)(?:{joined})" if but.strip() else joined


def flow(properties: dict[str, str], once: bool) -> None:
    """Copies along the one flow `A->B` that a file of MirrorMaker 2 enables."""
    flows = [
        name.removesuffix(".enabled")
        for name, value in properties.items()
        if "->" in name and name.endswith(".enabled") and value.strip().lower() == "true"
    ]
    if len(flows) != 1:
        raise UsageError(
            f"the property file enables {len(flows)} flows: enable exactly one, with a line such as"
            " A->B.enabled=true")
    one, other = (name.strip() for name in flows[0].split("->", 1))
    policy = properties.get("replication.policy.class", "")
    prefix = "" if policy.endswith("IdentityReplicationPolicy") else f"{one}."

    def of_flow(what: str) -> str:
        """The names that the flow copies, without those that the file excludes."""
        def given(name: str, default: str) -> str:
            return properties.get(f"{flows[0]}.{name}", properties.get(name, default))

        former = given(f"{what}.blacklist", "")         # Kafka's former name
        return one_of(given(what, ".*"), given(f"{what}.exclude", former))

    wanted = flags(of_flow("topics"), of_flow("groups"), prefix, once=once)
    mirror_between(wanted, of_cluster(properties, one), of_cluster(properties, other))


def of_cluster(properties: dict[str, str], name: str) -> dict[str, str]:
    """The client properties of one cluster: the properties that begin with the cluster's name."""
    return {
        key.removeprefix(f"{name}."): value
        for key, value in properties.items()
        if key.startswith(f"{name}.")
    }
