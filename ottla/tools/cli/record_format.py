"""Formats a record as text, with kcat's tokens, and with rpk's tokens and modifiers.

`%k %v %t %p %o` and so on stand for parts of a record. A modifier in braces says how to write the
part: `%v{hex}`, `%V{big32}`, `%d{strftime[%F]}`, `%h{%k=%v }`. Where the two tools differ, a token
without a modifier has kcat's meaning: `%T` is the timestamp, `%T{ascii}` is rpk's length of the
topic's name.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from ottla.tools.usage import WrongUsage

Show = Callable[[Any], bytes]
Written = Callable[[int], bytes]

TEXTS: dict[str, Callable[[Any], bytes]] = {
    "t": lambda record: record.topic.encode(),
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
    "s": lambda record: record.value or b"",
}
NUMBERS: dict[str, Callable[[Any], int]] = {
    "p": lambda record: record.partition,
    "o": lambda record: record.offset,
    "e": lambda record: -1 if record.leader_epoch is None else record.leader_epoch,
    "d": lambda record: record.timestamp,
    "T": lambda record: record.timestamp,
    "K": lambda record: -1 if record.key is None else len(record.key),
    "V": lambda record: -1 if record.value is None else len(record.value),
    "S": lambda record: -1 if record.value is None else len(record.value),
    "H": lambda record: len(record.headers),
}
WITH_MODIFIER: dict[str, Callable[[Any], int]] = {
    "T": lambda record: len(record.topic.encode()),
    "K": lambda record: len(record.key or b""),
    "V": lambda record: len(record.value or b""),
}
"""Tokens that have rpk's meaning if they have a modifier."""
OTHERS: dict[str, Show] = {
    "h": lambda record: b",".join(
        name.encode() + b"=" + (value if value is not None else b"NULL")
        for name, value in record.headers
    ),
    "R": lambda record: (-1 if record.value is None else len(record.value)).to_bytes(
        4, "big", signed=True
    ),
    "n": lambda record: b"\n",
    "%": lambda record: b"%",
    "{": lambda record: b"{",
    "}": lambda record: b"}",
}
KNOWN = " ".join(f"%{name}" for name in ("i", *TEXTS, *NUMBERS, *OTHERS))
NEEDS = {"b": 1, "h": 2, "i": 4, "q": 8}
"""How many bytes a letter of `unpack` reads; capital letters mean unsigned numbers."""


def decimal(value: int) -> bytes:
    return b"%d" % value


def as_decimal(number: Callable[[Any], int]) -> Show:
    """The function that writes a number in decimal digits."""
    return lambda record: decimal(number(record))


TOKENS: dict[str, Show] = {
    **TEXTS, **{name: as_decimal(number) for name, number in NUMBERS.items()}, **OTHERS,
}  # fmt: skip
"""Every token without a modifier."""


def escaped(text: str) -> bytes:
    r"""Text with \n, \t, \r, \0, \\ and \x41 replaced."""
    names = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
    out, at = b"", 0
    for escape in re.finditer(r"\\(?:x([0-9a-fA-F]{2})|(.))", text):
        out += text[at : escape.start()].encode()
        if escape[1]:
            out += bytes([int(escape[1], 16)])
        else:
            out += names.get(escape[2], escape[0]).encode()
        at = escape.end()
    return out + text[at:].encode()


def formatted(text: str) -> Show:
    """The function that writes records in this format. Raises ClientError for an unknown token."""
    parts = [escaped(one) if isinstance(one, str) else one for one in parsed(text)]

    def show(record: Any) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record) for part in parts)

    return show


def parsed(text: str) -> list[str | Show]:
    """The parts of a format in order: plain text, and tokens."""
    parts: list[str | Show] = []
    remaining = text
    while remaining:
        before, percent, remaining = remaining.partition("%")
        if before:
            parts.append(before)
        if not percent:
            break
        token, remaining = remaining[:1], remaining[1:]
        modifier = None
        if remaining[:1] == "{" and token not in ("%", "{", "}", "n"):
            modifier, remaining = braced(remaining, f"%{token}")
        parts.append(shown(token, modifier))
    return parts


def braced(text: str, token: str) -> tuple[str, str]:
    """Splits a text that begins with a brace: the contents of the braces, and the text after them.
    """
    depth = 0
    for at, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return text[1:at], text[at + 1 :]
    raise WrongUsage(f"--format: {token}{{ has no closing brace")


def shown(token: str, modifier: str | None) -> Show:
    """The function that writes one token."""
    if token == "i":
        return counter(modifier)
    if modifier is None:
        if token not in TOKENS:
            raise WrongUsage(f"--format: %{token} is not one of {KNOWN}")
        return TOKENS[token]
    if token == "h":
        return headers(modifier)
    if token in TEXTS:
        part, write = TEXTS[token], text_form(modifier, token)
        return lambda record: write(part(record))
    if token in NUMBERS:
        number = WITH_MODIFIER.get(token, NUMBERS[token])
        write_number = moment(modifier) if token == "d" else number_form(modifier, token)
        return lambda record: write_number(number(record))
    raise WrongUsage(f"--format: %{token} takes no modifier {{{modifier}}}")


