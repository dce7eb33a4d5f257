"""kafka-acls: the lines of Apache Kafka's AclCommand."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from ottla.client.errors import Refused
from ottla.client.similar_names import similar
from ottla.tools.admin import acls
from ottla.tools.admin.acls import CLUSTER_NAME, SUPPORTED, Pattern, Rule
from ottla.tools.kafka_names.common import connect
from ottla.tools.kafka_names.grammar import Options, UsageError
from ottla.tools.kafka_names.java import exception_of
from ottla.tools.kafka_names.main import Failed, complain

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

FLAGS = {
    "topic": "TOPIC",
    "group": "GROUP",
    "transactional-id": "TRANSACTIONAL_ID",
    "delegation-token": "DELEGATION_TOKEN",
    "user-principal": "USER",
}
Wanted = dict[Pattern, list[Rule]]


def run(options: Options) -> int:
    """Checks the flags as AclCommand does, then performs the action."""
    if not options.has("bootstrap-server") and not options.has("bootstrap-controller"):
        raise UsageError("One of --bootstrap-server or --bootstrap-controller must be specified")
    if sum(options.has(name) for name in options.command.actions) != 1:
        raise UsageError("Command must include exactly one action: --list, --add, --remove.")
    check(options)
    try:
        with connect(options) as cluster:
            if options.has("add"):
                add(options, cluster)
            elif options.has("remove"):
                remove(options, cluster)
            else:
                show_all(options, cluster, patterns(options))
    except Refused as refused:
        text = exception_of(refused.number, refused.said)
        raise Failed(text, f"Error while executing ACL command: {text}") from refused
    return 0


def check(options: Options) -> None:
    """Raises UsageError for flags that may not be combined."""
    options.excludes("list", "producer", "consumer", "allow-host", "allow-principal", "deny-host",
                     "deny-principal")
    if options.has("principal") and not options.has("list"):
        raise UsageError("The --principal option is only available if --list is set")
    easy = options.has("producer") or options.has("consumer")
    if options.has("idempotent") and not options.has("producer"):
        raise UsageError("The --idempotent option is only available if --producer is set")
    if easy and (
        options.has("operation") or options.has("deny-principal") or options.has("deny-host")
    ):
        raise UsageError(
            "Option --producer and --consumer cannot be used with --operation, "
            "--deny-principal or --deny-host"
        )
    if options.has("producer") and not options.has("topic"):
        raise UsageError("With --producer you must specify a --topic")
    if options.has("consumer") and (
        not options.has("topic")
        or not options.has("group")
        or (
            not options.has("producer")
            and (options.has("cluster") or options.has("transactional-id"))
        )
    ):
        raise UsageError(
            "With --consumer you must specify a --topic and a --group and no "
            "--cluster or --transactional-id option should be specified."
        )
    kind = pattern_kind(options)
    if options.has("add") and kind in ("ANY", "MATCH"):
        raise UsageError(
            f"A '--resource-pattern-type' value of '{kind}' is not valid when adding acls."
        )


def pattern_kind(options: Options) -> str:
    """The value of --resource-pattern-type: LITERAL, PREFIXED, ANY or MATCH. Raises UsageError."""
    kind = options.one("resource-pattern-type", "literal").upper()
    if kind not in acls.PATTERNS:
        raise UsageError(f"Invalid resource-pattern-type '{kind}'")
    return kind


def patterns(options: Options, *, needed: bool = False) -> list[Pattern]:
    """The resources that the flags name."""
    kind = pattern_kind(options)
    resources = [
        Pattern(resource, name.strip(), kind)
        for flag, resource in FLAGS.items()
        for name in options.all(flag)
    ]
    if options.has("cluster"):
        resources.append(Pattern("CLUSTER", CLUSTER_NAME, "LITERAL"))
    if not resources and needed:
        raise UsageError(
            "You must provide at least one resource: --topic <topic> or --cluster or "
            "--group <group> or --delegation-token <Delegation Token ID>"
        )
    return resources


def principals(options: Options, flag: str) -> list[str]:
    """Principals in the form Type:name. Raises Failed for any other text."""
    for text in options.all(flag):
        if ":" not in text:
            reason = f"expected a string in format principalType:principalName but got {text}"
            raise Failed(reason, f"Error while executing ACL command: {reason}")
    return [text.strip() for text in options.all(flag)]


def rules(options: Options, operations: list[str], *, needed: bool) -> list[Rule]:
    """The rules that the flags describe."""
    parsed = []
    for permission in ("ALLOW", "DENY"):
        who = principals(options, f"{permission.lower()}-principal")
        if options.has(f"{permission.lower()}-host") and not who:
            raise UsageError("You must specify principals where you specify hosts")
        hosts = [one.strip() for one in options.all(f"{permission.lower()}-host")] or ["*"]
        parsed += [
            Rule(principal, host, operation, permission)
            for principal in who
            for host in hosts
            for operation in operations
        ]
    if not parsed and needed:
        raise UsageError(
            "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."
        )
    return parsed


def operation_of(text: str) -> str:
    """Converts a name such as AlterConfigs to ALTER_CONFIGS, and an unknown name to UNKNOWN."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text.strip()).upper()
    return name if name in acls.OPERATIONS else "UNKNOWN"


