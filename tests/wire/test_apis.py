"""The table of APIs and the generated files in the repository agree with the schemas."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.wire import generate
from ottla.wire.apis import APIS, AUDITED, BETWEEN_BROKERS, FORWARDED, ApiKey, with_role
from ottla.wire.generate import ROOT, generated
from tests.wire.samples import message_classes


def test_an_api_and_its_messages_are_as_its_schema_says() -> None:
    assert list(APIS) == list(ApiKey) == sorted(APIS)
    assert len(APIS) > 80
    for key, api in APIS.items():
        assert api.request.API_KEY == api.response.API_KEY == key
        assert (api.request.KIND, api.response.KIND) == ("request", "response")
        assert api.request.VERSIONS == api.response.VERSIONS == api.versions
        assert api.flexible_from == api.request.FLEXIBLE_FROM
        assert api.request.__name__ == f"{api.name}Request"


def test_ranges_are_those_of_kafka_4_4_widened_to_3_9() -> None:
    assert APIS[ApiKey.PRODUCE].versions == range(14)
    assert APIS[ApiKey.FETCH].versions == range(19)
    assert APIS[ApiKey.INIT_PRODUCER_ID].versions == range(6)       # 6 is not stable
    assert APIS[ApiKey.SHARE_FETCH].versions == range(1, 3)         # 0 never was stable
    assert APIS[ApiKey.SASL_HANDSHAKE].flexible_from is None
    assert APIS[ApiKey.OFFSET_DELETE].flexible_from is None
    assert APIS[ApiKey.ALTER_PARTITION].listeners == {"controller"}
    assert APIS[ApiKey.METADATA].listeners == {"broker"}


def test_an_api_has_the_roles_of_its_second_line() -> None:
    assert {
        ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.ALTER_PARTITION, ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.BROKER_HEARTBEAT, ApiKey.ENVELOPE,
    } == BETWEEN_BROKERS
    assert ApiKey.CREATE_TOPICS in FORWARDED & AUDITED and ApiKey.FETCH not in FORWARDED | AUDITED
    assert with_role() == frozenset()
    assert with_role("forwarded") < FORWARDED == with_role("forwarded", "forwarded_in_part")


def test_generated_files_are_current() -> None:
    outdated = [
        str(path.relative_to(ROOT)) for path, text in generated().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    assert not outdated, "run make generate"


def test_generating_writes_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {tmp_path / "one.md": "a – b\n", tmp_path / "two.pyi": ""}
    monkeypatch.setattr(generate, "generated", lambda: texts)
    generate.main()
    assert {path: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == texts


def test_every_version_of_every_message_has_a_plan() -> None:
    for message_class in message_classes():
        for version in message_class.VERSIONS:
            assert isinstance(message_class().encode(version), bytes)
