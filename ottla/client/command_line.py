"""The parser of all command lines except those of Kafka's tools. Errors have one line, and name
similar flags and choices.

Brokers use this module too. It imports other modules of Ottla only when there is an error to
report, so that a broker does not load client code that it does not need.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NoReturn

INT16_MOST, INT32_MOST, INT64_MOST = (1 << 15) - 1, (1 << 31) - 1, (1 << 63) - 1
DIGITS_MOST = 100
"""A number with more digits counts as too large. It is not passed to `int`, which raises ValueError
for thousands of digits."""


def is_at_most(digits: str, most: int = INT64_MOST) -> bool:
    """Whether a whole number, which may have a sign, is no further from 0 than `most`."""
    return len(digits) <= DIGITS_MOST and abs(int(digits)) <= most


def is_number(text: str, most: int = INT64_MOST) -> bool:
    """Whether a text is a whole number from 0 to `most`, without a sign."""
    return text.isdecimal() and is_at_most(text, most)


def limited(least: int, most: int = INT64_MOST) -> Callable[[str], int]:
    """The argparse type of a whole number within these limits."""

    def value(text: str) -> int:
        too_much = text.isdecimal() and not is_at_most(text, most)
        if too_much or not text.isdecimal() or int(text) < least:
            both = too_much or most < INT32_MOST
            known = f"{least} to {most}" if both else f"{least} or more"
            raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number, {known}")
        return int(text)

    return value


whole, count = limited(0), limited(1)


def decimal(text: str) -> float:
    """The argparse type of a number that may have a fraction."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number")
    return found


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors have one line and suggest similar flags and choices. Parsers
    of sub-commands are of this class, too, and report errors under their own name."""

    _given: Sequence[str] = ()
    """The command line, for error messages."""
    explain_extra: Callable[[str, argparse.Namespace], str] | None = None
    """Returns the text that an error appends about an extra word, or "". The namespace has the
    values that were recognized."""

    @property
    def flags(self) -> Mapping[str, argparse.Action]:
        """The flags by their names."""
        return self._option_string_actions

    def commands(self) -> list[argparse.ArgumentParser]:
        """The parsers of the sub-commands."""
        choices = [action.choices for action in self._get_positional_actions()]
        return [one for named in choices if isinstance(named, Mapping) for one in named.values()]

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Reports unknown arguments, as `parse_args` does. argparse's own method returns them."""
        args = sys.argv[1:] if args is None else args
        self._check_flags(args)
        self._given = args
        chosen, unknown = super().parse_known_args(args, namespace)
        if unknown and not self._take_more(chosen, unknown):
            self.error(self._unrecognized(unknown, chosen))
        return chosen, []

    def _take_more(self, chosen: argparse.Namespace, words: Sequence[str]) -> bool:
        """Appends words that argparse did not recognize to the positional argument that takes any
        number of words. For example, argparse does not recognize the second file of
        `FILE --flag FILE`. Returns whether this was possible."""
        end = words.index("--") if "--" in words else len(words)
        more = [*words[:end], *words[end + 1:]]
        many = [each for each in self._get_positional_actions() if each.nargs in ("*", "+")]
        if not many or any(_is_flag(word) for word in words[:end]):
            return False
        setattr(chosen, many[-1].dest, [*getattr(chosen, many[-1].dest), *more])
        return True

    def _unrecognized(
        self, words: Sequence[str], chosen: argparse.Namespace | None = None
    ) -> str:
        from ottla.client.other_words import meant, ours
        from ottla.client.similar_names import similar

        word = next(filter(_is_flag, words), words[0])
        flag, _, value = word.partition("=")
        value = value or next(iter(words[words.index(word) + 1:]), "")
        # One letter resembles every other one.
        close = similar(flag, self.flags) if len(flag) > 2 else ""
        near = ours(flag, self.flags, value) or close or ours(meant(flag), self.flags, value)
        if len(words) == 1 and not _is_flag(word) and chosen and self.explain_extra:
            near = self.explain_extra(word, chosen) or near
        return f"unrecognized arguments: {' '.join(words)}{near}"

    def error(self, message: str) -> NoReturn:
        if "arguments are required" in message and (unknown := self._unknown_flags()):
            # argparse reports a missing flag first, even if it was given but misspelled
            message = f"{self._unrecognized(unknown)}; {message}"
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")

    def _unknown_flags(self) -> list[str]:
        """The flags in the command line that the command does not have."""
        words = takewhile("--".__ne__, self._given)
        flags = [word.partition("=")[0] for word in words if word[:2] == "--" and " " not in word]
        return [
            flag for flag in flags if not any(
                known == flag or (self.allow_abbrev and known.startswith(flag))
                for known in self.flags
            )
        ]

    def _check_flags(self, args: Sequence[str]) -> None:
        """Reports a flag such as `--topic orders` if the command takes the topic without a flag."""
        for at, word in enumerate(args):
            flag, equals, value = word.partition("=")
            name = flag.removeprefix("--").removesuffix("s")
            if word == "--":
                return
            if not name or flag[:2] != "--" or flag in self.flags:
                continue
            for action in self._get_positional_actions():
                if name == action.dest.removesuffix("s") and action.choices is None:
                    given = value if equals else " ".join(args[at + 1:at + 2])
                    if not given or given[0] == "-":
                        given = action.dest.upper()
                    self.error(f"{flag} is not a flag of this command; write the {action.dest}"
                               f" without a flag: {self.prog} {given}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """For a wrong choice, names the similar choices, or all choices if none is similar."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            from ottla.client.similar_names import similar

            if near := similar(str(value), map(str, action.choices or ())):
                error.message = f"invalid choice: {str(value)!r}{near}"
            raise


def _is_flag(word: str) -> bool:
    return word[:1] == "-" and len(word) > 1
