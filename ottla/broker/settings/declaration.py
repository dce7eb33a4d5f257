"""How settings are declared, read and checked, with Kafka's names, types, defaults and limits.

A class of settings has an attribute for each setting, with Kafka's name (underscores instead of
dots) and Kafka's type:

    class BrokerConfig(Settings):
        log_segment_bytes: int = setting("log.segment.bytes", default=1 << 30, at_least=1 << 20)

Parsing, errors, DescribeConfigs and docs/settings.md (`python -m ottla.broker.settings.page`) all
follow from the declaration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from ottla.wire.units import to_write

Short = int
Long = int
Names = tuple[str, ...]
Password = str
ClassName = str

KINDS = {
    "bool": "boolean", "int": "int", "Long": "long", "Short": "short", "float": "double",
    "str": "string", "Names": "list", "Password": "password", "ClassName": "class",
}
"""The annotation of a setting, and Kafka's name of the type."""
BITS = {"short": 15, "int": 31, "long": 63}
INTEGER = re.compile(r"[+-]?[0-9]{1,100}")
"""A whole number; Python's `int` refuses thousands of digits with an error of its own."""
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


NEAR = 0.8
"""The similarity, from 0 to 1, above which an unknown name is taken for a typing error."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: a similar known name, if there is one."""
    from difflib import get_close_matches  # imported only after a mistake

    near = get_close_matches(name, known, 1, NEAR)
    return f"; did you mean {near[0]}?" if near else ""


class SettingsError(ValueError):
    """A property whose value is not allowed; the message names it and the allowed values."""

    others: Sequence[SettingsError] = ()
    """Errors about further properties, found at the same time."""
    warnings: Sequence[str] = ()
    """Warnings to be logged before the errors."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name


class Problems:
    """Collects errors about properties, so that all are reported together. A `with` block ends at
    the first error in it, which is kept."""

    def __init__(self) -> None:
        self.found: dict[str, SettingsError] = {}

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, SettingsError):
            return False
        self.found.setdefault(str(error), error)
        return True

    @property
    def names(self) -> set[str]:
        """The properties with errors."""
        return {error.name for error in self.found.values()}

    def tell(self, warnings: Sequence[str] = ()) -> None:
        """Raises the first error, with the other errors and the warnings. Does nothing if there is
        no error."""
        if self.found:
            first, *others = self.found.values()
            first.others, first.warnings = others, list(warnings)
            raise first


class Setting:
    """One setting: its name, type and limits; `also` are allowed values outside the limits.

    If `default` is a NamedTuple class, the class has a field with the name of the setting's
    attribute, and that field's default is used.
    """

    def __init__(
        self,
        name: str,
        default: Any,
        kind: str = "",
        at_least: float | None = None,
        at_most: float | None = None,
        also: tuple[int, ...] = (),
        one_of: tuple[str, ...] = (),
        any_case: bool = False,
        help: str = "",
        synonyms: tuple[str, ...] = (),
        dynamic: bool = False,
    ) -> None:
        self.name, self.default, self.kind, self.help = name, default, kind, help
        self.at_least, self.at_most, self.also = at_least, at_most, also
        self.one_of, self.any_case = one_of, any_case
        self.synonyms, self.dynamic = synonyms, dynamic
        self.attribute = ""
        self.nullable = default is None

    def __set_name__(self, owner: type[Settings], attribute: str) -> None:
        self.attribute = attribute
        if isinstance(self.default, type):
            # The default is declared where it is used, for instance in groups/settings.py.
            self.default = self.default._field_defaults[attribute]  # type: ignore[attr-defined]
        annotation, _, rest = owner.__annotations__[attribute].partition(" | ")
        self.kind = KINDS[annotation]
        self.nullable = rest == "None"

    @property
    def sensitive(self) -> bool:
        """Whether the value is a secret."""
        return self.kind == "password"

    def parse(self, text: str) -> Any:
        """Parse the text of a property. Raises SettingsError."""
        value = self._convert(text.strip() if self.kind != "password" else text)
        self.check(value)
        return value

    def _convert(self, text: str) -> Any:
        match self.kind:
            case "boolean":
                if text.lower() not in ("true", "false"):
                    raise self._wrong(text)
                return text.lower() == "true"
            case "short" | "int" | "long":
                top = 1 << BITS[self.kind]
                if not INTEGER.fullmatch(text) or not -top <= int(text) < top:
                    raise self._wrong(text)
                return int(text)
            case "double":
                if not NUMBER.fullmatch(text):
                    raise self._wrong(text)
                return float(text)
            case "list":
                # As in Kafka 4.4 a repeated entry counts once (KAFKA-19875).
                return tuple(dict.fromkeys(entries_of(text)))
        return text

    def check(self, value: Any) -> None:
        """Raise SettingsError if a value is outside the setting's limits."""
        if value is None:
            if not self.nullable:
                raise SettingsError(self.name, f"has to be set to {self.allowed()}")
            return
        if isinstance(value, tuple):
            if "" in value:
                raise SettingsError(self.name, f"{','.join(value)!r} has an empty entry")
            wrong = self.one_of and any(item not in self.one_of for item in value)
        elif self.one_of:
            wrong = (value.upper() if self.any_case else value) not in self.one_of
        elif value in self.also:
            wrong = False
        else:
            wrong = (self.at_least is not None and value < self.at_least) or (
                self.at_most is not None and value > self.at_most
            )
        if wrong:
            raise self._wrong(self.text(value))

    def repeats(self, text: str) -> bool:
        """Whether this is a list with a repeated entry."""
        return self.kind == "list" and len(entries_of(text)) > len(self._convert(text))

    def _wrong(self, text: str | None) -> SettingsError:
        hint = to_write(self.name, text) if text else ""
        return SettingsError(self.name, f"{text!r} is not allowed, must be {self.allowed()}{hint}")

    def allowed(self) -> str:
        """The allowed values, for a human reader."""
        if self.kind == "boolean":
            return "true or false"
        if self.one_of:
            choice = ", ".join(self.one_of)
            return f"a list of {choice}" if self.kind == "list" else f"one of {choice}"
        words = {"list": "a list of names separated by commas", "short": "a whole number (16 bits)",
                 "int": "a whole number (32 bits)", "long": "a whole number (64 bits)",
                 "double": "a number"}.get(self.kind, f"a {self.kind}")
        if self.at_least is not None:
            words += f", at least {self.at_least}"
        if self.at_most is not None:
            words += f", at most {self.at_most}"
        if self.also:
            words += ", or " + ", ".join(map(str, self.also))
        return words

    def text(self, value: Any) -> str | None:
        """A value as Kafka's tools print it; None for null and for secrets."""
        if value is None or self.sensitive:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)


