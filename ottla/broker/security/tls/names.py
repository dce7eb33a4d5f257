"""A certificate's subject as Java writes it (RFC 2253), and the rules that map it to a principal
(KIP-371).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ottla.broker.settings.declaration import SettingsError
from ottla.wire.patterns import InvalidPattern, Pattern, compiled

KEYWORDS = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET",
    "2.5.4.10": "O", "2.5.4.11": "OU", "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""Attributes with a name in RFC 2253; others are written as their OID and encoded value."""
ENCODINGS = {
    0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
"""Tags of string types: UTF8, Printable, Teletex, IA5, Universal, BMP."""
ESCAPED = re.compile(r'([,=+<>#;"\\])')
RULE = re.compile(
    r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)", re.DOTALL
)


def elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The tag, content and whole encoding of each element of a DER sequence. Raises ValueError."""
    at = 0
    while at < len(data):
        begin = at
        if len(data) - at < 2:
            raise ValueError("a DER element has no length")
        tag, size = data[at], data[at + 1]
        at += 2
        if size & 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4 or len(data) - at < count:
                raise ValueError("a DER element has an invalid length")
            size = int.from_bytes(data[at : at + count], "big")
            at += count
        if len(data) - at < size:
            raise ValueError("a DER element is longer than its container")
        yield tag, data[at : at + size], data[begin : at + size]
        at += size


def subject_of(certificate: bytes) -> str:
    """The subject of a DER certificate as Java writes it: its attributes are in the reverse of
    their order in the certificate."""
    _, body, _ = next(elements(certificate))
    _, signed, _ = next(elements(body))
    fields = [each for each in elements(signed) if each[0] != 0xA0]     # without the version
    _, subject, _ = fields[4]   # after serial number, algorithm, issuer, validity
    names = []
    for _, parts, _ in elements(subject):
        names.append("+".join(_attribute(part) for _, part, _ in elements(parts)))
    return ",".join(reversed(names))


def _attribute(encoded: bytes) -> str:
    (_, number, _), (tag, value, whole) = elements(encoded)
    dotted = _dotted(number)
    keyword = KEYWORDS.get(dotted)
    if keyword is None or tag not in ENCODINGS:
        return f"{keyword or dotted}=#{whole.hex()}"
    text = ESCAPED.sub(r"\\\1", value.decode(ENCODINGS[tag])).replace("\0", "\\00")
    inner = text.strip(" ")
    before, after = len(text) - len(text.lstrip(" ")), len(text) - len(text.rstrip(" "))
    if not inner:
        before = 0
    return f"{keyword}=" + "\\ " * before + inner + "\\ " * after


def _dotted(data: bytes) -> str:
    numbers, value = [], 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


class PrincipalRules:
    """`ssl.principal.mapping.rules`: the first rule that matches the whole subject applies."""

    def __init__(self, text: str) -> None:
        """Read the rules. Raises SettingsError."""
        self.rules: list[tuple[Pattern | None, str, str]] = []
        at = 0
        text = text.strip()
        while at < len(text):
            match = RULE.match(text, at)
            if match is None:
                raise SettingsError(
                    "ssl.principal.mapping.rules",
                    f"{text[at:]!r} is neither DEFAULT nor RULE:pattern/replacement/[LU]",
                )
            at = match.end()
            default, pattern, replacement, case = match.groups()
            try:
                rule = None if default else compiled(pattern.replace("\\/", "/"), captures=True)
            except InvalidPattern as error:
                raise SettingsError(
                    "ssl.principal.mapping.rules", str(error)
                ) from error
            self.rules.append((rule, replacement or "", case or ""))

    def name(self, subject: str) -> str:
        """The principal's name for a subject. Raises LookupError if no rule matches."""
        for pattern, replacement, case in self.rules:
            if pattern is None:
                return subject
            match = pattern.fullmatch(subject)
            if match is None:
                continue
            name = _replaced(match, replacement)
            return name.lower() if case == "L" else name.upper() if case == "U" else name
        raise LookupError(f"no rule of ssl.principal.mapping.rules matches {subject}")


def _replaced(match: Any, replacement: str) -> str:
    """The replacement with `$1` and the like filled in, as in Java; a backslash escapes the
    next character."""

    def part(matched: re.Match[str]) -> str:
        escaped, number = matched.groups()
        return escaped if escaped is not None else match[int(number)] or ""

    return re.sub(r"\\(.)|\$(\d)", part, replacement)
