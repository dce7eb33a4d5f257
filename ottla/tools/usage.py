"""Errors in a command line: exit status 2 of `ottla`, 1 of Kafka's tools and kcat."""

from __future__ import annotations

from ottla.client.errors import ClientError, why_illegal


class WrongUsage(ClientError):
    """The command line is wrong, whatever a broker would answer."""


def one_of(**flags: object) -> None:
    """Raises WrongUsage if more than one flag is given. `flags` has their values by their names."""
    given = [f"--{name.replace('_', '-')}" for name, value in flags.items() if is_given(value)]
    if len(given) > 1:
        raise WrongUsage(f"{given[0]} and {given[1]} exclude each other: give one of them")


def without_effect(why: str, **flags: object) -> None:
    """Raises WrongUsage if one of these flags is given, which have no effect because of `why`."""
    for name, value in flags.items():
        if is_given(value):
            raise WrongUsage(f"--{name.replace('_', '-')} has no effect {why}")


def check_topic_name(name: str) -> None:
    """Raises WrongUsage for a name that no topic can have."""
    from ottla.replication.topic_names import is_legal_name

    if not is_legal_name(name):
        raise WrongUsage(why_illegal(f"topic {name!r}", name))


def is_given(value: object) -> bool:
    """Whether a command line has the flag of this value; 0 may be such a value."""
    return value is not None and value is not False and value != []
