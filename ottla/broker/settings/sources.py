"""The sources of a broker's properties: a file, the environment, overrides; later ones win.

Values may refer to secrets by `config.providers`, as in Kafka (KIP-297, KIP-421).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ottla.broker.settings.declaration import SettingsError
from ottla.broker.settings.environment import from_environment
from ottla.broker.settings.properties import LINE_ENDS, numbered_entries
from ottla.broker.settings.providers import resolve
from ottla.wire.units import as_typed

WITHOUT_A_FILE = {"listeners": "PLAINTEXT://localhost:9092", "log.dirs": "./data"}
NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


class Sources(NamedTuple):
    """The sources given on the command line; SIGHUP reads them again."""

    path: Path | None = None
    overrides: Sequence[str] = ()
    environment: Mapping[str, str] | None = None
    """None if the environment is not used; `--env` enables it."""
    typed: Mapping[str, str] = MappingProxyType({})
    """The overrides as they were typed, with the units that `overrides` lack; error messages show
    them."""

    def details(self, error: Exception) -> str:
        """The end of an error message about a setting. It shows the value as it was typed, with its
        unit, and where the value comes from: the line of the file, or the variable."""
        name = error.name if isinstance(error, SettingsError) else ""
        if not name:
            return ""
        typed = as_typed(name, self.typed[name]) if name in self.typed else ""
        try:
            where = self.gather()[1].get(name, "--override")
        except (SettingsError, OSError):
            return typed                        # the error itself is about the file
        known = where == "--override" or where in str(error)
        return typed if known else f"{typed} ({where})"

    def read(self) -> dict[str, str]:
        """The properties by name. Raises SettingsError or OSError."""
        return resolve(*self.gather(), os.environ)

    def gather(self) -> tuple[dict[str, str], dict[str, str]]:
        """The properties as they are written, by name, and the place where each was set (none
        for a default). Raises SettingsError or OSError."""
        given: list[tuple[str, str]] = []
        # Check the overrides before reading the file. If an override lacks the "=" between name and
        # value, the command line may take the value for the file's path.
        for override in self.overrides:
            name, equals, value = override.partition("=")
            if not equals or not name.strip():
                raise SettingsError("--override", f"{override!r} is not of the form name=value")
            given.append((name.strip(), value.strip()))
        texts = dict(WITHOUT_A_FILE)
        where: dict[str, str] = {}
        if self.path is not None:
            texts = {}
            for number, name, value in read_file(self.path):
                texts[name], where[name] = value, f"{self.path}, line {number}"
        if self.environment is not None:
            for name, (value, variable) in from_environment(self.environment).items():
                texts[name], where[name] = value, variable
        for name, value in given:
            texts[name], where[name] = value, "--override"
        if "log.dir" in texts and "log.dirs" not in where:
            texts.pop("log.dirs", None)         # it comes from WITHOUT_A_FILE, not from the user
        return texts, where


def read_file(path: Path) -> list[tuple[int, str, str]]:
    """Line number, name and value of each entry. Raises SettingsError or OSError."""
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")           # as Java reads it
    if found := NO_TEXT.search(text):
        line = len(LINE_ENDS.findall(text, 0, found.start())) + 1
        raise SettingsError(
            str(path), f"is not a text file: line {line} has the byte {found[0]!r}"
        )
    start = text.lstrip()[:1]
    if start in ("{", "["):
        raise SettingsError(
            str(path), "appears to be JSON; a properties file has lines of the form name=value"
        )
    if text.lstrip().startswith("-----BEGIN "):
        raise SettingsError(
            str(path), "is a certificate or a key in PEM form; a properties file has lines of the"
            " form name=value, such as ssl.truststore.location=" + path.name
        )
    try:
        entries = list(numbered_entries(text))
    except ValueError as error:
        raise SettingsError(str(path), str(error)) from error
    for number, name, _ in entries:
        if not name:
            raise SettingsError(str(path), f"line {number} has no name before its separator")
    return entries
