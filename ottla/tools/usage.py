"""Errors in a command line.

After such an error, Ottla's own commands exit with status 2. The tools that `ottla` offers under
the names of Kafka's tools and kcat exit with status 1.
"""

from __future__ import annotations

from ottla.client.errors import ClientError, why_illegal


class WrongUsage(ClientError):
    """The command line is wrong, whatever a broker would answer."""


def one_of(**flags: object) -> None:
    """Raises WrongUsage if more than one flag is given. `flags` has their values by name."""
    given = [f"--{name.replace('_', '-')}" for name, value in flags.items() if is_given(value)]
    if len(given) > 1:
        raise WrongUsage(f"{given[0]} and {given[1]} exclude each other: give one of them")


def without_effect(why: str, **flags: object) -> None:
    """Raises WrongUsage if one of these flags is given. `why` is the end of the message, such as
    "without -i jsonl"."""
    for name, value in flags.items():
        if is_given(value):
            raise WrongUsage(f"--{name.replace('_', '-')} has no effect {why}")


def check_topic_name(name: str) -> None:
    """Raises WrongUsage for a name that no topic can have."""
    from ottla.replication.topic_names import is_legal_name

    if not is_legal_name(name):
        raise WrongUsage(why_illegal(f"topic {name!r}", name))


def is_given(value: object) -> bool:
    """Whether the flag with this value was given. The value 0 counts as given."""
    return value is not None and value is not False and value != []
