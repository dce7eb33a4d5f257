"""Flags that Apache Kafka's tools and other programs have, and that users try here too."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from difflib import get_close_matches

SERVERS = ("--bootstrap-server",)
BEGINNING = ("--offset beginning", "--to beginning", "--starting earliest")
END = ("--offset end", "--to end", "--starting latest")
LIMIT = ("--count", "--records", "--limit")
LISTENERS = "--override listeners=PLAINTEXT://HOST:PORT"

WORDS: dict[str, tuple[str, ...]] = {
    "--assume-yes": ("--yes",),
    "--at": ("--offset @TIME", "--to @TIME", "--since"),
    "--batch-size": ("--batch-bytes", "--records-per-batch"),
    "--beginning": BEGINNING,
    "--broker": SERVERS,
    "--broker-list": SERVERS,
    "--brokers": SERVERS,
    "--by-duration": ("--to @TIME",),
    "--client-config": ("--command-config",),
    "--codec": ("--compression",),
    "--compression-codec": ("--compression",),
    "--config-file": ("--command-config",),
    "--consumer-config": ("--command-config", "--from-config"),
    "--consumer-property": ("--property",),
    "--consumer.config": ("--command-config", "--from-config"),
    "--data-dir": ("--override log.dirs=DIR",),
    "--destination": ("--to", "--path"),
    "--earliest": BEGINNING,
    "--end": ("--exit", "--to end", "--until"),
    "--eof": ("--exit",),
    "--execute": ("--yes",),
    "--force": ("--yes",),
    "--format": ("--input",),
    "--from": ("--offset OFFSET", "--to OFFSET", "--since", "--starting", "--source", "--at"),
    "--from-beginning": BEGINNING,
    "--from-end": END,
    "--group-id": ("--group",),
    "--json": ("--output json",),
    "--latest": END,
    "--limit": LIMIT[:2],
    "--listeners": (LISTENERS,),
    "--log-dirs": ("--override log.dirs=DIR",),
    "--max-messages": LIMIT,
    "--messages": LIMIT,
    "--num-records": LIMIT,
    "--port": (LISTENERS, "--listen HOST:PORT"),
    "--producer-config": ("--command-config", "--to-config"),
    "--producer-property": ("--property",),
    "--producer.config": ("--command-config", "--to-config"),
    "--record-size": ("--size",),
    "--replicas": ("--replication-factor",),
    "--request-required-acks": ("--acks",),
    "--rf": ("--replication-factor",),
    "--servers": SERVERS,
    "--shift-by": ("--to +N",),
    "--since": ("--offset @TIME", "--to @TIME", "--at"),
    "--source": ("--from",),
    "--start": BEGINNING,
    "--start-offset": ("--offset OFFSET",),
    "--throughput": ("--rate",),
    "--time": ("--at",),
    "--timeout-ms": ("--timeout",),
    "--to-datetime": ("--to @TIME",),
    "--to-earliest": BEGINNING,
    "--to-latest": END,
    "--to-offset": ("--to OFFSET", "--offset OFFSET"),
    "--whitelist": ("--topics",),
}
"""Flags of other programs, each with the flags of `ottla` for the same purpose, some followed by
the value to give. An error suggests the first of these flags that the command has."""

TAKES: dict[str, tuple[str | None, ...]] = {
    "--offset": ("OFFSET",), "--output": (None, "FORMAT"), "--override": ("KEY=VALUE",),
    "--to": ("OFFSET",),
}
"""Flags of `ottla` whose values mean different things in different commands. A flag with a value in
WORDS is suggested only if the command names that value (metavar) by one of these names."""


def meant(flag: str) -> str:
    """The flag of another program that is most similar to a mistyped one, or ""."""
    return next(iter(get_close_matches(flag, WORDS, 1, 0.8)), "")


def ours(flag: str, known: Mapping[str, argparse.Action], given: str | None = None) -> str:
    """For example, returns "; similar: --to beginning" for --to-earliest if the command has --to.
    Returns "" if the command has no flag for the purpose of `flag`. `given` is the value that the
    user gave to `flag`. With it, a similar flag that has choices is returned with the nearest
    choice and a list of all: "; similar: --input jsonl (known values: lines, jsonl, raw)" for
    --format and the value JSON."""
    for text in WORDS.get(flag, ()):
        name, _, value = text.partition(" ")
        if name in known and (not value or known[name].metavar in TAKES.get(
            name, (known[name].metavar,)
        )):
            choices = [str(one) for one in known[name].choices or ()]
            if value or given is None or not choices:
                return f"; similar: {text}"
            nearest = get_close_matches(given.lower(), choices, 1)
            return f"; similar: {' '.join([text, *nearest])} (known values: {', '.join(choices)})"
    return ""
