"""A real broker for the tests of any program that uses Kafka: `Broker()`, and a pytest plug-in.

    with Broker() as broker:
        client = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)

Names are imported on first use, because pytest loads this package in every run.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.testing.broker import Broker as Broker
    from ottla.testing.children import BrokerFailed as BrokerFailed
    from ottla.testing.faults import Fault as Fault
    from ottla.testing.frames import Frame as Frame
    from ottla.testing.frames import Recording as Recording
    from ottla.wire.errors import ErrorCode as ErrorCode

HOMES = {
    "Broker": "ottla.testing.broker",
    "BrokerFailed": "ottla.testing.children",
    "ErrorCode": "ottla.wire.errors",
    "Fault": "ottla.testing.faults",
    "Frame": "ottla.testing.frames",
    "Recording": "ottla.testing.frames",
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(HOMES)
