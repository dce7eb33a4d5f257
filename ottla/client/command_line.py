"""The parser of all command lines except those of Kafka's tools. Errors have one line, and name
similar flags and choices.

Brokers use this module too, so it imports only argparse until there is an error.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors have one line and suggest similar flags and choices. Parsers
    of sub-commands are of this class, too, and report errors under their own name."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Reports unknown arguments, as `parse_args` does. argparse's own method returns them."""
        if args is not None:
            self._check_flags(args)
        chosen, unknown = super().parse_known_args(args, namespace)
        if unknown:
            from ottla.client.similar_names import similar

            near = similar(unknown[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return chosen, []

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")

    def _check_flags(self, args: Sequence[str]) -> None:
        """Reports a flag such as `--topic orders` if the command takes the topic without a flag."""
        for at, word in enumerate(args):
            flag, equals, value = word.partition("=")
            name = flag.removeprefix("--").removesuffix("s")
            if word == "--":
                return
            if not name or flag[:2] != "--" or flag in self._option_string_actions:
                continue
            for action in self._get_positional_actions():
                if name == action.dest.removesuffix("s") and action.choices is None:
                    given = value if equals else " ".join(args[at + 1:at + 2])
                    if not given or given[0] == "-":
                        given = action.dest.upper()
                    self.error(f"{flag} is not a flag of this command: write the {action.dest}"
                               f" without it: {self.prog} {given}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """For a wrong choice, names the similar choices, or all choices if none is similar."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            from ottla.client.similar_names import similar

            if near := similar(str(value), map(str, action.choices or ())):
                error.message = f"invalid choice: {str(value)!r}{near}"
            raise