def entries_of(text: str) -> list[str]:
    """The entries of a list, as given."""
    return [item.strip() for item in text.split(",")] if text.strip() else []


def setting(
    name: str,
    default: Any,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    also: tuple[int, ...] = (),
    one_of: tuple[str, ...] = (),
    any_case: bool = False,
    synonyms: tuple[str, ...] = (),
    dynamic: bool = False,
    help: str,
) -> Any:
    """Declare a setting of a Settings class; the attribute's annotation is its type. A broker's
    `dynamic` setting may change at run time, so its readers read it from the config each time."""
    return Setting(
        name, default, at_least=at_least, at_most=at_most, also=also, one_of=one_of,
        any_case=any_case, synonyms=synonyms, dynamic=dynamic, help=help,
    )


class Settings:
    """Declared settings with their values; a setting that was not set has its default."""

    declared: ClassVar[dict[str, Setting]] = {}
    defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = {s.name: s for s in vars(cls).values() if isinstance(s, Setting)}
        cls.declared = {**cls.declared, **own}
        cls.defaults = {s.attribute: s.default for s in cls.declared.values()}

    def __init__(self, texts: Mapping[str, str], problems: Problems | None = None) -> None:
        """Set the properties in `texts` that are declared here. Errors are added to `problems`; a
        setting with an error has its default. Without `problems`, raises SettingsError."""
        values = self.__dict__
        values.update(self.defaults)
        found = Problems() if problems is None else problems
        for name, declared in self.declared.items():
            if name in texts:
                with found:
                    values[declared.attribute] = declared.parse(texts[name])
        if problems is None:
            found.tell()

    def value(self, name: str) -> Any:
        """The value of the setting with this name in Kafka's spelling."""
        return self.__dict__[self.declared[name].attribute]


def hours(count: int) -> int:
    """Hours in milliseconds."""
    return count * 3_600_000


def days(count: int) -> int:
    """Days in milliseconds."""
    return count * 86_400_000
