"""`ottla quota …` and `ottla user …`."""

from __future__ import annotations

import getpass
import sys
from argparse import ArgumentTypeError, Namespace
from pathlib import Path

from ottla.client.command_line import INT64_MOST, decimal
from ottla.client.errors import ClientError, Refused
from ottla.client.similar_names import similar
from ottla.replication.controller.scram import ITERATIONS_MAX, ITERATIONS_MIN
from ottla.replication.principals import CLIENT_KEYS, IP_KEYS
from ottla.tools.admin import configs
from ottla.tools.cli.bootstrap import connect
from ottla.tools.cli.output import confirm, done
from ottla.tools.cli.output import show as print_rows
from ottla.tools.cli.units import without_units
from ottla.tools.properties import once
from ottla.tools.usage import WrongUsage
from ottla.wire.wording import counted

KINDS = {"user": "user", "client": "client-id", "ip": "ip"}
SHOWN = {kind: name for name, kind in KINDS.items()}


def entity_of(words: list[str]) -> tuple[dict[str, str | None], list[str]]:
    """The leading entities, such as `user/alice client/app`, and the remaining words."""
    entity: dict[str, str | None] = {}
    rest = list(words)
    while rest and "/" in rest[0] and "=" not in rest[0].partition("/")[0]:
        kind, _, name = rest[0].partition("/")
        if kind not in KINDS or not name:
            break
        if KINDS[kind] in entity:
            raise WrongUsage(f"{rest[0]}: {kind}/ is given twice; quotas are set for one {kind}")
        entity[KINDS[kind]] = None if name == "default" else name
        rest.pop(0)
    if not entity or not rest:
        kind = words[0].partition("/")[0]
        near = similar(kind, KINDS) if kind not in KINDS else ""
        raise WrongUsage(
            f"{' '.join(words)!r}: expected user/NAME, client/ID or ip/ADDRESS, then the quotas to"
            f" change{near}")
    return entity, rest


def show(options: Namespace) -> None:
    with connect(options) as cluster:
        quotas = configs.quotas(cluster, [])
    print_rows(
        options,
        ("entity", "quota", "value"),
        (
            {
                "entity": " ".join(
                    f"{SHOWN.get(kind, kind)}/{name if name is not None else 'default'}"
                    for kind, name in sorted(entity.items(), reverse=True)
                ),
                "quota": key,
                "value": value,
            }
            for entity, values in quotas
            for key, value in sorted(values.items())
        ),
    )


def set_values(options: Namespace) -> None:
    entity, rest = entity_of(options.entity)
    numbers = {}
    for key, value in without_units(once(rest, "quota")).items():
        try:
            numbers[key] = decimal(value)
            if abs(numbers[key]) > INT64_MOST:
                raise WrongUsage(f"{key}={value}: expected a number up to {INT64_MOST}")
        except ArgumentTypeError:
            raise WrongUsage(f"{key}={value}: expected a number") from None
    _alter(options, entity, numbers, [])
    done(options, f"set {', '.join(rest)} of {' '.join(options.entity[: -len(rest)])}")


def delete(options: Namespace) -> None:
    entity, rest = entity_of(options.entity)
    _alter(options, entity, {}, rest)
    done(options, f"removed {', '.join(rest)} of {' '.join(options.entity[: -len(rest)])}")


def _alter(
    options: Namespace, entity: dict[str, str | None], numbers: dict[str, float], removed: list[str]
) -> None:
    known = IP_KEYS if "ip" in entity else CLIENT_KEYS
    # A broker silently ignores the removal of an unknown quota.
    if strange := [key for key in removed if key not in known]:
        raise ClientError(f"there is no quota {strange[0]!r}{similar(strange[0], known)}")
    with connect(options) as cluster:
        try:
            configs.alter_quotas(cluster, entity, numbers, removed, dry_run=options.dry_run)
        except Refused as error:
            if strange := [key for key in numbers if key not in known]:
                error.args = (f"{error}{similar(strange[0], known)}", *error.args[1:])
            raise


def users(options: Namespace) -> None:
    numbers = {number: name for name, (number, _) in configs.MECHANISMS.items()}
    with connect(options) as cluster:
        credentials = configs.scram_users(cluster)
    print_rows(
        options,
        ("user", "mechanism", "iterations"),
        (
            {
                "user": one.user,
                "mechanism": numbers.get(item.mechanism),
                "iterations": item.iterations,
            }
            for one in credentials
            if not one.error_code
            for item in one.credential_infos
        ),
    )


def password_of(options: Namespace) -> str:
    """Reads the password. It is never on the command line, where other users could see it."""
    if options.password_file:
        try:
            text = Path(options.password_file).read_text(encoding="utf-8").rstrip("\n")
        except UnicodeDecodeError as wrong:
            raise ClientError(
                f"the file {options.password_file} is not UTF-8 text: {wrong.reason} at byte"
                f" {wrong.start}") from None
    elif sys.stdin.isatty():
        text = getpass.getpass(f"password of {options.user}: ")
        if getpass.getpass("the same again: ") != text:
            raise ClientError("the two passwords differ")
    else:
        text = sys.stdin.readline().rstrip("\n")
    if not text:
        where = f"the file {options.password_file}" if options.password_file else (
            "the typed line" if sys.stdin.isatty() else "the first line of standard input")
        raise ClientError(
            f"{where} has no password, and an empty password is not accepted. Type the password on"
            " a terminal, or give a file that contains only the password: --password-file FILE")
    return text


def set_user(options: Namespace) -> None:
    mechanism = options.mechanism or "SCRAM-SHA-256"
    iterations = options.iterations or configs.SCRAM_ITERATIONS
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise WrongUsage(
            f"--iterations {iterations}: expected {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    password = password_of(options)
    with connect(options) as cluster:
        if options.dry_run:
            configs.scram_users(cluster)                # fails if no broker answers
        else:
            configs.set_scram(cluster, options.user, mechanism, password, iterations)
    done(options, f"set a {mechanism} credential of user {options.user}")


def delete_user(options: Namespace) -> None:
    names = {number: name for name, (number, _) in configs.MECHANISMS.items()}
    with connect(options) as cluster:
        found = [
            item.mechanism
            for one in configs.scram_users(cluster, [options.user])
            if not one.error_code
            for item in one.credential_infos
        ]
        if not found:
            others = [one.user for one in configs.scram_users(cluster)]
            near = similar(options.user, others) or "; to see all users: ottla user list"
            raise ClientError(f"user {options.user!r} has no credentials{near}")
        confirm(options, f"deleting the credentials of {options.user}", options.user)
        if not options.dry_run:
            for mechanism in found:
                configs.delete_scram(cluster, options.user, names[mechanism])
    done(options, f"deleted {counted(len(found), 'credential')} of user {options.user}")
