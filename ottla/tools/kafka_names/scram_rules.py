"""`--add-scram` of kafka-storage: `SCRAM-SHA-256=[name=alice,password=secret,iterations=8192]`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets

from ottla.client.command_line import INT32_MOST
from ottla.replication.controller.scram import NewCredential, alter_credentials
from ottla.replication.metadata import MetadataImage, MetadataRecord
from ottla.tools.kafka_names.grammar import UsageError, java_integer

RULE = re.compile(r"(SCRAM-SHA-256|SCRAM-SHA-512)=\[(.*)\]")
PART = re.compile(
    r'\s*(name|password|salt|iterations|saltedpassword)=(?:"([^"]*)"|([^,\]]*))\s*(?:,|$)'
)
HASHES = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
ITERATIONS = 4096
SALT_SIZE = 26


def records_of(rules: list[str]) -> list[MetadataRecord]:
    """The metadata records of these rules. Raises UsageError, which quotes no password."""
    made: list[MetadataRecord] = []
    for rule in rules:
        wanted = _credential(rule)
        decision = alter_credentials(MetadataImage.empty(), [], [wanted])
        if (error := decision.result[wanted.user]) is not None:
            raise UsageError(f"--add-scram: {wanted.user}: {error.message}")
        made += decision.records
    return made


def _credential(rule: str) -> NewCredential:
    match = RULE.fullmatch(rule.strip())
    if match is None:
        raise UsageError(
            "--add-scram must look like SCRAM-SHA-256=[name=alice,password=secret] or"
            " SCRAM-SHA-512=[name=alice,password=secret]"
        )
    number, algorithm = HASHES[match[1]]
    parts: dict[str, str] = {}
    at = 0
    while at < len(match[2]):
        part = PART.match(match[2], at)
        if part is None:
            raise UsageError(
                "--add-scram: the brackets must hold FIELD=VALUE, separated by commas. The fields"
                " are name, password, salt, iterations and saltedpassword"
            )
        parts[part[1]] = part[2] if part[2] is not None else part[3]
        at = part.end()
    if not parts.get("name"):
        raise UsageError("You must supply 'name' to add-scram")
    if ("password" in parts) == ("saltedpassword" in parts):
        raise UsageError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    try:
        iterations = java_integer(parts.get("iterations", str(ITERATIONS)), INT32_MOST)
        salt = base64.b64decode(parts["salt"], validate=True) if "salt" in parts else None
        salted = base64.b64decode(parts.get("saltedpassword", ""), validate=True)
    except (ValueError, binascii.Error) as error:
        raise UsageError(
            "--add-scram: salt and saltedpassword must be base64, and iterations must be a whole"
            f" number: {error}"
        ) from error
    if salted and salt is None:
        raise UsageError("You must supply 'salt' with 'saltedpassword' to add-scram")
    salt = salt or secrets.token_hex(SALT_SIZE // 2).encode()
    if not salted and 0 < iterations <= 1_000_000:
        salted = hashlib.pbkdf2_hmac(algorithm, parts["password"].encode(), salt, iterations)
    return NewCredential(parts["name"], number, iterations, salt, salted)
