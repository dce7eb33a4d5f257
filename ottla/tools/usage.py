"""Errors in a command line: exit status 2 of `ottla`, 1 of Kafka's tools and kcat."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ottla.client.errors import ClientError
from ottla.client.similar_names import unrecognized


class WrongUsage(ClientError):
    """The command line is wrong, whatever a broker would answer."""


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors have one line and suggest similar flags."""

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        chosen, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(unrecognized(unknown, self._option_string_actions))
        return chosen

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")
