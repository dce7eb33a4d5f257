"""Reads a schema registry (Confluent's REST API) over HTTP, with an optional password."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from ottla.client.errors import ClientError

ANSWER_SECONDS = 20
ANSWER_BYTES_MAX = 16 * 1024 * 1024


def get(address: str, path: str) -> Any:
    """A registry's JSON answer to a path. `address` may contain a user and a password. Raises
    ClientError."""
    parts = urllib.parse.urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    request = urllib.request.Request(f"{parts.scheme}://{host}{parts.path}{path}")
    if parts.username is not None:
        login = (
            f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        )
        request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
    where = f"{parts.scheme}://{host}{path}"
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            body = answer.read(ANSWER_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        raise ClientError(
            f"the schema registry answers with status {error.code}: {where}") from error
    except OSError as error:
        raise ClientError(f"the schema registry does not answer at {where}: {error}") from error
    if len(body) > ANSWER_BYTES_MAX:
        raise ClientError(f"the answer of {where} exceeds {ANSWER_BYTES_MAX} bytes")
    try:
        return json.loads(body)
    except ValueError as error:
        raise ClientError(f"the answer of {where} is not JSON") from error