def counter(modifier: str | None) -> Show:
    """The function for %i, the number of the record, counted from 1."""
    count = 0
    write = number_form(modifier or "ascii", "i")

    def show(_: Any) -> bytes:
        nonlocal count
        count += 1
        return write(count)

    return show


def headers(modifier: str) -> Show:
    """The function for %h{…}, which writes each header in the format in braces. In this format, %k
    and %v are the header's name and value; %K and %V are their lengths."""
    inner = formatted(modifier)

    class Header:
        topic, partition, offset, timestamp, headers = "", 0, 0, 0, ()
        leader_epoch = None

        def __init__(self, name: str, value: bytes | None) -> None:
            self.key, self.value = name.encode(), value

    return lambda record: b"".join(inner(Header(name, held)) for name, held in record.headers)


def number_form(modifier: str, token: str) -> Written:
    """The function that writes a number: ascii, hex, hex64 to hex4, big64 to big8, little64 to
    little8, byte or bool."""
    if modifier in ("ascii", "number"):
        return decimal
    if modifier == "bool":
        return lambda value: b"true" if value else b"false"
    if modifier == "byte":
        return lambda value: bytes([value & 0xFF])
    if modifier == "hex":
        return lambda value: b"%x" % (value & ((1 << 64) - 1))
    kind, bits = modifier.rstrip("0123456789"), modifier.lstrip("abcdefghijklmnopqrstuvwxyz")
    if kind == "hex" and bits in ("64", "32", "16", "8", "4"):
        digits = int(bits) // 4
        return lambda value: b"%0*x" % (digits, value & ((1 << 4 * digits) - 1))
    if kind in ("big", "little") and bits in ("64", "32", "16", "8"):
        size = int(bits) // 8
        order: Any = kind
        return lambda value: (value & ((1 << 8 * size) - 1)).to_bytes(size, order)
    raise WrongUsage(
        f"--format: %{token}{{{modifier}}}: expected ascii, hex, hex64 … hex4, big64 … big8, "
        "little64 … little8, byte or bool"
    )


def text_form(modifier: str, token: str) -> Callable[[bytes], bytes]:
    """The function that writes a text: hex, base64, base64raw or unpack[…]."""
    if modifier == "hex":
        return lambda data: data.hex().encode()
    if modifier == "base64":
        return base64.b64encode
    if modifier == "base64raw":
        return lambda data: base64.b64encode(data).rstrip(b"=")
    if modifier.startswith("unpack"):
        return unpacked(enclosed(modifier.removeprefix("unpack"), token))
    raise WrongUsage(
        f"--format: %{token}{{{modifier}}}: expected hex, base64, base64raw or unpack[…]")


def enclosed(text: str, token: str) -> str:
    """The text between brackets, braces or number signs, which may be repeated: `[[…]]`."""
    opening = text[:1]
    closing = {"[": "]", "{": "}", "#": "#"}.get(opening)
    if closing is not None:
        count = len(text) - len(text.lstrip(opening))
        if text.endswith(closing * count) and len(text) > 2 * count:
            return text[count:-count]
    raise WrongUsage(f"--format: %{token}: {text!r} is not enclosed in brackets")


def unpacked(letters: str) -> Callable[[bytes], bytes]:
    """The function that reads numbers and text from bytes. The letters for numbers are those of
    Python's struct."""
    order = "<"
    steps: list[tuple[str, str]] = []
    for letter in letters:
        if letter in "<>":
            order = letter
        elif letter.lower() in NEEDS or letter in "c.s$":
            if steps and steps[-1][1] in "s$":
                raise WrongUsage(f"--format: unpack[{letters}]: nothing may follow s or $")
            steps.append((order, letter))
        elif letter != "x":
            known = "x < > b B h H i I q Q c . s $"
            raise WrongUsage(f"--format: unpack: {letter!r} is not one of {known}")

    def show(data: bytes) -> bytes:
        out, remaining = b"", data
        for sign, letter in steps:
            if letter in "c.":
                out += remaining[:1] or b"%!c(no bytes available)"
                remaining = remaining[1:]
            elif letter == "s":
                out, remaining = out + remaining, b""
            elif letter == "$":
                out += b"%!$(not end-of-input)" if remaining else b""
            elif len(remaining) < (need := NEEDS[letter.lower()]):
                out += b"%%!(have %d bytes, need %d)" % (len(remaining), need)
                remaining = b""
            else:
                out += decimal(struct.unpack(sign + letter, remaining[:need])[0])
                remaining = remaining[need:]
        return out

    return show


def moment(modifier: str) -> Written:
    """The function for %d{…}, which writes a time in UTC (strftime[…]) or in milliseconds. A time
    after the year 9999 is written in milliseconds."""
    if modifier.startswith("go"):
        raise WrongUsage("--format: %d{go[…]} is not supported: use %d{strftime[%F %T]}")
    if not modifier.startswith("strftime"):
        return number_form(modifier, "d")
    layout = enclosed(modifier.removeprefix("strftime"), "d")

    def write(value: int) -> bytes:
        try:
            time = datetime.fromtimestamp(value / 1000, UTC)
        except (ValueError, OverflowError, OSError):    # such as microseconds in place of ms
            return decimal(value)
        return time.strftime(layout).encode()

    return write
