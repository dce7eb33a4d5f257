"""Schemas by their ids: a directory of files, or a schema registry, for Confluent's wire format.

    | 0 (1 byte) | schema id (4 bytes, big-endian) | payload ... |

For protobuf the payload begins with the path of the message inside its file: a count and indexes,
as zigzag varints; a single 0 stands for the first message.

A directory has one file for each schema, named by the schema's id: `7.avsc`, `7.proto`. If the
directory has a folder for the subject (`flights-value/`), the files are in this folder. The schema
with the highest id is the newest.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.client.errors import ClientError
from ottla.client.schema_registry import get
from ottla.spark_interop.errors import PipelineError

ENDINGS = {"avro": ".avsc", "protobuf": ".proto", "json": ".json"}
REGISTRY_TYPES = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}


@dataclass(frozen=True)
class Schemas:
    """The schemas of one subject: text by id, and which id is the newest."""

    texts: Mapping[int, str]
    newest: int
    source: str

    @property
    def ids(self) -> str:
        """The ids as text, for error messages."""
        return ", ".join(map(str, sorted(self.texts)))


def load(source: str | Path, subject: str, kind: str) -> Schemas:
    """The schemas of a subject (`TOPIC-value`) from a directory or from a registry's address.

    `kind` is avro, protobuf or json. Raises PipelineError if there are none, or the registry
    does not answer.
    """
    if str(source).startswith(("http://", "https://")):
        return _from_registry(str(source).rstrip("/"), subject, kind)
    return _from_directory(Path(source), subject, kind)


def _from_directory(directory: Path, subject: str, kind: str) -> Schemas:
    if not directory.is_dir():
        raise PipelineError(f"the schema directory {directory} does not exist")
    place = directory / subject if (directory / subject).is_dir() else directory
    texts = {}
    for file in sorted(place.glob(f"*{ENDINGS[kind]}")):
        number = re.match(r"\d+", file.name)
        if number is None:
            raise PipelineError(
                f"the file name {file} does not begin with a schema id: expected a name such as"
                f" {file.parent}/1{ENDINGS[kind]}"
            )
        try:
            texts[int(number[0])] = file.read_text()
        except UnicodeDecodeError as error:
            raise PipelineError(f"the schema {file} cannot be read: it is not UTF-8") from error
    if not texts:
        raise PipelineError(f"{place} has no schema: expected files like 1{ENDINGS[kind]}")
    return Schemas(texts, max(texts), str(place))


def _from_registry(address: str, subject: str, kind: str) -> Schemas:
    quoted = urllib.parse.quote(subject, safe="")
    texts, newest = {}, 0
    for version in sorted(_get(address, f"/subjects/{quoted}/versions")):
        answer = _get(address, f"/subjects/{quoted}/versions/{version}")
        schema_type = answer.get("schemaType", "AVRO")
        if schema_type != REGISTRY_TYPES[kind]:
            raise PipelineError(
                f"version {version} of {subject} at {address} is {schema_type}, but the "
                f"format is {kind}"
            )
        if answer.get("references"):
            raise PipelineError(
                f"version {version} of {subject} refers to other schemas. Insert these schemas "
                f"into its text, save it as {answer['id']}{ENDINGS[kind]} in a directory, and give "
                "the directory instead of the registry"
            )
        newest = int(answer["id"])
        texts[newest] = str(answer["schema"])
    return Schemas(texts, newest, f"{address} ({subject})")


def _get(address: str, path: str) -> Any:
    try:
        return get(address, path)
    except ClientError as error:
        raise PipelineError(str(error)) from error
