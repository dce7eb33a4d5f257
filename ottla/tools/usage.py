"""A command line that is wrong: exit status 2 of `ottla`, 1 under Kafka's names and kcat's."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ottla.client.errors import ClientError
from ottla.client.similar_names import unrecognized


class WrongUsage(ClientError):
    """A command line that is wrong without asking a broker."""


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line, and name similar flags."""

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        chosen, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(unrecognized(unknown, self._option_string_actions))
        return chosen

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")