def wanted(options: Options, *, needed: bool) -> Wanted:
    """The rules for each resource, including the rules for --producer, --consumer and
    --idempotent. Raises UsageError if no flag names a resource or, with `needed`, a principal."""
    found = patterns(options, needed=True)
    if not (options.has("producer") or options.has("consumer")):
        operations = [operation_of(one) for one in options.all("operation")] or ["ALL"]
        all_rules = rules(options, operations, needed=needed)
        for pattern in found:
            known = SUPPORTED[pattern.resource]
            if wrong := [one for one in options.all("operation") if operation_of(one) not in known]:
                raise UsageError(
                    f"--operation {wrong[0].strip()}: ResourceType {pattern.resource} only supports"
                    f" operations [{', '.join(known)}]{similar(wrong[0].strip(), known)}"
                )
        return dict.fromkeys(found, all_rules)
    result: Wanted = {}

    def put(pattern: Pattern, *operations: str) -> None:
        made = rules(options, list(operations), needed=needed)
        known = result.setdefault(pattern, [])
        known += [rule for rule in made if rule not in known]

    for pattern in found:
        if options.has("producer") and pattern.resource == "TOPIC":
            put(pattern, "WRITE", "DESCRIBE", "CREATE")
        if options.has("producer") and pattern.resource == "TRANSACTIONAL_ID":
            put(pattern, "WRITE", "DESCRIBE")
        if options.has("consumer") and pattern.resource == "TOPIC":
            put(pattern, "READ", "DESCRIBE")
        if options.has("consumer") and pattern.resource == "GROUP":
            put(pattern, "READ")
    if options.has("idempotent"):
        put(Pattern("CLUSTER", CLUSTER_NAME, "LITERAL"), "IDEMPOTENT_WRITE")
    return result


def line(rule: Rule) -> str:
    """A rule as Java prints it."""
    return (
        f"(principal={rule.principal}, host={rule.host}, operation={rule.operation}, "
        f"permissionType={rule.permission})"
    )


def about(pattern: Pattern) -> str:
    """A resource as Java prints it."""
    return (
        f"ResourcePattern(resourceType={pattern.resource}, name={pattern.name}, "
        f"patternType={pattern.kind})"
    )


def add(options: Options, cluster: ClusterClient) -> None:
    chosen = wanted(options, needed=True)
    for pattern, its_rules in chosen.items():
        lines = "\n".join(f"\t{line(rule)}" for rule in its_rules)
        print(f"Adding ACLs for resource `{about(pattern)}`: \n {lines}\n")
    acls.create(cluster, [(pattern, rule) for pattern, its in chosen.items() for rule in its])
    # Unlike Kafka's tool, warn about a rule that matches no client.
    every = [(rule.principal or "", rule.host or "") for its in chosen.values() for rule in its]
    for why in dict.fromkeys(acls.why_for_nobody(*each) for each in every):
        if why:
            complain("kafka-acls", f"an added rule matches no client: {why}")


def remove(options: Options, cluster: ClusterClient) -> None:
    for pattern, its_rules in wanted(options, needed=False).items():
        what = "all ACLs" if not its_rules else f"ACLs: {', '.join(map(line, its_rules))}"
        if confirmed(
            options,
            f"Are you sure you want to remove {what} from resource filter "
            f"`{about(pattern)}`? (y/n)",
        ):
            acls.delete(
                cluster, [(pattern, rule) for rule in its_rules] or [(pattern, acls.ANY_RULE)]
            )


def confirmed(options: Options, question: str) -> bool:
    """Whether the user agrees, now or by --force."""
    if options.has("force"):
        return True
    print(question)
    return sys.stdin.readline().strip().lower() == "y"


def show_all(options: Options, cluster: ClusterClient, filters: list[Pattern]) -> None:
    by_pattern: dict[Pattern, list[Rule]] = {}
    for pattern in filters or [Pattern("ANY", None, "ANY")]:
        for about_it, its_rules in acls.describe(cluster, pattern).items():
            known = by_pattern.setdefault(about_it, [])
            known += [rule for rule in its_rules if rule not in known]
    who = principals(options, "principal")
    if not who:
        show(by_pattern, None)
    for principal in who:
        print(f"ACLs for principal `{principal}`")
        show(by_pattern, principal)


def show(found: dict[Pattern, list[Rule]], principal: str | None) -> None:
    for pattern, its_rules in sorted(found.items(), key=lambda item: tuple(map(str, item[0]))):
        lines = [
            f"\t{line(rule)}"
            for rule in sorted(its_rules, key=str)
            if principal is None or rule.principal == principal
        ]
        if lines:
            shown = "\n".join(lines)
            print(f"Current ACLs for resource `{about(pattern)}`:\n{shown}\n")
