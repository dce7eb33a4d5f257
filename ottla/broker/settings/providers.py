"""`${provider:path:key}` in a value: Kafka's env, file and directory providers (KIP-297, KIP-421).

    config.providers=env,file
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    ssl.key.password=${file:/etc/ottla/secrets.properties:key.password}

The class may be omitted for providers named env, file and directory. A reference that cannot be
resolved is an error; Kafka would start with the text itself as the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from ottla.broker.settings.declaration import SettingsError
from ottla.broker.settings.properties import parse_properties
from ottla.wire.patterns import compiled

REFERENCE = re.compile(r"\$\{(?:([^}:]*):)?(?:([^}:]*):)?([^}]*)\}")
PACKAGE = "org.apache.kafka.common.config.provider."
KINDS = {
    "env": "EnvVarConfigProvider", "file": "FileConfigProvider",
    "directory": "DirectoryConfigProvider",
}
ALLOWED_PATHS, ALLOWED_NAMES = "allowed.paths", "allowlist.pattern"
Parameters = Mapping[str, str]


class Unresolved(Exception):
    """The reason why a reference cannot be resolved."""


def resolve(
    texts: dict[str, str], where: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, str]:
    """The properties with each reference replaced. Raises SettingsError."""
    if not any("${" in text for text in texts.values()):
        return texts
    kinds = _kinds(texts)

    def one(match: re.Match[str]) -> str:
        provider, path, key = match.groups()
        if provider is None:
            raise Unresolved(f"{match[0]} names no provider: expected a form such as ${{env:NAME}}")
        if provider not in kinds:
            raise Unresolved(f"{match[0]}: config.providers does not name {provider!r}")
        prefix = f"config.providers.{provider}.param."
        parameters = {
            name.removeprefix(prefix): value
            for name, value in texts.items() if name.startswith(prefix)
        }
        return READERS[kinds[provider]](path or "", key, parameters, environment)

    values = {}
    for name, text in texts.items():
        try:
            # Only the config.providers settings themselves may not depend on providers.
            values[name] = text if name.startswith("config.providers") else _replaced(text, one)
        except (Unresolved, OSError, ValueError) as error:
            raise SettingsError(name, f"{error} ({where.get(name, 'default')})") from error
    return values


def _replaced(text: str, one: Callable[[re.Match[str]], str]) -> str:
    # Only the text up to the last "}" is searched: every "${" in it begins a match, so the search
    # takes linear time.
    head, brace, rest = text.rpartition("}")
    return REFERENCE.sub(one, head + brace) + rest


def _kinds(texts: Mapping[str, str]) -> dict[str, str]:
    """The type of each provider by its name."""
    kinds: dict[str, str] = {}
    for name in filter(None, map(str.strip, texts.get("config.providers", "").split(","))):
        setting = f"config.providers.{name}.class"
        of_class = texts.get(setting, PACKAGE + KINDS.get(name, ""))
        kind = next((k for k, short in KINDS.items() if of_class == PACKAGE + short), None)
        if kind is None:
            classes = ", ".join(PACKAGE + short for short in KINDS.values())
            raise SettingsError(
                setting, f"{of_class!r} is not available; the available classes are {classes}")
        kinds[name] = kind
    return kinds


def _from_environment(
    path: str, key: str, parameters: Parameters, environment: Mapping[str, str]
) -> str:
    pattern = parameters.get(ALLOWED_NAMES)
    if pattern and not compiled(pattern).fullmatch(key):
        raise Unresolved(f"the variable {key} does not match {ALLOWED_NAMES} {pattern!r}")
    if key not in environment:
        raise Unresolved(f"the variable {key} is not set")
    return environment[key]


def _from_file(
    path: str, key: str, parameters: Parameters, environment: Mapping[str, str]
) -> str:
    values = parse_properties(_allowed(Path(path), parameters).read_bytes())
    if key not in values:
        raise Unresolved(f"{path} has no property {key}")
    return values[key]


def _from_directory(
    path: str, key: str, parameters: Parameters, environment: Mapping[str, str]
) -> str:
    return _allowed(Path(path) / Path(key).name, parameters).read_text("utf-8")


def _allowed(path: Path, parameters: Parameters) -> Path:
    allowed = [Path(each.strip()) for each in parameters.get(ALLOWED_PATHS, "").split(",") if each]
    if allowed and not any(path.resolve().is_relative_to(each.resolve()) for each in allowed):
        raise Unresolved(f"{path} is not in {ALLOWED_PATHS}")
    return path


READERS: dict[str, Callable[[str, str, Parameters, Mapping[str, str]], str]] = {
    "env": _from_environment, "file": _from_file, "directory": _from_directory,
}
