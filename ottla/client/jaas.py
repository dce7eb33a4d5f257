"""Reads JAAS configuration texts, `Module required name="value" …;`, like Kafka's JaasConfig.

A word is bare, or in double or single quotes. Within quotes, a backslash escapes a character. `//`,
`#` and `/* */` are comments. A text has one login module.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FLAGS = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/)
      | "(?P<double>(?:[^"\\\n]|\\.)*)"
      | '(?P<single>(?:[^'\\\n]|\\.)*)'
      | (?P<mark>[=;])
      | (?P<word>[^\s=;"'/]+)""",
    re.VERBOSE | re.DOTALL,
)
ESCAPE = re.compile(r"\\([0-7]{1,3}|.)", re.DOTALL)
LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


class JaasError(ValueError):
    """A text is not a JAAS configuration. The message never quotes the text, which may contain
    secrets."""


@dataclass(frozen=True)
class LoginModule:
    """A login module and its options. Its text form hides the options."""

    name: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name})"


def parse_jaas(text: str) -> LoginModule:
    """The one login module of a text. Raises JaasError."""
    tokens = _tokens(text)
    if not tokens:
        raise JaasError("Login module not specified in JAAS config")
    name, at = tokens[0][1], 1
    if at >= len(tokens) or tokens[at][1].upper() not in FLAGS:
        raise JaasError("Login module control flag not specified in JAAS config")
    at += 1
    options: dict[str, str] = {}
    while at < len(tokens) and tokens[at] != ("mark", ";"):
        key = tokens[at][1]
        if len(tokens) < at + 3 or tokens[at + 1] != ("mark", "=") or tokens[at + 2][0] == "mark":
            # Kafka's message names the key. This message does not: the key may be a part of a
            # password that should have been quoted.
            raise JaasError(f"Value not specified for option {len(options) + 1} in JAAS config")
        options[key] = tokens[at + 2][1]
        at += 3
    if at >= len(tokens):
        raise JaasError("JAAS config entry not terminated by semi-colon")
    if at + 1 < len(tokens):
        raise JaasError("JAAS config property contains more than 1 login module, should be 1")
    return LoginModule(name, options)


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise JaasError(f"the quotation at character {at + 1} of the JAAS config does not end")
        at = match.end()
        kind = match.lastgroup or ""
        if kind == "blank":
            continue
        value = match[kind]
        if kind in ("double", "single"):
            value = ESCAPE.sub(_character, value)
        found.append((kind, value))
    return found


def _character(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else LETTERS.get(escaped, escaped)
