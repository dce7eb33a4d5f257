"""The API keys, from the first lines of `schema/*.txt`: `ApiKey.LIST_OFFSETS` is 2. The keys 4 to
7, which Kafka removed with its ZooKeeper mode, are missing.

Editors and mypy read the generated `api_keys.pyi`.
"""

from enum import IntEnum

from ottla.wire.schema_parser import api_schemas

ApiKey = IntEnum(
    "ApiKey", {schema.name.upper(): key for key, schema in api_schemas().items()}, module=__name__
)
