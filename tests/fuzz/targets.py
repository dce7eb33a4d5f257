"""The fuzzers by name: the function of each, and the inputs from which it begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz import file_targets, login_targets, seeds, wire_targets
from tests.fuzz.listener_target import listeners


@dataclass(frozen=True)
class Target:
    """`run` takes any bytes, and raises only if the tested code has a fault."""

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    size_max: int = 4096


TARGETS = {
    "messages": Target(wire_targets.messages, seeds.message_seeds),
    "record_batches": Target(wire_targets.record_batches, seeds.batch_seeds),
    "codecs": Target(wire_targets.codecs, seeds.codec_seeds),
    "legacy": Target(wire_targets.legacy, seeds.legacy_seeds),
    "stored_records": Target(file_targets.stored_records, file_targets.stored_seeds),
    "partition_files": Target(file_targets.partition_files, file_targets.partition_seeds, 8192),
    "passwords": Target(login_targets.passwords, login_targets.password_seeds, 512),
    "web_tokens": Target(login_targets.web_tokens, login_targets.token_seeds, 65536),
    "hostile_servers": Target(login_targets.hostile_servers, login_targets.server_seeds, 512),
    "jaas_texts": Target(login_targets.jaas_texts, login_targets.jaas_seeds, 1024),
    "listeners": Target(listeners, seeds.stream_seeds),
}
